"""Masks: who may attend to whom. Boolean, True = may attend; values that compose with ``&``, ``|`` and ``~``.

A mask is a predicate on (batch, head, query position, key position). It is never a tensor until a backend asks
for a tile of it, and because it reads *positions*, a decoding step with a cache needs no other mask.

>>> from jumok.attention import mask
>>> longformer = mask.window(2) | mask.global_at([0])
>>> print(mask.causal & longformer)
causal & (window(2) | global_at([0]))
■ · · · · · · ·
■ ■ · · · · · ·
■ ■ ■ · · · · ·
■ · ■ ■ · · · ·
■ · · ■ ■ · · ·
■ · · · ■ ■ · ·
■ · · · · ■ ■ ·
■ · · · · · ■ ■
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from jaxtyping import Bool, Int8
from torch import Tensor

from jumok.axes import Allowed
from jumok.errors import ArgumentError, ShapeError

from .grid import Blocks, Grid

# What a mask says of a whole block of cells. Kleene's three-valued logic: & is min, | is max, ~ is 2 - x.
NOWHERE, SOMEWHERE, EVERYWHERE = 0, 1, 2
Reach = Int8[Tensor, "#batch #head #query_block #key_block"]


class Mask:
    """What every mask can do. Subclasses say ``allowed`` (each cell) and ``reach`` (whole blocks at once)."""

    #: Does it depend on query position - key position alone? Then equal tiles need evaluating once.
    relative: bool = False

    def allowed(self, grid: Grid) -> Allowed:
        """True where the query may attend to the key; broadcasts to [batch, head, query, key]."""
        raise NotImplementedError

    def reach(self, blocks: Blocks) -> Reach:
        """NOWHERE or EVERYWHERE only where that is certain for every cell of the block."""
        raise NotImplementedError

    def covers(self, grid: Grid) -> bool:
        """Is it known, from ranges alone and without reading a tensor, that every cell is allowed?"""
        return False

    def limits(self) -> dict[str, int]:
        """How far the tables of this mask go on each axis (batch, head, query, key); none, no entry."""
        return {}

    def check(self, grid: Grid) -> None:
        """Raise ShapeError where a table of this mask does not cover the grid."""
        name = repr(self).partition("(")[0]
        for axis, limit in self.limits().items():
            if axis in ("batch", "head"):
                count = len(grid.batches if axis == "batch" else grid.heads)
                if limit not in (1, count):
                    raise ShapeError(f"mask.{name} has {limit} on the {axis} axis, but the query has {count}")
            elif grid.highest(axis) >= limit:
                raise ShapeError(
                    f"mask.{name} covers {limit} {axis} positions, but there is a {axis} at {grid.highest(axis)}"
                )

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

        >>> causal.dense(queries=[1], keys=3)
        tensor([[[[ True,  True, False]]]])
        """
        grid = Grid(range(batch), range(heads), _places(queries), _places(keys), device)
        self.check(grid)
        return self.allowed(grid).expand(grid.shape).clone()

    def __and__(self, other: Mask) -> Mask:
        return And(self, _mask(other)) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        return Or(self, _mask(other)) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return self.inner if isinstance(self, Not) else Not(self)

    def __bool__(self) -> NoReturn:
        # "causal and window(3)" would silently be window(3).
        raise TypeError("a mask has no truth value; compose masks with & | ~, not with and, or, not")

    def __str__(self) -> str:
        from .mask_text import draw  # a drawing parses nothing, but it lives with the words of masks

        return draw(self)


def _places(given: int | Sequence[int] | Tensor) -> range | Tensor:
    if isinstance(given, Tensor):
        return given
    return range(given) if isinstance(given, int) else torch.tensor(list(given), dtype=torch.long)


def _mask(value: object) -> Mask:
    if not isinstance(value, Mask):
        raise TypeError(f"a mask was expected, not {type(value).__name__}")
    return value


