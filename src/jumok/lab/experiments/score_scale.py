"""Experiment ``scale``: how the softmax saturates when scores are not divided by sqrt(d_k) (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import attend
from jumok.attention import score as scores
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text

from .experiment_result import ExperimentResult, Progress, Table

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUICK: dict[str, Any] = {"widths": WIDTHS, "samples": 8}
FULL: dict[str, Any] = {"widths": WIDTHS, "samples": 128}
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


@dataclass(frozen=True)
class ScaleResult(ExperimentResult):
    """The result of ``measure_scale``.

    Attributes:
        rows: One row for each width.
    """

    keys: int
    seed: int
    rows: tuple[ScaleRow, ...]

    def build_tables(self) -> list[Table]:
        """Return one table of all widths, and the lecture's example."""
        plain = Text("plain", "그대로")
        columns = (
            Text("d_k", "d_k"),
            *(Text("max weight", "최대 가중치"), plain),
            *(Text("entropy", "엔트로피"), plain),
            *(Text("gradient", "기울기"), plain),
        )
        rows = []
        for row in self.rows:
            cells = zip(_format_statistics(row.scaled), _format_statistics(row.unscaled), strict=True)
            rows.append((str(row.head_width), *(cell for pair in cells for cell in pair)))
        title = Text(
            f"random normal queries and keys, {self.keys} keys; equal weights: 1/{self.keys} = {1 / self.keys:.4f}, "
            f"entropy log({self.keys}) = {math.log(self.keys):.3f}; "
            "first with scores / sqrt(d_k), then with plain scores",
            f"정규분포 난수 쿼리와 키, 키 {self.keys}개; 가중치가 모두 같으면 1/{self.keys} = {1 / self.keys:.4f}, "
            f"엔트로피 log({self.keys}) = {math.log(self.keys):.3f}; "
            "앞은 점수를 sqrt(d_k)로 나눈 것, 뒤는 그대로 쓴 것",
        )
        return [Table(columns, tuple(rows), title), _build_example_table()]

    def explain(self) -> list[Text]:
        """Say how the largest weight depends on d_k, and why."""
        first, last = self.rows[0], self.rows[-1]
        sizes = f"d_k = {first.head_width}", f"d_k = {last.head_width}"
        plain = f"{first.unscaled.largest_weight:.3f}", f"{last.unscaled.largest_weight:.3f}"
        divided = f"{first.scaled.largest_weight:.3f}", f"{last.scaled.largest_weight:.3f}"
        return [
            Text(
                f"A sum of d_k random products has the standard deviation sqrt(d_k), so plain scores grow with d_k, "
                f"and the largest weight goes from {plain[0]} ({sizes[0]}) to {plain[1]} ({sizes[1]}); divided by "
                f"sqrt(d_k) it is {divided[0]} and {divided[1]}.",
                f"난수의 곱 d_k개를 더하면 표준편차가 sqrt(d_k)이므로, 나누지 않은 점수는 d_k와 함께 커지고 "
                f"최대 가중치는 {plain[0]}({sizes[0]})에서 {plain[1]}({sizes[1]})로 변합니다. "
                f"sqrt(d_k)로 나누면 {divided[0]}, {divided[1]}입니다.",
            ),
            Text(
                f"When one key takes all the weight, the softmax hardly passes gradients: at {sizes[1]} the median "
                f"norm of its derivative is {last.unscaled.gradient:.4f} instead of {last.scaled.gradient:.4f}, and "
                f"{last.unscaled.saturated:.0%} of the rows have a weight above 0.99.",
                f"키 하나가 가중치를 모두 가져가면 소프트맥스는 기울기를 거의 전달하지 못합니다. {sizes[1]}에서 도함수 "
                f"노름의 중앙값은 {last.scaled.gradient:.4f}이 아니라 {last.unscaled.gradient:.4f}이고, 행의 "
                f"{last.unscaled.saturated:.0%}에서 가중치 하나가 0.99를 넘습니다.",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name the widths at which plain scores still have the larger gradient, and scales that do not help."""
        texts = []
        larger = [str(row.head_width) for row in self.rows if row.unscaled.gradient >= row.scaled.gradient]
        if larger:
            widths = ", ".join(larger)
            texts.append(
                Text(
                    f"At d_k = {widths} plain scores have the larger gradient: before the softmax saturates, sharper "
                    "weights change more, not less.",
                    f"d_k = {widths}에서는 나누지 않은 점수의 기울기가 더 큽니다. 포화되기 전에는 가중치가 뾰족할수록 "
                    "변화가 오히려 큽니다.",
                )
            )
        weights = [row.scaled.largest_weight for row in self.rows]
        if max(weights) > NARROW * min(weights):
            texts.append(
                Text(
                    f"With the scale the largest weight still changes from {min(weights):.3f} to {max(weights):.3f}.",
                    f"나누어도 최대 가중치가 {min(weights):.3f}에서 {max(weights):.3f}까지 변합니다.",
                )
            )
        if self.rows[-1].unscaled.largest_weight < WIDE:
            texts.append(
                Text(
                    f"At d_k = {self.rows[-1].head_width} plain scores do not saturate yet.",
                    f"d_k = {self.rows[-1].head_width}에서는 나누지 않은 점수도 아직 포화되지 않습니다.",
                )
            )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the largest weight over d_k as two curves."""
        plain = Text("plain dot product", "나누지 않은 내적").select(language)
        divided = Text("divided by sqrt(d_k)", "sqrt(d_k)로 나눈 내적").select(language)
        return save_line_plot(
            {
                divided: [(row.head_width, row.scaled.largest_weight) for row in self.rows],
                plain: [(row.head_width, row.unscaled.largest_weight) for row in self.rows],
            },
            target,
            title=Text("Softmax saturates without the scale", "나누지 않으면 소프트맥스가 포화됩니다").select(language),
            across="d_k",
            vertical=Text("largest weight (mean)", "최대 가중치(평균)").select(language),
            log_across=True,
        )


def measure_scale(
    widths: Sequence[int] = WIDTHS,
    *,
    keys: int = 256,
    samples: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> ScaleResult:
    """Compare softmax(Q K^T) with softmax(Q K^T / sqrt(d_k)) for random normal queries and keys.

    Args:
        samples: How many sets of 32 queries and ``keys`` keys to draw for each width.
        progress: Called with the finished and the total number of widths; default: nothing.

    Raises:
        ArgumentError: If there is no width, or a number is too small.

    >>> row = measure_scale([64], samples=4).rows[0]
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
    return ScaleResult(keys, seed, tuple(rows))


def _compute_weights(
    query: Float[Tensor, "1 1 query head_width"], key: Float[Tensor, "1 1 key head_width"], score: scores.Score
) -> Float[Tensor, "query key"]:
    _, weights = attend(query, key, key, score=score, weights=True)
    return weights[0, 0]


def summarize_weights(weights: Float[Tensor, "query key"]) -> SoftmaxStatistics:
    """Summarize rows of attention weights.

    Args:
        weights: The weights ``[query, key]``; every row sums to 1.
    """
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


def _format_statistics(statistics: SoftmaxStatistics) -> tuple[str, str, str]:
    return f"{statistics.largest_weight:.3f}", f"{statistics.entropy:.3f}", f"{statistics.gradient:.4f}"


def _build_example_table() -> Table:
    """The lecture's score of 37.2 beside a key with score 0, without and with the scale."""
    rows = []
    for formula, number in (
        (f"{EXAMPLE_SCORE}", EXAMPLE_SCORE),
        (f"{EXAMPLE_SCORE} / sqrt({EXAMPLE_WIDTH})", EXAMPLE_SCORE / EXAMPLE_WIDTH**0.5),
    ):
        other = 1 / (1 + math.exp(number))
        rows.append((formula, f"{number:.2f}", f"{1 - other:.4f}", f"{other:.1e}", f"{other * (1 - other):.1e}"))
    columns = (
        Text("score", "점수"),
        Text("number", "값"),
        Text("its weight", "가중치"),
        Text("other key", "다른 키"),
        Text("derivative", "도함수"),
    )
    title = Text(
        "a lecture's example with d_k = 64, beside one other key with score 0",
        "강의의 예(d_k = 64): 점수가 0인 다른 키 하나와 비교",
    )
    return Table(columns, tuple(rows), title)
