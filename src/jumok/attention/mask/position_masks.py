"""Masks that depend on positions alone, without tensors; they are hashable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.axes import Allowed
from jumok.errors import ArgumentError, ShapeError

from .base import FULL, Band, BlockClasses, Mask, check_integer, classify, classify_equality, mask_function

Indices = int | Iterable[int] | None


@dataclass(frozen=True, repr=False)
class Causal(Mask):
    """key <= query: no query attends to a later key."""

    relative = True
    needs_check = False
    band = Band(behind=None, ahead=0)

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key <= grid.query

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return classify(blocks.key_low <= blocks.query_high, blocks.key_high <= blocks.query_low)

    def allows_all(self, grid: Grid) -> bool:
        return grid.contiguous and grid.max_position("key") <= grid.min_position("query")

    def __repr__(self) -> str:
        return "causal"


causal: Mask = Causal()


@dataclass(frozen=True, repr=False)
class Window(Mask):
    """|query - key| < size."""

    size: int
    relative = True
    needs_check = False

    @property
    def band(self) -> Band:
        return Band(self.size - 1, self.size - 1)

    def evaluate(self, grid: Grid) -> Allowed:
        return (grid.query - grid.key).abs() < self.size

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        nearest = torch.maximum(blocks.query_low - blocks.key_high, blocks.key_low - blocks.query_high)
        farthest = torch.maximum(blocks.query_high - blocks.key_low, blocks.key_high - blocks.query_low)
        return classify(nearest < self.size, farthest < self.size)

    def allows_all(self, grid: Grid) -> bool:
        if not grid.contiguous:
            return False
        largest_behind = grid.max_position("query") - grid.min_position("key")
        largest_ahead = grid.max_position("key") - grid.min_position("query")
        return max(largest_behind, largest_ahead) < self.size

    @property
    def drawing_size(self) -> int:
        return self.size + 3

    def __repr__(self) -> str:
        return f"window({self.size})"


@mask_function("window(64)")
def window(n: int) -> Mask:
    """Allow keys at a distance below ``n``.

    Args:
        n: Distance bound, at least 1. Together with ``causal``, ``n`` keys are allowed, including the query's own
            position; alone, 2n - 1.
    """
    return Window(check_integer("window", n, 1))


@dataclass(frozen=True, repr=False)
class Prefix(Mask):
    """key < size: every query attends to the beginning. A prefix language model uses ``prefix(n) | causal``."""

    size: int

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key < self.size

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        return classify(blocks.key_low < self.size, blocks.key_high < self.size)

    def allows_all(self, grid: Grid) -> bool:
        return grid.contiguous and grid.max_position("key") < self.size

    @property
    def drawing_size(self) -> int:
        return self.size + 4

    def __repr__(self) -> str:
        return f"prefix({self.size})"


@mask_function("prefix(4)")
def prefix(n: int) -> Mask:
    """Allow the first ``n`` keys."""
    return Prefix(check_integer("prefix", n, 0))


@dataclass(frozen=True, repr=False)
class GlobalAt(Mask):
    """query or key in positions: a few tokens attend to all and are attended by all (Longformer, 2020)."""

    positions: tuple[int, ...]

    def evaluate(self, grid: Grid) -> Allowed:
        return _is_among(grid.query, self.positions) | _is_among(grid.key, self.positions)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        queries = _is_among(blocks.queries, self.positions)
        keys = _is_among(blocks.keys, self.positions)
        any_allowed = queries.any(-1)[:, None, :, None] | keys.any(-1)[:, None, None, :]
        all_allowed = queries.all(-1)[:, None, :, None] | keys.all(-1)[:, None, None, :]
        return classify(any_allowed, all_allowed)

    @property
    def drawing_size(self) -> int:
        return max(self.positions, default=0) + 4

    def __repr__(self) -> str:
        return f"global_at({list(self.positions)})"


@mask_function("global_at([0])")
def global_at(positions: int | Iterable[int]) -> Mask:
    """Allow every cell whose query or key is at one of these positions."""
    positions = positions if isinstance(positions, Iterable) else (positions,)
    return GlobalAt(tuple(sorted({check_integer("global_at", position, 0) for position in positions})))


@dataclass(frozen=True, repr=False)
class RandomKeys(Mask):
    """``count`` random keys per query (BigBird, 2020): a pure function of (seed, query position).

    With a ``block`` above 1, queries and keys are cut into blocks, and all queries of a block share ``count`` random
    blocks of keys. As in the paper, only this makes long texts cheap: random keys one by one fall into every tile.
    """

    count: int  # keys per query, or blocks of keys per block of queries
    seed: int
    length: int
    block: int = 1

    @property
    def _key_blocks(self) -> int:
        return -(-self.length // self.block)

    def evaluate(self, grid: Grid) -> Allowed:
        inside = (grid.key < self.length) & (grid.query == grid.query)
        if self.count >= self._key_blocks:
            return inside

        allowed = torch.zeros_like(grid.key, dtype=torch.bool)
        key_block = grid.key // self.block
        for drawn in self._sample_blocks(grid.query):
            allowed = allowed | (drawn == key_block)
        return allowed & inside

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        if self.count >= self._key_blocks:
            return classify(blocks.key_low < self.length, blocks.key_high < self.length)

        low, high = (bound.unsqueeze(-2) // self.block for bound in (blocks.key_low, blocks.key_high))
        any_allowed = torch.zeros_like(blocks.key_low, dtype=torch.bool)
        for drawn in self._sample_blocks(blocks.queries):  # [batch, query block, query in block]
            position = drawn[:, None, :, :, None]
            any_allowed = any_allowed | ((low <= position) & (position <= high)).any(-2)
        return classify(any_allowed, torch.zeros_like(any_allowed))

    def _sample_blocks(self, query: Tensor) -> list[Tensor]:
        """Draw ``count`` distinct blocks of keys per query by Floyd's algorithm: every set is equally likely."""
        draws: list[Tensor] = []
        query_block = query // self.block
        for turn in range(self.count):
            upper = self._key_blocks - self.count + turn
            pick = (_hash_position(self.seed, query_block, turn) >> 1 & 0x7FFFFFFFFFFFFFFF) % (upper + 1)
            for earlier in draws:
                # A repeated key is replaced by the newest one, which no earlier turn can have drawn.
                pick = torch.where(pick == earlier, torch.full_like(pick, upper), pick)
            draws.append(pick)
        return draws

    @property
    def is_traceable(self) -> bool:
        return False  # its integers of 64 bits have no kernel

    @property
    def drawing_size(self) -> int:
        return self.length

    def __repr__(self) -> str:
        block = f", {self.block}" if self.block > 1 else ""
        return f"random_keys({self.count}, {self.seed}, {self.length}{block})"


