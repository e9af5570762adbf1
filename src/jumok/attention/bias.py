"""Biases: finite numbers added to scores, as a function of positions; composed with ``+``, never used to forbid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.axes import BiasValues
from jumok.errors import ArgumentError, ShapeError

from .grid import Grid


class Bias:
    """What every bias can do."""

    def evaluate(self, grid: Grid) -> BiasValues:
        """The numbers for these cells; broadcasts to [batch, head, query, key]."""
        raise NotImplementedError

    def check(self, grid: Grid) -> None:
        """Raise ShapeError where this bias does not cover the grid."""

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """What gradients must reach."""
        return ()

    def __add__(self, other: Bias) -> Bias:
        return Sum(self, other) if isinstance(other, Bias) else NotImplemented


@dataclass(frozen=True, eq=False)
class Sum(Bias):
    left: Bias
    right: Bias

    def evaluate(self, grid: Grid) -> BiasValues:
        return self.left.evaluate(grid) + self.right.evaluate(grid)

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return self.left.gradient_tensors() + self.right.gradient_tensors()


@dataclass(frozen=True, eq=False)
class T5Buckets(Bias):
    """One learned number for each head and each bucket of distances (Raffel et al. 2020)."""

    table: Tensor  # [bucket, head]
    bidirectional: bool
    max_distance: int

    def evaluate(self, grid: Grid) -> BiasValues:
        table = self.table[:, grid.heads.start : grid.heads.stop].to(grid.key.device)
        # [batch or 1, 1, query, key] -> [batch or 1, head, query, key]
        return table[self._bucket(grid.key - grid.query).squeeze(1)].permute(0, 3, 1, 2)

    def _bucket(self, ahead: Tensor) -> Tensor:
        """Near distances have a bucket each; far ones share, in steps that grow with the distance's logarithm."""
        count = self.table.shape[0]
        if self.bidirectional:
            count //= 2
            side = (ahead > 0).long() * count  # half of the buckets look ahead
            distance = ahead.abs()
        else:
            side = torch.zeros_like(ahead)
            distance = (-ahead).clamp_min(0)
        exact = count // 2
        steps = torch.log(distance.clamp_min(1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (steps * (count - exact)).long()).clamp_max(count - 1)
        return side + torch.where(distance < exact, distance, far)

    def check(self, grid: Grid) -> None:
        _check_heads("t5", self.table.shape[1], grid)

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


@dataclass(frozen=True)
class Alibi(Bias):
    """-slope * |query - key|, a slope a head (Press, Smith and Lewis 2022)."""

    slopes: tuple[float, ...]

    def evaluate(self, grid: Grid) -> BiasValues:
        slopes = torch.tensor(self.slopes, device=grid.key.device)[grid.head]
        return -slopes * (grid.query - grid.key).abs()

    def check(self, grid: Grid) -> None:
        _check_heads("alibi", len(self.slopes), grid)


@dataclass(frozen=True, eq=False)
class Given(Bias):
    """table[batch or 1, head or 1, query position, key position], as somebody computed it."""

    table: Tensor

    def evaluate(self, grid: Grid) -> BiasValues:
        table = self.table.to(grid.key.device)
        batch = grid.batch if table.shape[0] > 1 else torch.zeros_like(grid.batch)
        head = grid.head if table.shape[1] > 1 else torch.zeros_like(grid.head)
        return table[batch, head, grid.query, grid.key]

    def check(self, grid: Grid) -> None:
        batch, head, query, key = self.table.shape
        if batch not in (1, len(grid.batches)):
            raise ShapeError(f"bias.given has {batch} batch rows, but the query has {len(grid.batches)}")
        if head != 1:
            _check_heads("given", head, grid)
        for axis, size in (("query", query), ("key", key)):
            grid.check_covered(axis, size, "bias.given")

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


def _check_heads(name: str, heads: int, grid: Grid) -> None:
    if heads != len(grid.heads):
        raise ShapeError(f"bias.{name} has {heads} heads, but the query has {len(grid.heads)}")


def t5(table: Tensor, *, bidirectional: bool = True, max_distance: int = 128) -> Bias:
    """T5's relative bias from its table [bucket, head]; encoders look both ways, decoders back only."""
    if table.dim() != 2:
        raise ShapeError(f"bias.t5 takes a table [bucket, head], not {list(table.shape)}")
    least = 4 if bidirectional else 2
    if table.shape[0] < least:
        raise ShapeError(f"bias.t5 needs at least {least} buckets, not {table.shape[0]}")
    exact = table.shape[0] // (4 if bidirectional else 2)
    if max_distance <= exact:
        raise ArgumentError(f"max_distance must be above {exact}, the distances with a bucket each; not {max_distance}")
    return T5Buckets(table, bidirectional, max_distance)


def alibi(heads: int) -> Bias:
    """ALiBi with the paper's slopes: a geometric series, interleaved where ``heads`` is no power of two."""
    if heads < 1:
        raise ArgumentError(f"alibi takes at least 1 head, not {heads}")

    def series(count: int) -> list[float]:
        return [2 ** (-8 * (step + 1) / count) for step in range(count)]

    whole = 2 ** int(math.log2(heads))
    return Alibi(tuple(series(whole) + series(2 * whole)[0::2][: heads - whole]))


def given(table: Tensor) -> Bias:
    """Numbers to add: [query, key] or [batch or 1, head or 1, query, key]. To forbid, use a mask."""
    if not isinstance(table, Tensor) or not table.is_floating_point():
        raise ArgumentError("bias.given takes a tensor of floating-point numbers; to forbid, use mask.given")
    if table.dim() not in (2, 4):
        raise ShapeError(f"bias.given takes [query, key] or [batch, head, query, key], not {list(table.shape)}")
    if not torch.isfinite(table).all():
        raise ArgumentError("bias.given takes finite numbers; to forbid, use mask.given")
    return Given(table if table.dim() == 4 else table[None, None])
