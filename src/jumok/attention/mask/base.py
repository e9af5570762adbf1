"""What a mask is, and how masks compose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Bool, Int8
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.axes import Allowed
from jumok.errors import ShapeError

# What a mask says of a whole block of cells. Kleene's three-valued logic: & is min, | is max, ~ is 2 - x.
EMPTY, PARTIAL, FULL = 0, 1, 2
BlockClasses = Int8[Tensor, "#batch #head #query_block #key_block"]


class Mask:
    """What every mask can do. Subclasses say ``allowed`` (each cell) and ``reach`` (whole blocks at once)."""

    #: Does it depend on query position - key position alone? Then equal tiles need evaluating once.
    relative: bool = False

    #: Can it fail to cover a grid? Then ``check`` is asked before it is used.
    needs_check: bool = True

    def evaluate(self, grid: Grid) -> Allowed:
        """True where the query may attend to the key; broadcasts to [batch, head, query, key]."""
        raise NotImplementedError

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        """EMPTY or FULL only where that is certain for every cell of the block."""
        raise NotImplementedError

    def covers(self, grid: Grid) -> bool:
        """Is it known, from ranges alone and without reading a tensor, that every cell is allowed?"""
        return False

    def limits(self) -> dict[str, int]:
        """How far the tables of this mask go on each axis (batch, head, query, key); none, no entry."""
        return {}

    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that this mask reads."""
        return ()

    def check(self, grid: Grid) -> None:
        """Raise ShapeError where a table of this mask does not cover the grid."""
        for axis, limit in self.limits().items():
            name = repr(self).partition("(")[0]
            if axis in ("batch", "head"):
                count = len(grid.batches if axis == "batch" else grid.heads)
                if limit not in (1, count):
                    raise ShapeError(f"mask.{name} has {limit} on the {axis} axis, but the query has {count}")
            else:
                grid.check_covered(axis, limit, f"mask.{name}")

    def extent(self) -> int:
        """How many positions a drawing needs to show what this mask is about."""
        return 8

    def dense(
        self,
        queries: int | Sequence[int] | Tensor,
        keys: int | Sequence[int] | Tensor,
        heads: int = 1,
        batch: int = 1,
        device: torch.device | None = None,
    ) -> Bool[Tensor, "batch head query key"]:
        """Every cell, from counts or from positions.

        >>> from jumok.attention import mask
        >>> mask.causal.dense(queries=[1], keys=3)
        tensor([[[[ True,  True, False]]]])
        """
        grid = Grid(range(batch), range(heads), _places(queries), _places(keys), device)
        self.check(grid)
        return self.evaluate(grid).expand(grid.shape).clone()

    def __and__(self, other: Mask) -> Mask:
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return self.inner if isinstance(self, Not) else Not(self)

    def __bool__(self) -> NoReturn:
        # "causal and window(3)" would silently be window(3).
        raise TypeError("a mask has no truth value; compose masks with & | ~, not with and, or, not")

    def __str__(self) -> str:
        from .notation import draw  # a drawing needs the words, and the words need this class

        return draw(self)


def _places(given: int | Sequence[int] | Tensor) -> range | Tensor:
    if isinstance(given, Tensor):
        return given
    return range(given) if isinstance(given, int) else torch.tensor(list(given), dtype=torch.long)


def classify(some: Tensor, every: Tensor) -> Tensor:
    return some.to(torch.int8) + every.to(torch.int8)


def _tighter(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
    return {axis: min(limits[axis] for limits in (one, two) if axis in limits) for axis in {**one, **two}}


def ranges_meet(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """BlockClasses of "equal": certain where all four are one number, impossible where the ranges are apart."""
    some = (low <= other_high) & (other_low <= high)
    every = (low == high) & (other_low == other_high) & (low == other_low)
    return classify(some, every)


@dataclass(frozen=True, repr=False)
class Pair(Mask):
    """Two masks as one: what ``&`` and ``|`` have in common."""

    left: Mask
    right: Mask

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.left.relative and self.right.relative

    @property
    def needs_check(self) -> bool:  # type: ignore[override]
        return self.left.needs_check or self.right.needs_check

    def limits(self) -> dict[str, int]:
        return _tighter(self.left.limits(), self.right.limits())

    def tables(self) -> tuple[Tensor, ...]:
        return self.left.tables() + self.right.tables()

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def extent(self) -> int:
        return max(self.left.extent(), self.right.extent())


@dataclass(frozen=True, repr=False)
class And(Pair):
    def evaluate(self, grid: Grid) -> Allowed:
        return self.left.evaluate(grid) & self.right.evaluate(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return torch.minimum(self.left.classify_blocks(blocks), self.right.classify_blocks(blocks))

    def covers(self, grid: Grid) -> bool:
        return self.left.covers(grid) and self.right.covers(grid)

    def __repr__(self) -> str:
        return " & ".join(f"({part!r})" if isinstance(part, Or) else repr(part) for part in (self.left, self.right))


@dataclass(frozen=True, repr=False)
class Or(Pair):
    def evaluate(self, grid: Grid) -> Allowed:
        return self.left.evaluate(grid) | self.right.evaluate(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return torch.maximum(self.left.classify_blocks(blocks), self.right.classify_blocks(blocks))

    def covers(self, grid: Grid) -> bool:
        return self.left.covers(grid) or self.right.covers(grid)

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@dataclass(frozen=True, repr=False)
class Not(Mask):
    inner: Mask

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.inner.relative

    @property
    def needs_check(self) -> bool:  # type: ignore[override]
        return self.inner.needs_check

    def evaluate(self, grid: Grid) -> Allowed:
        return ~self.inner.evaluate(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return FULL - self.inner.classify_blocks(blocks)

    def limits(self) -> dict[str, int]:
        return self.inner.limits()

    def tables(self) -> tuple[Tensor, ...]:
        return self.inner.tables()

    def check(self, grid: Grid) -> None:
        self.inner.check(grid)

    def extent(self) -> int:
        return self.inner.extent()

    def __repr__(self) -> str:
        return f"~({self.inner!r})" if isinstance(self.inner, And | Or) else f"~{self.inner!r}"