def _to_signed(number: int) -> int:
    """Return the int64 with the same bits: torch multiplies modulo 2**64, but takes signed constants."""
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number


def _hash_position(seed: int, query: Tensor, turn: int) -> Tensor:
    """Hash seed, query position and turn by the finaliser of splitmix64 (Steele, Lea and Flood 2014)."""

    def shift_right(bits: Tensor, count: int) -> Tensor:
        return (bits >> count) & ((1 << (64 - count)) - 1)  # a logical shift; torch's keeps the sign

    bits = query * _to_signed(0xBF58476D1CE4E5B9) + _to_signed(seed * 0x9E3779B97F4A7C15 + turn * 0x94D049BB133111EB)
    bits = (bits ^ shift_right(bits, 30)) * _to_signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shift_right(bits, 27)) * _to_signed(0x94D049BB133111EB)
    return bits ^ shift_right(bits, 31)


@mask_function("random_keys(3, seed=0, length=64)")
def random_keys(n: int, seed: int, length: int, block: int = 1) -> Mask:
    """Allow ``n`` random keys for each query, the same in all heads.

    Args:
        n: Number of keys per query; with ``block``, number of blocks of keys.
        length: Keys are drawn from positions 0 to ``length - 1``.
        block: Positions per block: the queries of a block share ``n`` random blocks of keys, as in BigBird. A block of
            64 or more lets the ``blocked`` backend skip most of a long text; single keys, the default, do not.
    """
    return RandomKeys(
        check_integer("random_keys", n, 0),
        check_integer("the seed of random_keys", seed, 0, 2**128),
        check_integer("random_keys", length, 1),
        check_integer("the block of random_keys", block, 1),
    )


