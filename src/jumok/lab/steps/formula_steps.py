"""Compute attention step by step: the formula, shape, numbers and labels of every line.

Where a published text prints other numbers, a step holds those too, so that readers can compare them with the numbers
that follow from the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import attend
from jumok.attention import score as scores
from jumok.attention.mask import Mask
from jumok.bilingual_text import Text, Texts

Matrix = Float[Tensor, "_ _"]

TEXTS = Texts(__file__)
ROUNDING = 0.0051  # published numbers have two decimals


@dataclass(frozen=True, eq=False)
class Step:
    """One line of the computation.

    Attributes:
        heading: The line as text, for example ``Q K^T``, in English and Korean.
        numbers: Its value, ``[row, column]``; with a batch axis ``[1, row, column]``.
        explanation: What the line does, in English and Korean.
        printed: The numbers that a published text prints for this line, NaN where it prints none; None if it prints
            nothing.
        printed_shape: The shape that a published text prints for this line, or None.
    """

    heading: Text
    numbers: Float[Tensor, "*batch _ _"]
    explanation: Text
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    printed: Matrix | None = None
    printed_shape: tuple[int, ...] | None = None
    is_weights: bool = False

    @property
    def formula(self) -> str:
        """The heading in English, by which code finds a step."""
        return self.heading.english

    @property
    def shape(self) -> list[int]:
        """The shape of ``numbers``."""
        return list(self.numbers.shape)

    @property
    def matrix(self) -> Matrix:
        """The numbers without a batch axis."""
        return self.numbers.reshape(-1, self.numbers.shape[-1])

    @property
    def differing_rows(self) -> list[int]:
        """The rows whose printed numbers differ from the computed ones by more than rounding to two decimals."""
        if self.printed is None:
            return []
        is_different = (self.matrix - self.printed).abs() > ROUNDING  # a comparison with NaN is False
        return is_different.any(-1).nonzero().flatten().tolist()

    @property
    def differs(self) -> bool:
        """Whether any printed number differs from the computed one by more than rounding to two decimals."""
        return bool(self.differing_rows) or self.printed_shape not in (None, tuple(self.shape))


@dataclass(frozen=True, eq=False)
class Example:
    """A worked example.

    Attributes:
        steps: The lines of the computation, in order.
        words: The words that the rows stand for, if any.
        source: The words that are attended to, if they are those of another sentence.
        remark: A conclusion; empty if there is none.
    """

    title: Text
    steps: list[Step]
    words: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    remark: Text = field(default=Text("", ""))


def compute_steps(
    query: Float[Tensor, "query head_width"],
    key: Float[Tensor, "key head_width"],
    value: Float[Tensor, "key value_width"],
    *,
    scaled: bool = True,
    mask: Mask | None = None,
    query_labels: Sequence[str] = (),
    key_labels: Sequence[str] = (),
) -> list[Step]:
    """Compute every line of softmax(Q K^T / sqrt(d)) V: Q, K, V, Q K^T, the scaled and masked scores where they apply,
    the weights, and the output of ``attend()``.
    """
    score = scores.ScaledDot() if scaled else scores.Dot()
    inputs = list_input_steps(query, key, value, query_labels, key_labels)
    products = compute_score_steps(score, query, key, query_labels, key_labels)
    weights = compute_weight_steps(products[-1].numbers, mask, query_labels=query_labels, key_labels=key_labels)

    output = attend(query[None, None], key[None, None], value[None, None], mask=mask, score=score)[0, 0]
    difference = float((weights[-1].numbers @ value - output).abs().max())
    assert difference <= 1e-5 * max(1.0, float(value.abs().max())), "the steps disagree with attend()"
    return [*inputs, *products, *weights, Step(TEXTS("headings.output"), output, TEXTS("output"), rows=query_labels)]


def list_input_steps(
    query: Matrix, key: Matrix, value: Matrix, query_labels: Sequence[str], key_labels: Sequence[str]
) -> list[Step]:
    """Return the lines of queries, keys and values."""
    return [
        Step(TEXTS("headings.query"), query, TEXTS("query"), rows=query_labels),
        Step(TEXTS("headings.key"), key, TEXTS("key"), rows=key_labels),
        Step(TEXTS("headings.value"), value, TEXTS("value"), rows=key_labels),
    ]


def compute_score_steps(
    score: scores.ScaledDot, query: Matrix, key: Matrix, query_labels: Sequence[str], key_labels: Sequence[str]
) -> list[Step]:
    """Compute the lines from queries and keys to scores: the products, the scale and the softcap, where they apply."""
    labels: dict[str, Any] = {"rows": query_labels, "columns": key_labels}
    numbers = query @ key.T
    steps = [Step(TEXTS("headings.products"), numbers, TEXTS("products"), **labels)]
    scale = score.get_scale(query)
    numbers = numbers * scale
    if has_usual_scale(score, query) and not isinstance(score, scores.Dot):
        steps.append(Step(TEXTS("headings.scaled", width=query.shape[-1]), numbers, TEXTS("scaled"), **labels))
    elif scale != 1:
        steps.append(Step(TEXTS("headings.model_scale", scale=scale), numbers, TEXTS("model_scale"), **labels))
    if score.softcap is not None:
        numbers = score.softcap * torch.tanh(numbers / score.softcap)
        steps.append(Step(TEXTS("headings.softcap", limit=score.softcap), numbers, TEXTS("softcap"), **labels))
    return steps


def has_usual_scale(score: scores.ScaledDot, query: Tensor) -> bool:
    """Return whether the products are divided by the square root of the width."""
    return abs(score.get_scale(query) * query.shape[-1] ** 0.5 - 1) < 1e-6


def compute_weight_steps(
    products: Matrix, mask: Mask | None, *, query_labels: Sequence[str] = (), key_labels: Sequence[str] = ()
) -> list[Step]:
    """Compute the lines from scores to weights: the mask, if there is one, and the softmax."""
    labels: dict[str, Any] = {"rows": query_labels, "columns": key_labels}
    steps = []
    if mask is not None:
        allowed = mask.dense(*products.shape)[0, 0]
        products = products.masked_fill(~allowed, -torch.inf)
        steps.append(Step(TEXTS("headings.masked_by", mask=mask), products, TEXTS("masked"), **labels))
    softmax = TEXTS("headings.softmax")
    weights = Step(softmax, products.softmax(-1), TEXTS("weights"), is_weights=True, **labels)
    return [*steps, weights]
