"""Compute attention step by step on examples small enough to verify on paper.

Every step holds its formula, shape and numbers. Where a published text prints other numbers, a step holds those too, so
that readers can compare them with the numbers that follow from the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import attend
from jumok.attention import mask as masks
from jumok.attention import score as scores
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError

Matrix = Float[Tensor, "row column"]

EXAMPLE_SENTENCE = "the animal didn't cross the street because it was too tired"
ROUNDING = 0.0051  # published numbers have two decimals


@dataclass(frozen=True)
class Step:
    """One line of the computation.

    Attributes:
        formula: The line as text, for example ``"Q K^T"``.
        numbers: Its value.
        printed: The numbers that a published text prints for this line, or None.
    """

    formula: str
    numbers: Matrix
    printed: Matrix | None = None

    @property
    def shape(self) -> list[int]:
        """The shape of ``numbers``."""
        return list(self.numbers.shape)

    @property
    def differs(self) -> bool:
        """Whether the printed numbers differ from the computed ones by more than rounding to two decimals."""
        return self.printed is not None and bool(((self.numbers - self.printed).abs() > ROUNDING).any())


@dataclass(frozen=True)
class Example:
    """A worked example.

    Attributes:
        title: A short description.
        steps: The lines of the computation, in order.
        words: The words that the rows stand for, if any.
        remark: A conclusion, or an empty string.
    """

    title: str
    steps: list[Step]
    words: list[str] = field(default_factory=list)
    remark: str = ""


def compute_steps(
    query: Matrix, key: Matrix, value: Matrix, *, scaled: bool = True, mask: Mask | None = None
) -> list[Step]:
    """Compute every line of softmax(Q K^T / sqrt(d)) V; the last one is the output of ``attend()``.

    Args:
        query: Queries ``[query, head_width]``.
        key: Keys ``[key, head_width]``.
        value: Values ``[key, value_width]``.
        scaled: Whether to divide the scores by sqrt(head_width).
        mask: Which keys each query may attend to; default: all of them.

    Returns:
        The lines Q, K, V, Q K^T, the scaled and masked scores where they apply, the weights, and the output.
    """
    products = query @ key.T
    steps = [Step("Q", query), Step("K", key), Step("V", value), Step("Q K^T", products)]
    if scaled:
        products = products / key.shape[1] ** 0.5
        steps.append(Step(f"/ sqrt({key.shape[1]})", products))
    steps += _compute_weights(products, mask)

    output = attend(
        query[None, None],
        key[None, None],
        value[None, None],
        mask=mask,
        score=scores.ScaledDot() if scaled else scores.Dot(),
    )[0, 0]
    assert torch.allclose(steps[-1].numbers @ value, output, atol=1e-5), "the steps disagree with attend()"
    return [*steps, Step("weights V", output)]


def _compute_weights(products: Matrix, mask: Mask | None) -> list[Step]:
    """The steps from scores to weights: the mask, if there is one, and the softmax."""
    steps = []
    if mask is not None:
        allowed = mask.dense(*products.shape)[0, 0]
        products = products.masked_fill(~allowed, -torch.inf)
        steps.append(Step(f"masked: {mask!r}", products))
    return [*steps, Step("softmax, row by row", products.softmax(-1))]


def _build_mixture() -> Example:
    weights = torch.tensor([[0.1, 0.8, 0.1]])
    value = torch.tensor([[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]])
    return Example(
        "a weighted sum of values",
        [
            Step("weights", weights),
            Step("V", value),
            Step("each weight times its value", weights.T * value),
            Step("their sum", weights @ value),
        ],
    )


def _build_causal() -> Example:
    table = torch.tensor(
        [[2.1, 1.5, 0.8, 1.2], [1.3, 2.5, 1.1, 0.9], [0.7, 1.8, 2.2, 1.4], [1.0, 1.6, 1.9, 2.3]]
    )  # fmt: skip
    masked, weights = _compute_weights(table, masks.causal)
    printed = weights.numbers.clone()
    printed[2] = torch.tensor([0.1, 0.3, 0.6, 0.0])
    return Example(
        "four scores in each row, under a causal mask",
        [Step("scores", table), masked, Step(weights.formula, weights.numbers, printed)],
        remark="An article prints 0.1, 0.3, 0.6 in the third row; the softmax of these scores is 0.118, 0.354, 0.528.",
    )


def _build_one_hot() -> Example:
    words = torch.eye(3)
    unscaled_steps = compute_steps(words, words, words, scaled=False)
    scaled_steps = compute_steps(words, words, words)
    return Example(
        "three words with orthogonal one-hot vectors",
        [*unscaled_steps[:-1], *scaled_steps[4:]],
        remark="Without the scale each word has the weight e / (e + 2) = 0.576 on itself, with the scale 0.471.",
    )


def _build_large_scores() -> Example:
    table = torch.tensor([[5.0, 95.0, 12.0]])
    (weights,) = _compute_weights(table, None)
    return Example(
        "large scores saturate the softmax",
        [Step("scores", table), Step(weights.formula, weights.numbers, torch.tensor([[0.01, 0.88, 0.03]]))],
        remark="A lecture prints the weights 0.01, 0.88, 0.03 for these scores, which do not sum to 1. Softmax depends "
        "on differences: a score that is larger by 83 receives the entire weight.",
    )


def _build_sentence() -> Example:
    words = EXAMPLE_SENTENCE.split()
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(len(words), 4, generator=generator)
    projections = [torch.randn(4, 4, generator=generator) / 2 for _ in range(3)]
    steps = compute_steps(*(hidden @ projection for projection in projections), mask=masks.causal)
    return Example(
        "a sentence with random, untrained parameters",
        [Step("embedded words", hidden), *steps],
        words=words,
        remark="The vectors and projections are random: shapes and sums are right, but the weights carry no meaning.",
    )


EXAMPLES: dict[str, Callable[[], Example]] = {
    "mixture": _build_mixture,
    "one-hot": _build_one_hot,
    "causal": _build_causal,
    "scores": _build_large_scores,
    "sentence": _build_sentence,
}


def build_example(name: str) -> Example:
    """Build one of the worked examples.

    Args:
        name: One of ``EXAMPLES``: mixture, one-hot, causal, scores or sentence.

    Raises:
        ArgumentError: If the name is unknown.

    >>> [step.formula for step in build_example("causal").steps]
    ['scores', 'masked: causal', 'softmax, row by row']
    """
    if name not in EXAMPLES:
        raise ArgumentError(f"unknown example {name!r}; choose one of {', '.join(EXAMPLES)}")
    return EXAMPLES[name]()
