"""Biases: finite numbers added to the scores, as functions of positions. They compose with ``+``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from jumok.axes import BiasValues
from jumok.errors import ArgumentError, ShapeError

from .grid import Grid, read_cells


class Bias:
    """Base class of biases."""

    def evaluate(self, grid: Grid) -> BiasValues:
        """Return the bias of every cell; it broadcasts to ``[batch, head, query, key]``."""
        raise NotImplementedError

    def check(self, grid: Grid) -> None:
        """Raise ShapeError if this bias does not cover the grid."""

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that may require gradients."""
        return ()

    def __add__(self, other: Bias) -> Bias:
        return Sum(self, other) if isinstance(other, Bias) else NotImplemented


@dataclass(frozen=True, eq=False)
class Sum(Bias):
    """The sum of two biases, made by ``+``."""

    first: Bias
    second: Bias

    def evaluate(self, grid: Grid) -> BiasValues:
        total = self.first.evaluate(grid) + self.second.evaluate(grid)
        limits = torch.finfo(torch.float32 if total.dtype is torch.float64 else total.dtype)
        return total.clamp(limits.min, limits.max)  # two numbers at the end of the range must not become infinite

    def check(self, grid: Grid) -> None:
        self.first.check(grid)
        self.second.check(grid)

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return self.first.gradient_tensors + self.second.gradient_tensors


@dataclass(frozen=True, eq=False)
class BucketBias(Bias):
    """One learned number per head and bucket of distances; a subclass says which bucket a cell belongs to."""

    name: ClassVar[str]  # in errors
    table: Tensor  # [bucket, head]

    def compute_buckets(self, grid: Grid) -> Tensor:
        """Return the bucket of every cell, ``[batch or 1, 1, query, key]``."""
        raise NotImplementedError

    def evaluate(self, grid: Grid) -> BiasValues:
        table = self.table[:, grid.heads.start : grid.heads.stop].to(grid.key.device)
        return table[self.compute_buckets(grid).squeeze(1)].permute(0, 3, 1, 2)

    def check(self, grid: Grid) -> None:
        _check_heads(self.name, self.table.shape[1], grid)

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


@dataclass(frozen=True, eq=False)
class T5Buckets(BucketBias):
    """Near distances have one bucket each; far ones share buckets whose width grows logarithmically (Raffel et al.
    2020); made by ``t5``."""

    name = "bias.t5"
    bidirectional: bool
    max_distance: int

    def compute_buckets(self, grid: Grid) -> Tensor:
        count, distance_ahead = self.table.shape[0], grid.key - grid.query
        if self.bidirectional:
            count //= 2
            first_bucket = (distance_ahead > 0).long() * count  # half of the buckets are for keys ahead
            distance = distance_ahead.abs()
        else:
            first_bucket = torch.zeros_like(distance_ahead)
            distance = (-distance_ahead).clamp_min(0)

        exact = count // 2
        steps = torch.log(distance.clamp_min(1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (steps * (count - exact)).long()).clamp_max(count - 1)
        return first_bucket + torch.where(distance < exact, distance, far)


@dataclass(frozen=True)
class Alibi(Bias):
    """``-slope * |query - key|``, with one slope per head (Press, Smith and Lewis 2022); made by ``alibi``."""

    slopes: tuple[float, ...]

    def evaluate(self, grid: Grid) -> BiasValues:
        slopes = torch.tensor(self.slopes, device=grid.key.device)[grid.head]
        return -slopes * (grid.query - grid.key).abs()

    def check(self, grid: Grid) -> None:
        _check_heads("bias.alibi", len(self.slopes), grid)


@dataclass(frozen=True, eq=False)
class Given(Bias):
    """A table ``[batch or 1, head or 1, query position, key position]``; made by ``given``."""

    table: Tensor

    def evaluate(self, grid: Grid) -> BiasValues:
        return read_cells(self.table, grid)

    def check(self, grid: Grid) -> None:
        batch, head, query, key = self.table.shape
        if batch not in (1, len(grid.batches)):
            raise ShapeError(f"bias.given has {batch} batch rows, but the query has {len(grid.batches)}")
        if head != 1:
            _check_heads("bias.given", head, grid)
        for axis, size in (("query", query), ("key", key)):
            grid.check_covered(axis, size, "bias.given")

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


def _check_heads(name: str, heads: int, grid: Grid) -> None:
    if heads != len(grid.heads):
        raise ShapeError(f"{name} has {heads} heads, but the query has {len(grid.heads)}")


def t5(table: Tensor, *, bidirectional: bool = True, max_distance: int = 128) -> Bias:
    """Return T5's relative position bias.

    Args:
        table: Learned numbers, ``[bucket, head]``.
        bidirectional: True in encoders, where half of the buckets are for keys ahead; False in decoders.
        max_distance: Distance from which all keys share the last bucket.
    """
    if table.dim() != 2:
        raise ShapeError(f"bias.t5 takes a table [bucket, head], not {list(table.shape)}")

    min_buckets = 4 if bidirectional else 2
    if table.shape[0] < min_buckets:
        raise ShapeError(f"bias.t5 needs at least {min_buckets} buckets, not {table.shape[0]}")

    exact = table.shape[0] // min_buckets
    if max_distance <= exact:
        raise ArgumentError(
            f"max_distance must be above {exact}, the number of distances with their own bucket, not {max_distance}"
        )
    return T5Buckets(table, bidirectional, max_distance)


def alibi(heads: int) -> Bias:
    """Return the ALiBi bias with the slopes of the paper.

    Args:
        heads: Number of heads. The slopes are a geometric series; if ``heads`` is not a power of two, every second
            slope of the next series is added.
    """
    if heads < 1:
        raise ArgumentError(f"alibi takes at least 1 head, not {heads}")

    def make_slopes(count: int) -> list[float]:
        return [2 ** (-8 * (step + 1) / count) for step in range(count)]

    power_of_two = 2 ** int(math.log2(heads))
    additional = make_slopes(2 * power_of_two)[0::2][: heads - power_of_two]
    return Alibi(tuple(make_slopes(power_of_two) + additional))


def given(table: Tensor) -> Bias:
    """Return a bias that adds the numbers of a tensor. To forbid cells, use a mask.

    Args:
        table: Numbers within the range of float32, ``[query, key]`` or ``[batch or 1, head or 1, query, key]``, indexed
            by position.
    """
    if not isinstance(table, Tensor) or not table.is_floating_point():
        raise ArgumentError("bias.given takes a tensor of floating-point numbers; to forbid cells, use mask.given")
    if table.dim() not in (2, 4):
        raise ShapeError(f"bias.given takes [query, key] or [batch, head, query, key], not {list(table.shape)}")
    if not torch.isfinite(table.float()).all():
        raise ArgumentError(
            "bias.given takes finite numbers within the range of float32; to forbid cells, use mask.given"
        )
    return Given(table if table.dim() == 4 else table[None, None])
