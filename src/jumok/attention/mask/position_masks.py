"""Masks that are functions of the positions alone: values that can be hashed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.axes import Allowed
from jumok.errors import ShapeError

from .base import FULL, BlockClasses, Mask, classify, ranges_meet


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """key <= query: nobody sees the future."""

    relative = True
    needs_check = False

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key <= grid.query

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return classify(blocks.key_low <= blocks.query_high, blocks.key_high <= blocks.query_low)

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and grid.highest("key") <= grid.lowest("query")

    def __repr__(self) -> str:
        return "causal"


@dataclass(frozen=True, repr=False)
class Window(Mask):
    """|query - key| < size: with ``causal`` that is ``size`` keys, the query's own included."""

    size: int
    relative = True
    needs_check = False

    def evaluate(self, grid: Grid) -> Allowed:
        return (grid.query - grid.key).abs() < self.size

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        # the nearest and the farthest pair of the two intervals
        nearest = torch.maximum(blocks.query_low - blocks.key_high, blocks.key_low - blocks.query_high)
        farthest = torch.maximum(blocks.query_high - blocks.key_low, blocks.key_high - blocks.query_low)
        return classify(nearest < self.size, farthest < self.size)

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

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key < self.size

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return classify(blocks.key_low < self.size, blocks.key_high < self.size)

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

    def evaluate(self, grid: Grid) -> Allowed:
        return _among(grid.query, self.positions) | _among(grid.key, self.positions)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        queries = _among(blocks.queries, self.positions)
        keys = _among(blocks.keys, self.positions)
        some = queries.any(-1)[:, None, :, None] | keys.any(-1)[:, None, None, :]
        every = queries.all(-1)[:, None, :, None] | keys.all(-1)[:, None, None, :]
        return classify(some, every)

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

    def evaluate(self, grid: Grid) -> Allowed:
        if self.count >= self.length:
            return (grid.key < self.length) & (grid.query == grid.query)
        allowed = torch.zeros_like(grid.key, dtype=torch.bool)
        for drawn in self._drawn(grid.query):
            allowed = allowed | (drawn == grid.key)
        return allowed

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        if self.count >= self.length:
            return classify(blocks.key_low < self.length, blocks.key_high < self.length)
        low, high = blocks.key_low, blocks.key_high
        some = torch.zeros_like(low, dtype=torch.bool)
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

    def evaluate(self, grid: Grid) -> Allowed:
        same = torch.ones((), dtype=torch.bool, device=grid.key.device)
        for of_query, of_key in zip(self._block(grid.query), self._block(grid.key), strict=True):
            same = same & (of_query == of_key)
        return same

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        reach = torch.full((), FULL, dtype=torch.int8, device=blocks.keys.device)
        for query, key in zip(self._block(blocks.queries), self._block(blocks.keys), strict=True):
            query, key = query[:, None, :, None], key[:, None, None, :]
            meet = ranges_meet(query.amin(-1), query.amax(-1), key.amin(-1), key.amax(-1))
            reach = torch.minimum(reach, meet)
        return reach

    def _block(self, position: Tensor) -> list[Tensor]:
        axes = [position // self.grid[1], position % self.grid[1]] if self.grid else [position]
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


@dataclass(frozen=True, repr=False)
class Edge(Mask):
    """Exactly these cells; None = all. Cutting an edge is ``& ~edge(...)``."""

    query: tuple[int, ...] | None
    key: tuple[int, ...] | None
    head: tuple[int, ...] | None
    batch: tuple[int, ...] | None

    def evaluate(self, grid: Grid) -> Allowed:
        allowed = torch.ones_like(grid.key, dtype=torch.bool)
        for name in ("query", "key", "head", "batch"):
            wanted = getattr(self, name)
            if wanted is not None:
                allowed = allowed & _among(getattr(grid, name), wanted)
        return allowed

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        reach = torch.full((1, 1, 1, 1), FULL, dtype=torch.int8, device=blocks.keys.device)
        if self.query is not None:
            inside = _among(blocks.queries, self.query)
            reach = torch.minimum(reach, classify(inside.any(-1), inside.all(-1))[:, None, :, None])
        if self.key is not None:
            inside = _among(blocks.keys, self.key)
            reach = torch.minimum(reach, classify(inside.any(-1), inside.all(-1))[:, None, None, :])
        if self.head is not None:
            reach = torch.minimum(reach, _among(blocks.grid.head, self.head).to(torch.int8) * FULL)
        if self.batch is not None:
            reach = torch.minimum(reach, _among(blocks.grid.batch, self.batch).to(torch.int8) * FULL)
        return reach

    def covers(self, grid: Grid) -> bool:
        return self.query is None and self.key is None and self.head is None and self.batch is None

    def check(self, grid: Grid) -> None:
        for name, named, there in (("head", self.head, grid.heads), ("batch row", self.batch, grid.batches)):
            if named is not None and named[-1] >= len(there):
                raise ShapeError(f"mask.edge names {name} {named[-1]}, but there are {len(there)}, counted from 0")

    def extent(self) -> int:
        return max((*(self.query or ()), *(self.key or ()), 5)) + 3

    def __repr__(self) -> str:
        named = ((name, getattr(self, name)) for name in ("query", "key", "head", "batch"))
        said = [f"{name}={list(at) if len(at) > 1 else at[0]}" for name, at in named if at is not None]
        return f"edge({', '.join(said)})"


def _among(places: Tensor, wanted: tuple[int, ...]) -> Tensor:
    if len(wanted) > 8 and places.dim():  # one place alone: inside a compiled kernel, which has no isin
        return torch.isin(places, torch.tensor(wanted, device=places.device))
    found = torch.zeros_like(places, dtype=torch.bool)  # a few comparisons also run inside a compiled kernel
    for one in wanted:
        found = found | (places == one)
    return found