def _kleene(some: Tensor, every: Tensor) -> Tensor:
    return some.to(torch.int8) + every.to(torch.int8)


def _tighter(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
    return {axis: min(limits[axis] for limits in (one, two) if axis in limits) for axis in {**one, **two}}


def _ranges_meet(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Reach of "equal": certain where all four are one number, impossible where the ranges are apart."""
    some = (low <= other_high) & (other_low <= high)
    every = (low == high) & (other_low == other_high) & (low == other_low)
    return _kleene(some, every)


# -- composition ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class And(Mask):
    left: Mask
    right: Mask

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.left.relative and self.right.relative

    def allowed(self, grid: Grid) -> Allowed:
        return self.left.allowed(grid) & self.right.allowed(grid)

    def reach(self, blocks: Blocks) -> Reach:
        return torch.minimum(self.left.reach(blocks), self.right.reach(blocks))

    def covers(self, grid: Grid) -> bool:
        return self.left.covers(grid) and self.right.covers(grid)

    def limits(self) -> dict[str, int]:
        return _tighter(self.left.limits(), self.right.limits())

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def extent(self) -> int:
        return max(self.left.extent(), self.right.extent())

    def __repr__(self) -> str:
        return " & ".join(f"({part!r})" if isinstance(part, Or) else repr(part) for part in (self.left, self.right))


@dataclass(frozen=True, repr=False)
class Or(Mask):
    left: Mask
    right: Mask

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.left.relative and self.right.relative

    def allowed(self, grid: Grid) -> Allowed:
        return self.left.allowed(grid) | self.right.allowed(grid)

    def reach(self, blocks: Blocks) -> Reach:
        return torch.maximum(self.left.reach(blocks), self.right.reach(blocks))

    def covers(self, grid: Grid) -> bool:
        return self.left.covers(grid) or self.right.covers(grid)

    def limits(self) -> dict[str, int]:
        return _tighter(self.left.limits(), self.right.limits())

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def extent(self) -> int:
        return max(self.left.extent(), self.right.extent())

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@dataclass(frozen=True, repr=False)
class Not(Mask):
    inner: Mask

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.inner.relative

    def allowed(self, grid: Grid) -> Allowed:
        return ~self.inner.allowed(grid)

    def reach(self, blocks: Blocks) -> Reach:
        return EVERYWHERE - self.inner.reach(blocks)

    def limits(self) -> dict[str, int]:
        return self.inner.limits()

    def check(self, grid: Grid) -> None:
        self.inner.check(grid)

    def extent(self) -> int:
        return self.inner.extent()

    def __repr__(self) -> str:
        return f"~({self.inner!r})" if isinstance(self.inner, And | Or) else f"~{self.inner!r}"


# -- functions of the positions alone ----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """key <= query: nobody sees the future."""

    relative = True

    def allowed(self, grid: Grid) -> Allowed:
        return grid.key <= grid.query

    def reach(self, blocks: Blocks) -> Reach:
        return _kleene(blocks.key_low <= blocks.query_high, blocks.key_high <= blocks.query_low)

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and grid.highest("key") <= grid.lowest("query")

    def __repr__(self) -> str:
        return "causal"


@dataclass(frozen=True, repr=False)
class Window(Mask):
    """|query - key| < size: with ``causal`` that is ``size`` keys, the query's own included."""

    size: int
    relative = True

    def allowed(self, grid: Grid) -> Allowed:
        return (grid.query - grid.key).abs() < self.size

    def reach(self, blocks: Blocks) -> Reach:
        # the nearest and the farthest pair of the two intervals
        nearest = torch.maximum(blocks.query_low - blocks.key_high, blocks.key_low - blocks.query_high)
        farthest = torch.maximum(blocks.query_high - blocks.key_low, blocks.key_high - blocks.query_low)
        return _kleene(nearest < self.size, farthest < self.size)

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and (
            max(grid.highest("query") - grid.lowest("key"), grid.highest("key") - grid.lowest("query")) < self.size
        )

    def extent(self) -> int:
        return self.size + 3

    def __repr__(self) -> str:
        return f"window({self.size})"


@dataclass(frozen=True, repr=False)
class Prefix(Mask):
    """key < size: everybody sees the beginning. A prefix language model is ``prefix(n) | causal``."""

    size: int

    def allowed(self, grid: Grid) -> Allowed:
        return grid.key < self.size

    def reach(self, blocks: Blocks) -> Reach:
        return _kleene(blocks.key_low < self.size, blocks.key_high < self.size)

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and grid.highest("key") < self.size

    def extent(self) -> int:
        return self.size + 4

    def __repr__(self) -> str:
        return f"prefix({self.size})"


@dataclass(frozen=True, repr=False)
class GlobalAt(Mask):
    """query in positions, or key in positions: a few tokens see all and are seen by all (Longformer, 2020)."""

    positions: tuple[int, ...]

    def allowed(self, grid: Grid) -> Allowed:
        return _among(grid.query, self.positions) | _among(grid.key, self.positions)

    def reach(self, blocks: Blocks) -> Reach:
        queries = _among(blocks.queries, self.positions)
        keys = _among(blocks.keys, self.positions)
        some = queries.any(-1)[:, None, :, None] | keys.any(-1)[:, None, None, :]
        every = queries.all(-1)[:, None, :, None] | keys.all(-1)[:, None, None, :]
        return _kleene(some, every)

    def extent(self) -> int:
        return max(self.positions, default=0) + 4

    def __repr__(self) -> str:
        return f"global_at({list(self.positions)})"


@dataclass(frozen=True, repr=False)
class RandomKeys(Mask):
    """``count`` keys drawn for each query (BigBird, 2020): a pure function of (seed, query position)."""

    count: int
    seed: int
    length: int

    def allowed(self, grid: Grid) -> Allowed:
        if self.count >= self.length:
            return (grid.key < self.length) & (grid.query == grid.query)
        allowed = torch.zeros((), dtype=torch.bool, device=grid.key.device)
        for drawn in self._drawn(grid.query):
            allowed = allowed | (drawn == grid.key)
        return allowed

    def reach(self, blocks: Blocks) -> Reach:
        if self.count >= self.length:
            return _kleene(blocks.key_low < self.length, blocks.key_high < self.length)
        low, high = blocks.key_low, blocks.key_high
        some = torch.zeros((), dtype=torch.bool, device=low.device)
        for drawn in self._drawn(blocks.queries):  # [batch, query block, place]
            place = drawn[:, None, :, :, None]
            some = some | ((low.unsqueeze(-2) <= place) & (place <= high.unsqueeze(-2))).any(-2)
        return some.to(torch.int8)

    def _drawn(self, query: Tensor) -> list[Tensor]:
        """Floyd's sampling: ``count`` distinct keys for each query, every set of keys as likely as another."""
        drawn: list[Tensor] = []
        for turn in range(self.count):
            upper = self.length - self.count + turn
            pick = (_mixed(self.seed, query, turn) >> 1 & 0x7FFFFFFFFFFFFFFF) % (upper + 1)
            for earlier in drawn:
                # a key drawn before gives way to the newest one, which nobody can have drawn yet
                pick = torch.where(pick == earlier, torch.full_like(pick, upper), pick)
            drawn.append(pick)
        return drawn

    def extent(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"random_keys({self.count}, {self.seed}, {self.length})"


def _signed(number: int) -> int:
    """The int64 with the same bits: torch multiplies modulo 2**64, but reads constants as signed."""
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number


def _mixed(seed: int, query: Tensor, turn: int) -> Tensor:
    """splitmix64's finaliser (Steele, Lea and Flood 2014) over seed, query position and turn."""

    def shifted(bits: Tensor, count: int) -> Tensor:
        return (bits >> count) & ((1 << (64 - count)) - 1)  # logical, where torch's shift keeps the sign

    bits = query * _signed(0xBF58476D1CE4E5B9) + _signed(seed * 0x9E3779B97F4A7C15 + turn * 0x94D049BB133111EB)
    bits = (bits ^ shifted(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shifted(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ shifted(bits, 31)


@dataclass(frozen=True, repr=False)
class BlocksOf(Mask):
    """Same block on every axis; positions on a grid are read row by row (Swin, 2021)."""

    size: tuple[int, ...]
    shift: tuple[int, ...]
    grid: tuple[int, ...]  # () on a line

    def allowed(self, grid: Grid) -> Allowed:
        same = torch.ones((), dtype=torch.bool, device=grid.key.device)
        for of_query, of_key in zip(self._block(grid.query), self._block(grid.key), strict=True):
            same = same & (of_query == of_key)
        return same

    def reach(self, blocks: Blocks) -> Reach:
        reach = torch.full((), EVERYWHERE, dtype=torch.int8, device=blocks.keys.device)
        for query, key in zip(self._block(blocks.queries), self._block(blocks.keys), strict=True):
            query, key = query[:, None, :, None], key[:, None, None, :]
            meet = _ranges_meet(query.amin(-1), query.amax(-1), key.amin(-1), key.amax(-1))
            reach = torch.minimum(reach, meet)
        return reach

    def _block(self, position: Tensor) -> list[Tensor]:
        if self.grid:
            axes = [position // self.grid[1], position % self.grid[1]]
        else:
            axes = [position]
        return [(axis - shift) // size for axis, size, shift in zip(axes, self.size, self.shift, strict=True)]

    def limits(self) -> dict[str, int]:
        cells = self.grid[0] * self.grid[1] if self.grid else 0
        return {"query": cells, "key": cells} if self.grid else {}

    def extent(self) -> int:
        return self.grid[0] * self.grid[1] if self.grid else 2 * self.size[0] + self.shift[0]

    def __repr__(self) -> str:
        if self.grid:
            return f"blocks({self.size}, grid={self.grid}, shift={self.shift})"
        return f"blocks({self.size[0]}, shift={self.shift[0]})" if self.shift[0] else f"blocks({self.size[0]})"


Coordinate = int | tuple[int, ...] | None


@dataclass(frozen=True, repr=False)
class Edge(Mask):
    """Exactly these cells; None = all. Cutting an edge is ``& ~edge(...)``."""

    query: tuple[int, ...] | None
    key: tuple[int, ...] | None
    head: tuple[int, ...] | None
    batch: tuple[int, ...] | None

    def allowed(self, grid: Grid) -> Allowed:
        allowed = torch.ones((), dtype=torch.bool, device=grid.key.device)
        for name in ("query", "key", "head", "batch"):
            wanted = getattr(self, name)
            if wanted is not None:
                allowed = allowed & _among(getattr(grid, name), wanted)
        return allowed.reshape((1,) * (4 - allowed.dim()) + tuple(allowed.shape)) if grid.key.dim() else allowed

    def reach(self, blocks: Blocks) -> Reach:
        reach = torch.full((1, 1, 1, 1), EVERYWHERE, dtype=torch.int8, device=blocks.keys.device)
        if self.query is not None:
            inside = _among(blocks.queries, self.query)
            reach = torch.minimum(reach, _kleene(inside.any(-1), inside.all(-1))[:, None, :, None])
        if self.key is not None:
            inside = _among(blocks.keys, self.key)
            reach = torch.minimum(reach, _kleene(inside.any(-1), inside.all(-1))[:, None, None, :])
        if self.head is not None:
            reach = torch.minimum(reach, _among(blocks.grid.head, self.head).to(torch.int8) * EVERYWHERE)
        if self.batch is not None:
            reach = torch.minimum(reach, _among(blocks.grid.batch, self.batch).to(torch.int8) * EVERYWHERE)
        return reach

    def covers(self, grid: Grid) -> bool:
        return self.query is None and self.key is None and self.head is None and self.batch is None

    def extent(self) -> int:
        return max((*(self.query or ()), *(self.key or ()), 5)) + 3

    def __repr__(self) -> str:
        named = ((name, getattr(self, name)) for name in ("query", "key", "head", "batch"))
        said = [f"{name}={list(at) if len(at) > 1 else at[0]}" for name, at in named if at is not None]
        return f"edge({', '.join(said)})"


def _among(places: Tensor, wanted: tuple[int, ...]) -> Tensor:
    if len(wanted) > 8:
        return torch.isin(places, torch.tensor(wanted, device=places.device))
    found = torch.zeros_like(places, dtype=torch.bool)  # a few comparisons also run inside a compiled kernel
    for one in wanted:
        found = found | (places == one)
    return found


# -- tables -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class PaddingLengths(Mask):
    """key < length of the batch's own row: the padding on the right is nobody's to see. Forbids keys only."""

    lengths: tuple[int, ...]

    def allowed(self, grid: Grid) -> Allowed:
        return grid.key < self._length(grid)

    def reach(self, blocks: Blocks) -> Reach:
        lengths = self._length(blocks.grid)
        return _kleene(blocks.key_low < lengths, blocks.key_high < lengths)

    def _length(self, grid: Grid) -> Tensor:
        lengths = torch.tensor(self.lengths, device=grid.key.device)
        return lengths[_row(lengths, grid)]

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and grid.highest("key") < min(self.lengths)

    def limits(self) -> dict[str, int]:
        return {"batch": len(self.lengths)}

    def extent(self) -> int:
        return max(self.lengths) + 2

    def __repr__(self) -> str:
        return f"padding({list(self.lengths)})"


class _Table(Mask):
    """A mask that holds tensors: compared by what is in them, and therefore not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def _tensors(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            torch.equal(one, two) for one, two in zip(self._tensors(), other._tensors(), strict=True)  # type: ignore[attr-defined]
        )


def _row(table: Tensor, grid: Grid) -> Tensor:
    """Which row of a [batch or 1, ...] table each batch entry reads."""
    return grid.batch if table.shape[0] > 1 else torch.zeros_like(grid.batch)


@dataclass(frozen=True, repr=False, eq=False)
class PaddingTable(_Table):
    """table[batch, key]: True = a real token. Padding on either side, or anywhere."""

    table: Bool[Tensor, "batch key"] = field()

    def _tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def allowed(self, grid: Grid) -> Allowed:
        return self.table.to(grid.key.device)[_row(self.table, grid), grid.key]

    def reach(self, blocks: Blocks) -> Reach:
        real = self.table.to(blocks.keys.device)[_row(self.table, blocks.grid).view(-1, 1, 1), blocks.keys]
        return _kleene(real.any(-1), real.all(-1))[:, None, None, :]

    def limits(self) -> dict[str, int]:
        return {"batch": self.table.shape[0], "key": self.table.shape[1]}

    def extent(self) -> int:
        return self.table.shape[1]

    def __repr__(self) -> str:
        return f"padding(bool{list(self.table.shape)})"


@dataclass(frozen=True, repr=False, eq=False)
class Documents(_Table):
    """Same id: several texts packed in one row do not see each other."""

    ids: Tensor  # [batch or 1, position], read by queries
    key_ids: Tensor  # the same tensor, unless queries and keys are of two sequences

    def _tensors(self) -> tuple[Tensor, ...]:
        return (self.ids, self.key_ids)

    def allowed(self, grid: Grid) -> Allowed:
        device = grid.key.device
        of_query = self.ids.to(device)[_row(self.ids, grid), grid.query]
        of_key = self.key_ids.to(device)[_row(self.key_ids, grid), grid.key]
        return of_query == of_key

    def reach(self, blocks: Blocks) -> Reach:
        device = blocks.keys.device
        query = self.ids.to(device)[_row(self.ids, blocks.grid).view(-1, 1, 1), blocks.queries]
        key = self.key_ids.to(device)[_row(self.key_ids, blocks.grid).view(-1, 1, 1), blocks.keys]
        query, key = query[:, None, :, None], key[:, None, None, :]
        return _ranges_meet(query.amin(-1), query.amax(-1), key.amin(-1), key.amax(-1))

    def limits(self) -> dict[str, int]:
        batch = max(self.ids.shape[0], self.key_ids.shape[0])
        return {"batch": batch, "query": self.ids.shape[1], "key": self.key_ids.shape[1]}

    def extent(self) -> int:
        return self.ids.shape[1]

    def __repr__(self) -> str:
        return f"documents({self.ids.tolist() if self.ids.numel() <= 16 else list(self.ids.shape)})"


@dataclass(frozen=True, repr=False, eq=False)
class Given(_Table):
    """table[batch or 1, head or 1, query position, key position], as somebody computed it."""

    table: Bool[Tensor, "batch head query key"]

    def _tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def allowed(self, grid: Grid) -> Allowed:
        table = self.table.to(grid.key.device)
        head = grid.head if table.shape[1] > 1 else torch.zeros_like(grid.head)
        return table[_row(table, grid), head, grid.query, grid.key]

    def reach(self, blocks: Blocks) -> Reach:
        table = self.table.to(blocks.keys.device)
        batch = _row(table, blocks.grid).view(-1, 1, 1, 1, 1, 1)
        head = (blocks.grid.head if table.shape[1] > 1 else torch.zeros_like(blocks.grid.head)).view(1, -1, 1, 1, 1, 1)
        cells = table[batch, head, blocks.queries[:, None, :, :, None, None], blocks.keys[:, None, None, None, :, :]]
        return _kleene(cells.any(-1).any(3), cells.all(-1).all(3))

    def limits(self) -> dict[str, int]:
        return dict(zip(("batch", "head", "query", "key"), self.table.shape, strict=True))

    def extent(self) -> int:
        return max(self.table.shape[2:])

    def __repr__(self) -> str:
        return f"given(bool{list(self.table.shape)})"


# -- the words people write -----------------------------------------------------------------------------------------

causal: Mask = Causal()


def window(size: int) -> Mask:
    """Keys closer than ``size``: with ``causal`` that is ``size`` keys, the query's own included; alone 2*size-1."""
    return Window(_whole("window", size, 1))


def prefix(size: int) -> Mask:
    """The first ``size`` keys."""
    return Prefix(_whole("prefix", size, 0))


def global_at(positions: Iterable[int]) -> Mask:
    """Query or key stands at one of these positions."""
    return GlobalAt(tuple(sorted({_whole("global_at", position, 0) for position in positions})))


def random_keys(count: int, seed: int, length: int) -> Mask:
    """``count`` keys of the first ``length``, drawn for each query; the same for all heads."""
    return RandomKeys(
        _whole("random_keys", count, 0), _whole("the seed of random_keys", seed, 0), _whole("random_keys", length, 1)
    )


def blocks(
    size: int | tuple[int, int], shift: int | tuple[int, int] = 0, grid: tuple[int, int] | None = None
) -> Mask:
    """Same block: ``(position - shift) // size`` is equal, without wrapping around. With ``grid=(rows, columns)``
    positions are read row by row and both axes must agree: ``blocks((7, 7), grid=(56, 56), shift=(3, 3))``."""
    if grid is None:
        if isinstance(size, tuple) or isinstance(shift, tuple):
            raise ArgumentError("blocks with two sizes needs grid=(rows, columns)")
        return BlocksOf((_whole("blocks", size, 1),), (_whole("the shift of blocks", shift, 0),), ())
    sizes = size if isinstance(size, tuple) else (size, size)
    shifts = shift if isinstance(shift, tuple) else (shift, shift)
    if len(sizes) != 2 or len(shifts) != 2 or len(grid) != 2:
        raise ArgumentError(f"blocks on a grid takes pairs; got size {sizes}, shift {shifts}, grid {grid}")
    return BlocksOf(
        tuple(_whole("blocks", one, 1) for one in sizes),
        tuple(_whole("the shift of blocks", one, 0) for one in shifts),
        tuple(_whole("the grid of blocks", one, 1) for one in grid),
    )


def edge(
    query: int | Iterable[int] | None = None,
    key: int | Iterable[int] | None = None,
    head: int | Iterable[int] | None = None,
    batch: int | Iterable[int] | None = None,
) -> Mask:
    """That cell; several numbers make a rectangle, None means all."""

    def several(name: str, given: int | Iterable[int] | None) -> tuple[int, ...] | None:
        if given is None:
            return None
        numbers = given if isinstance(given, Iterable) else (given,)
        found = tuple(sorted({_whole(f"the {name} of edge", number, 0) for number in numbers}))
        if not found:
            raise ArgumentError(f"edge got an empty list for {name}; leave it out to mean all")
        return found

    return Edge(several("query", query), several("key", key), several("head", head), several("batch", batch))


def padding(real: Sequence[int] | Tensor) -> Mask:
    """Forbids the keys that are padding: from lengths (padding on the right), or from bool[batch, key], True = real."""
    if isinstance(real, Tensor) and real.dtype == torch.bool:
        if real.dim() != 2:
            raise ShapeError(f"padding takes bool[batch, key] or lengths[batch], not bool{list(real.shape)}")
        return PaddingTable(real)
    if isinstance(real, Tensor):
        if real.dim() != 1 or real.is_floating_point():
            raise ShapeError(
                f"padding takes bool[batch, key] or whole lengths[batch], not {real.dtype}{list(real.shape)}"
            )
        real = real.tolist()
    lengths = tuple(_whole("padding", length, 0) for length in real)
    if not lengths:
        raise ArgumentError("padding needs the length of at least one row")
    return PaddingLengths(lengths)


def documents(ids: Sequence[int] | Tensor, key_ids: Sequence[int] | Tensor | None = None) -> Mask:
    """Query and key have the same id: ids[position] or ids[batch, position]."""

    def table(given: Sequence[int] | Tensor) -> Tensor:
        tensor = given if isinstance(given, Tensor) else torch.tensor(given)
        if tensor.dim() not in (1, 2) or tensor.is_floating_point():
            raise ShapeError(f"documents takes whole ids[position] or ids[batch, position], not {tensor.dtype}"
                             f"{list(tensor.shape)}")
        return tensor if tensor.dim() == 2 else tensor[None]

    of_query = table(ids)
    return Documents(of_query, of_query if key_ids is None else table(key_ids))


def given(table: Tensor) -> Mask:
    """A boolean tensor, True = may attend: [query, key] or [batch or 1, head or 1, query, key]."""
    if not isinstance(table, Tensor) or table.dtype != torch.bool:
        kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise ArgumentError(f"mask.given takes a boolean tensor, True = may attend, not {kind}; numbers to add are a bias")
    if table.dim() not in (2, 4):
        raise ShapeError(f"mask.given takes [query, key] or [batch, head, query, key], not {list(table.shape)}")
    return Given(table if table.dim() == 4 else table[None, None])


def parse(text: str) -> Mask:
    """The mask that this text means: ``parse("causal & (window(4) | global_at([0]))")``. Runs nothing."""
    from .mask_text import parse as parse_text

    return parse_text(text)


def _whole(name: str, number: object, least: int) -> int:
    try:
        whole = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"{name} takes whole numbers, not {number!r}") from None
    if whole < least or isinstance(number, bool):
        raise ArgumentError(f"{name} takes whole numbers of at least {least}, not {number!r}")
    return whole
