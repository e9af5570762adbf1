"""Attention step by step, on examples small enough for paper: every shape and every number between query, key, value
and output. Where a text prints other numbers, both are shown, and which follow from the formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import attend, mask
from jumok.attention import score as scores
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError

from .sentence_attention import DEMONSTRATIONS

Matrix = Float[Tensor, "row column"]


@dataclass(frozen=True)
class Step:
    """One line of the formula, and what it gave."""

    formula: str
    numbers: Matrix
    printed: Matrix | None = None  # what a text prints here

    @property
    def shape(self) -> list[int]:
        return list(self.numbers.shape)

    @property
    def differs(self) -> bool:
        """Does the text print something that does not follow? Its numbers are rounded to two digits."""
        return self.printed is not None and bool(((self.numbers - self.printed).abs() > 0.0051).any())


@dataclass(frozen=True)
class Example:
    title: str
    steps: list[Step]
    words: list[str] = field(default_factory=list)
    remark: str = ""


def formula(query: Matrix, key: Matrix, value: Matrix, *, scaled: bool = True, who: Mask | None = None) -> list[Step]:
    """Q, K, V, then each line of softmax(Q K^T / sqrt(d)) V; the last is what ``attend`` gives."""
    products = query @ key.T
    found = [Step("Q", query), Step("K", key), Step("V", value), Step("Q K^T", products)]
    if scaled:
        products = products / key.shape[1] ** 0.5
        found.append(Step(f"/ sqrt({key.shape[1]})", products))
    found += _weighted(products, who)
    made = attend(
        query[None, None],
        key[None, None],
        value[None, None],
        mask=who,
        score=scores.ScaledDot() if scaled else scores.Dot(),
    )[0, 0]
    assert torch.allclose(found[-1].numbers @ value, made, atol=1e-5), "the lines are not the door's"
    return [*found, Step("weights V", made)]


def _weighted(products: Matrix, who: Mask | None) -> list[Step]:
    found = []
    if who is not None:
        open_cells = who.dense(*products.shape)[0, 0]
        products = products.masked_fill(~open_cells, -torch.inf)
        found.append(Step(f"masked: {who!r}", products))
    return [*found, Step("softmax, row by row", products.softmax(-1))]


def _mixture() -> Example:
    weights = torch.tensor([[0.1, 0.8, 0.1]])
    value = torch.tensor([[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]])
    return Example(
        "a mixture of values",
        [
            Step("weights", weights),
            Step("V", value),
            Step("each weight times its value", weights.T * value),
            Step("their sum", weights @ value),
        ],
    )


def _causal() -> Example:
    table = torch.tensor(
        [[2.1, 1.5, 0.8, 1.2], [1.3, 2.5, 1.1, 0.9], [0.7, 1.8, 2.2, 1.4], [1.0, 1.6, 1.9, 2.3]]
    )  # fmt: skip
    masked, weights = _weighted(table, mask.causal)
    printed = weights.numbers.clone()
    printed[2] = torch.tensor([0.1, 0.3, 0.6, 0.0])
    return Example(
        "four scores a row, and nobody looks ahead",
        [Step("scores", table), masked, Step(weights.formula, weights.numbers, printed)],
        remark="An article prints 0.1, 0.3, 0.6 in the third row; of these scores softmax makes 0.118, 0.354, 0.528.",
    )


def _one_hot() -> Example:
    words = torch.eye(3)
    plain, scaled = formula(words, words, words, scaled=False), formula(words, words, words)
    return Example(
        "three words, each a direction of its own",
        [*plain[:-1], *scaled[4:]],
        remark="Without the scale each word has e / (e + 2) = 0.576 on itself, with it 0.471.",
    )


def _scores() -> Example:
    table = torch.tensor([[5.0, 95.0, 12.0]])
    (weights,) = _weighted(table, None)
    return Example(
        "scores as large as marks",
        [Step("scores", table), Step(weights.formula, weights.numbers, torch.tensor([[0.01, 0.88, 0.03]]))],
        remark="A lecture gives these scores the weights 0.01, 0.88, 0.03, which do not even sum to 1. Softmax takes "
        "differences: 83 more than the next is everything.",
    )


def _sentence() -> Example:
    words = DEMONSTRATIONS["english"].split()
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(len(words), 4, generator=draw)
    maps = [torch.randn(4, 4, generator=draw) / 2 for _ in range(3)]
    steps = formula(*(hidden @ one for one in maps), who=mask.causal)
    return Example(
        "a sentence, nothing trained",
        [Step("embedded words", hidden), *steps],
        words=words,
        remark="The vectors and maps are drawn: shapes and sums are right, and what looks at what means nothing yet.",
    )


EXAMPLES: dict[str, Callable[[], Example]] = {
    "mixture": _mixture,
    "one-hot": _one_hot,
    "causal": _causal,
    "scores": _scores,
    "sentence": _sentence,
}


def build_example(name: str) -> Example:
    if name not in EXAMPLES:
        raise ArgumentError(f"there is no example {name!r}; there are {', '.join(EXAMPLES)}")
    return EXAMPLES[name]()