@dataclass(frozen=True, repr=False)
class BlocksOf(Mask):
    """Same block on every axis; positions on a grid are numbered row by row (Swin, 2021)."""

    size: tuple[int, ...]
    shift: tuple[int, ...]
    grid: tuple[int, ...]

    @property
    def band(self) -> Band:
        # the distance between the first and the last position of a block
        distance = self.size[0] - 1
        if self.grid:
            distance = distance * self.grid[1] + min(self.size[1], self.grid[1]) - 1
        return Band(distance, distance)

    def evaluate(self, grid: Grid) -> Allowed:
        same = torch.ones((), dtype=torch.bool, device=grid.key.device)
        query_blocks = self._compute_block_indices(grid.query)
        key_blocks = self._compute_block_indices(grid.key)
        for query_block, key_block in zip(query_blocks, key_blocks, strict=True):
            same = same & (query_block == key_block)
        return same

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        classes = torch.full((), FULL, dtype=torch.int8, device=blocks.keys.device)
        query_blocks = self._compute_block_indices(blocks.queries)
        key_blocks = self._compute_block_indices(blocks.keys)
        for query, key in zip(query_blocks, key_blocks, strict=True):
            query, key = query[:, None, :, None], key[:, None, None, :]
            equal = classify_equality(query.amin(-1), query.amax(-1), key.amin(-1), key.amax(-1))
            classes = torch.minimum(classes, equal)
        return classes

    def _compute_block_indices(self, position: Tensor) -> list[Tensor]:
        """Return the block index of each position on every axis."""
        coordinates = [position // self.grid[1], position % self.grid[1]] if self.grid else [position]
        return [
            (coordinate - shift) // size
            for coordinate, size, shift in zip(coordinates, self.size, self.shift, strict=True)
        ]

    @property
    def table_sizes(self) -> dict[str, int]:
        if not self.grid:
            return {}
        cells = self.grid[0] * self.grid[1]
        return {"query": cells, "key": cells}

    @property
    def drawing_size(self) -> int:
        return self.grid[0] * self.grid[1] if self.grid else 2 * self.size[0] + self.shift[0]

    def __repr__(self) -> str:
        if self.grid:
            return f"blocks({self.size}, grid={self.grid}, shift={self.shift})"
        return f"blocks({self.size[0]}, shift={self.shift[0]})" if self.shift[0] else f"blocks({self.size[0]})"


@mask_function("blocks(16)")
def blocks(size: int | Sequence[int], shift: int | Sequence[int] = 0, grid: Sequence[int] | None = None) -> Mask:
    """Allow keys in the same block as the query: equal ``(position - shift) // size``, without wrapping around.

    Args:
        size: Positions per block; on a grid, (rows, columns).
        shift: Offset of the first block; on a grid, (rows, columns).
        grid: (rows, columns) of an image whose positions are numbered row by row; then both axes must agree, as in
            ``blocks((7, 7), grid=(56, 56), shift=(3, 3))``. None for a line of positions.
    """
    if grid is None:
        if isinstance(size, Sequence) or isinstance(shift, Sequence):
            raise ArgumentError("blocks with two sizes needs grid=(rows, columns)")
        return BlocksOf((check_integer("blocks", size, 1),), (check_integer("the shift of blocks", shift, 0),), ())

    sizes = size if isinstance(size, Sequence) else (size, size)
    shifts = shift if isinstance(shift, Sequence) else (shift, shift)
    if len(sizes) != 2 or len(shifts) != 2 or len(grid) != 2:
        raise ArgumentError(f"blocks on a grid takes pairs; got size {sizes}, shift {shifts}, grid {grid}")
    return BlocksOf(
        tuple(check_integer("blocks", size, 1) for size in sizes),
        tuple(check_integer("the shift of blocks", shift, 0) for shift in shifts),
        tuple(check_integer("the grid of blocks", side, 1) for side in grid),
    )


@dataclass(frozen=True, repr=False)
class Edge(Mask):
    """The cells of these queries, keys, heads and batch rows."""

    query: tuple[int, ...] | None
    key: tuple[int, ...] | None
    head: tuple[int, ...] | None
    batch: tuple[int, ...] | None

    def evaluate(self, grid: Grid) -> Allowed:
        axes = ((grid.query, self.query), (grid.key, self.key), (grid.head, self.head), (grid.batch, self.batch))
        allowed = torch.ones_like(grid.key, dtype=torch.bool)
        for indices, chosen in axes:
            if chosen is not None:
                allowed = allowed & _is_among(indices, chosen)
        return allowed

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        # [batch, head, query block, key block, index in block], with one index on the axes that have no blocks
        queries, keys = blocks.queries[:, None, :, None], blocks.keys[:, None, None]
        head, batch = blocks.grid.head[..., None], blocks.grid.batch[..., None]
        classes = torch.full((1, 1, 1, 1), FULL, dtype=torch.int8, device=blocks.keys.device)
        for indices, chosen in ((queries, self.query), (keys, self.key), (head, self.head), (batch, self.batch)):
            if chosen is not None:
                inside = _is_among(indices, chosen)
                classes = torch.minimum(classes, classify(inside.any(-1), inside.all(-1)))
        return classes

    def allows_all(self, grid: Grid) -> bool:
        return self.query is None and self.key is None and self.head is None and self.batch is None

    def check(self, grid: Grid) -> None:
        for name, indices, axis in (("head", self.head, grid.heads), ("batch row", self.batch, grid.batches)):
            if indices is not None and indices[-1] >= len(axis):
                raise ShapeError(f"mask.edge names {name} {indices[-1]}, but there are {len(axis)}, counted from 0")

    @property
    def drawing_size(self) -> int:
        return max((*(self.query or ()), *(self.key or ()), 5)) + 3

    def __repr__(self) -> str:
        axes = {"query": self.query, "key": self.key, "head": self.head, "batch": self.batch}
        arguments = [
            f"{name}={list(indices) if len(indices) > 1 else indices[0]}"
            for name, indices in axes.items()
            if indices is not None
        ]
        return f"edge({', '.join(arguments)})"


@mask_function("edge(query=3, key=1)")
def edge(query: Indices = None, key: Indices = None, head: Indices = None, batch: Indices = None) -> Mask:
    """Allow one cell, or the cells of several positions, heads and batch rows; None = all.

    ``mask & ~edge(...)`` forbids them.
    """
    return Edge(
        _sort_indices("query", query),
        _sort_indices("key", key),
        _sort_indices("head", head),
        _sort_indices("batch", batch),
    )


def _sort_indices(name: str, indices: Indices) -> tuple[int, ...] | None:
    if indices is None:
        return None
    numbers = indices if isinstance(indices, Iterable) else (indices,)
    distinct = tuple(sorted({check_integer(f"the {name} of edge", number, 0) for number in numbers}))
    if not distinct:
        raise ArgumentError(f"edge got an empty list for {name}; leave {name} out to mean all")
    return distinct


def _is_among(positions: Tensor, chosen: tuple[int, ...]) -> Tensor:
    """Return whether each position is one of the chosen ones."""
    # A tensor without axes is one cell inside a compiled flex kernel, which has no isin but can compare.
    if len(chosen) > 8 and positions.dim():
        return torch.isin(positions, torch.tensor(chosen, device=positions.device))

    is_chosen = torch.zeros_like(positions, dtype=torch.bool)
    for position in chosen:
        is_chosen = is_chosen | (positions == position)
    return is_chosen
