"""Experiment ``scale``: how the softmax saturates when scores are not divided by sqrt(d_k) (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import attend
from jumok.attention import score as scores
from jumok.bilingual_text import Texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.result import Result, build_table
from jumok.reporting import Progress

TEXTS = Texts(__file__)

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
FULL: dict[str, Any] = {"samples": 128}
QUERIES = 32  # per sample
EXAMPLE_SCORE, EXAMPLE_WIDTH = 37.2, 64  # a lecture's example: 37.2 / sqrt(64) = 4.65
NARROW, WIDE = 1.5, 0.5  # how much the largest weight may change by width, with the scale; how large it is without it


@dataclass(frozen=True)
class SoftmaxStatistics:
    """The weights of many queries.

    Attributes:
        entropy: The entropy of a row in nats, on average; log(keys) if all weights are equal.
        gradient: The median over all rows of the norm of the softmax's Jacobian: how much the weights change with the
            scores.
        saturated: The share of rows in which a single key has more than 0.99.
    """

    largest_weight: float
    entropy: float
    gradient: float
    saturated: float


@dataclass(frozen=True)
class ScaleRow:
    """One width of the heads.

    Attributes:
        head_width: The width d_k of queries and keys.
        scaled: With scores divided by sqrt(d_k).
        unscaled: With plain dot products.
    """

    head_width: int
    scaled: SoftmaxStatistics
    unscaled: SoftmaxStatistics


def measure_scale(
    widths: Sequence[int] = WIDTHS,
    *,
    keys: int = 256,
    samples: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare softmax(Q K^T) with softmax(Q K^T / sqrt(d_k)) for random normal queries and keys.

    Args:
        samples: How many sets of 32 queries and ``keys`` keys to draw for each width.

    >>> row = measure_scale([64], samples=4).numbers["rows"][0]
    >>> row.scaled.largest_weight < 0.06, row.unscaled.largest_weight > 0.6
    (True, True)
    """
    if not widths or min(*widths, samples, keys - 1) < 1:
        raise ArgumentError("measure_scale needs widths and samples of at least 1, and at least 2 keys")
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for done, width in enumerate(widths, 1):
        scaled, unscaled = [], []
        for _ in range(samples):
            query = torch.randn(1, 1, QUERIES, width, generator=generator, dtype=torch.float64)
            key = torch.randn(1, 1, keys, width, generator=generator, dtype=torch.float64)
            scaled.append(_compute_weights(query, key, scores.ScaledDot()))
            unscaled.append(_compute_weights(query, key, scores.Dot()))
        rows.append(ScaleRow(width, summarize_weights(torch.cat(scaled)), summarize_weights(torch.cat(unscaled))))
        if progress:
            progress(done, len(widths))
    return describe_scale(keys, seed, tuple(rows))


def describe_scale(keys: int, seed: int, rows: tuple[ScaleRow, ...]) -> Result:
    """Say how the largest weight depends on d_k, and name widths at which the scale does not help."""
    first, last = rows[0], rows[-1]
    values = {"keys": keys, "equal": 1 / keys, "entropy": math.log(keys)}
    tables = [
        build_table(TEXTS, "table", ({"row": row} for row in rows), **values),
        build_table(TEXTS, "example", _compute_example()),
    ]
    sentences = [TEXTS(name, first=first, last=last) for name in ("saturation", "gradients")]

    exceptions = []
    widths = ", ".join(str(row.head_width) for row in rows if row.unscaled.gradient >= row.scaled.gradient)
    if widths:
        exceptions.append(TEXTS("larger_gradient", widths=widths))
    weights = [row.scaled.largest_weight for row in rows]
    if max(weights) > NARROW * min(weights):
        exceptions.append(TEXTS("not_constant", smallest=min(weights), largest=max(weights)))
    if last.unscaled.largest_weight < WIDE:
        exceptions.append(TEXTS("not_saturated", width=last.head_width))
    numbers = {"keys": keys, "seed": seed, "rows": rows}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_largest_weights, rows))


def _draw_largest_weights(rows: Sequence[ScaleRow], target: str | Path, language: str) -> Path:
    labels = TEXTS.select("picture", language)
    return save_line_plot(
        {
            labels["divided"]: [(row.head_width, row.scaled.largest_weight) for row in rows],
            labels["plain"]: [(row.head_width, row.unscaled.largest_weight) for row in rows],
        },
        target,
        title=labels["title"],
        across="d_k",
        vertical=labels["vertical"],
        log_across=True,
    )


def _compute_weights(
    query: Float[Tensor, "1 1 query head_width"], key: Float[Tensor, "1 1 key head_width"], score: scores.Score
) -> Float[Tensor, "query key"]:
    _, weights = attend(query, key, key, score=score, weights=True)
    return weights[0, 0]


def summarize_weights(weights: Float[Tensor, "query key"]) -> SoftmaxStatistics:
    """Summarize rows of attention weights; every row sums to 1."""
    largest = weights.amax(-1)
    squares = weights.square().sum(-1)
    # the squared norm of the Jacobian diag(p) - p p^T, without building a matrix for each row
    jacobian = (squares - 2 * weights.pow(3).sum(-1) + squares.square()).clamp_min(0).sqrt()
    return SoftmaxStatistics(
        largest_weight=float(largest.mean()),
        entropy=float(torch.special.entr(weights).sum(-1).mean()),
        gradient=median(jacobian.tolist()),
        saturated=float((largest > 0.99).double().mean()),
    )


def _compute_example() -> Iterator[dict[str, object]]:
    """Yield the lecture's score of 37.2 beside a key with score 0, without and with the scale."""
    for formula, number in (
        (f"{EXAMPLE_SCORE}", EXAMPLE_SCORE),
        (f"{EXAMPLE_SCORE} / sqrt({EXAMPLE_WIDTH})", EXAMPLE_SCORE / EXAMPLE_WIDTH**0.5),
    ):
        other = 1 / (1 + math.exp(number))
        yield {"formula": formula, "number": number, "weight": 1 - other, "other": other, "slope": other * (1 - other)}
