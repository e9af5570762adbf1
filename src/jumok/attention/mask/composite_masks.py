"""The masks that ``&``, ``|`` and ``~`` make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.axes import Allowed
from jumok.errors import ArgumentError

from .band import Band
from .base import FULL, BlockClasses, Mask

# Levels of & inside | inside ~ and so on; a chain such as a & b & c is one level. Every method of a mask calls itself
# once per level, and Python limits the depth of calls.
MAX_NESTING = 100


def _set_nesting(mask: Mask, parts: tuple[Mask, ...]) -> None:
    nesting = 1 + max(part.nesting for part in parts)
    if nesting > MAX_NESTING:
        raise ArgumentError(
            f"the mask expression is nested more than {MAX_NESTING} levels deep; simplify it, or pass the cells as "
            "mask.given(tensor)"
        )
    object.__setattr__(mask, "nesting", nesting)  # the dataclass is frozen


@dataclass(frozen=True, repr=False)
class CompositeMask(Mask):
    """Several masks joined by one operator: the common part of ``And`` and ``Or``."""

    parts: tuple[Mask, ...]

    def __post_init__(self) -> None:
        _set_nesting(self, self.parts)

    @classmethod
    def join(cls, *masks: Mask) -> Mask:
        """Join masks; a chain of one operator becomes one mask with many parts, not a nested mask."""
        return cls(tuple(part for mask in masks for part in (mask.parts if isinstance(mask, cls) else (mask,))))

    @property
    def relative(self) -> bool:
        return all(part.relative for part in self.parts)

    @property
    def needs_check(self) -> bool:
        return any(part.needs_check for part in self.parts)

    @property
    def table_sizes(self) -> dict[str, int]:
        smallest: dict[str, int] = {}
        for part in self.parts:
            for axis, size in part.table_sizes.items():
                smallest[axis] = min(size, smallest.get(axis, size))
        return smallest

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return tuple(table for part in self.parts for table in part.tables)

    def check(self, grid: Grid) -> None:
        for part in self.parts:
            part.check(grid)

    @property
    def drawing_size(self) -> int:
        return max(part.drawing_size for part in self.parts)


@dataclass(frozen=True, repr=False)
class And(CompositeMask):
    """``a & b & c``: allowed where all parts allow."""

    @property
    def band(self) -> Band:
        return reduce(Band.intersect, (part.band for part in self.parts))

    @property
    def conjuncts(self) -> tuple[Mask, ...]:
        return self.parts

    def evaluate(self, grid: Grid) -> Allowed:
        return reduce(torch.logical_and, (part.evaluate(grid) for part in self.parts))

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return reduce(torch.minimum, (part.classify_blocks(blocks) for part in self.parts))

    def allows_all(self, grid: Grid) -> bool:
        return all(part.allows_all(grid) for part in self.parts)

    def __repr__(self) -> str:
        return " & ".join(f"({part!r})" if isinstance(part, Or) else repr(part) for part in self.parts)


@dataclass(frozen=True, repr=False)
class Or(CompositeMask):
    """``a | b | c``: allowed where at least one part allows."""

    @property
    def band(self) -> Band:
        return reduce(Band.unite, (part.band for part in self.parts))

    def evaluate(self, grid: Grid) -> Allowed:
        return reduce(torch.logical_or, (part.evaluate(grid) for part in self.parts))

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return reduce(torch.maximum, (part.classify_blocks(blocks) for part in self.parts))

    def allows_all(self, grid: Grid) -> bool:
        return any(part.allows_all(grid) for part in self.parts)

    def __repr__(self) -> str:
        return " | ".join(repr(part) for part in self.parts)


@dataclass(frozen=True, repr=False)
class Not(Mask):
    """``~inner``: allowed where the inner mask forbids."""

    inner: Mask

    def __post_init__(self) -> None:
        _set_nesting(self, (self.inner,))

    def __invert__(self) -> Mask:
        return self.inner

    @property
    def relative(self) -> bool:
        return self.inner.relative

    @property
    def needs_check(self) -> bool:
        return self.inner.needs_check

    def evaluate(self, grid: Grid) -> Allowed:
        return ~self.inner.evaluate(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return FULL - self.inner.classify_blocks(blocks)

    @property
    def table_sizes(self) -> dict[str, int]:
        return self.inner.table_sizes

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return self.inner.tables

    def check(self, grid: Grid) -> None:
        self.inner.check(grid)

    @property
    def drawing_size(self) -> int:
        return self.inner.drawing_size

    def __repr__(self) -> str:
        return f"~({self.inner!r})" if isinstance(self.inner, And | Or) else f"~{self.inner!r}"
