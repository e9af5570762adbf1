"""Which cells of [batch, head, query, key] are asked for, and where those queries and keys stand.

Masks and biases are functions of a grid. A tile is a grid too, so the same mask serves a whole forward, one
block of the blocked backend, one decoding step with a cache, and one window of a map on the screen.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from jumok.errors import ShapeError

Positions = range | Tensor  # a range, or integers [length] or [batch, length]


def count_positions(positions: Positions) -> int:
    return len(positions) if isinstance(positions, range) else positions.shape[-1]


def check_positions(positions: object, length: int, batch: int, axis: str) -> Positions:
    """The positions as given; refused when they do not fit the tensors."""
    if isinstance(positions, range):
        if len(positions) != length:
            raise ShapeError(
                f"{axis}_positions has {len(positions)} entries, but there are {length} on the {axis} axis"
            )
        return positions
    if not isinstance(positions, Tensor) or positions.is_floating_point() or positions.dtype == torch.bool:
        raise ShapeError(f"{axis}_positions must be a range or an integer tensor, not {_kind(positions)}")
    if (
        positions.dim() not in (1, 2)
        or positions.shape[-1] != length
        or (positions.dim() == 2 and positions.shape[0] not in (1, batch))
    ):
        raise ShapeError(
            f"{axis}_positions has shape {list(positions.shape)}; needed is [{length}] or [{batch}, {length}] "
            f"(batch {batch}, {length} on the {axis} axis)"
        )
    return positions.long()  # narrower numbers would wrap around in the arithmetic of masks


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


class Grid:
    """The cells ``batches x heads x queries x keys``; batches and heads by index, the others by position."""

    def __init__(
        self,
        batches: range,
        heads: range,
        query_positions: Positions,
        key_positions: Positions,
        device: torch.device | None = None,
    ) -> None:
        self.batches = batches
        self.heads = heads
        self.query_positions = query_positions
        self.key_positions = key_positions
        self.device = device
        # Kept when first asked for. Not functools.cached_property: before Python 3.12 it takes a lock, which costs
        # microseconds and which a compiler cannot read.
        self._query: Tensor | None = None
        self._key: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (
            len(self.batches),
            len(self.heads),
            count_positions(self.query_positions),
            count_positions(self.key_positions),
        )

    # The four coordinates, each shaped so that together they broadcast to [batch, head, query, key].
    @property
    def batch(self) -> Tensor:
        return self._tensor(self.batches).view(len(self.batches), 1, 1, 1)

    @property
    def head(self) -> Tensor:
        return self._tensor(self.heads).view(1, len(self.heads), 1, 1)

    @property
    def query(self) -> Tensor:
        if self._query is None:
            places = self._tensor(self.query_positions)
            self._query = places.view(places.shape[0] if places.dim() == 2 else 1, 1, places.shape[-1], 1)
        return self._query

    @property
    def key(self) -> Tensor:
        if self._key is None:
            places = self._tensor(self.key_positions)
            self._key = places.view(places.shape[0] if places.dim() == 2 else 1, 1, 1, places.shape[-1])
        return self._key

    @property
    def contiguous(self) -> bool:
        """Do queries and keys each stand one after another? Then a tile is known by where it starts."""
        return (
            isinstance(self.query_positions, range)
            and isinstance(self.key_positions, range)
            and self.query_positions.step == 1
            and self.key_positions.step == 1
        )

    def tile(self, queries: slice, keys: slice) -> Grid:
        """The part of this grid at these rows and columns (counted in cells, not in positions)."""
        return Grid(
            self.batches,
            self.heads,
            self.query_positions[..., queries]
            if isinstance(self.query_positions, Tensor)
            else self.query_positions[queries],
            self.key_positions[..., keys] if isinstance(self.key_positions, Tensor) else self.key_positions[keys],
            self.device,
        )

    def highest(self, axis: str) -> int:
        """The largest position on this axis; -1 where there is none."""
        positions = self.query_positions if axis == "query" else self.key_positions
        if isinstance(positions, range):
            return max(positions[0], positions[-1]) if len(positions) else -1
        return int(positions.max()) if positions.numel() else -1

    def lowest(self, axis: str) -> int:
        """The smallest position on this axis; 0 where there is none."""
        positions = self.query_positions if axis == "query" else self.key_positions
        if isinstance(positions, range):
            return min(positions[0], positions[-1]) if len(positions) else 0
        return int(positions.min()) if positions.numel() else 0

    def check_covered(self, axis: str, limit: int, name: str) -> None:
        """Raise ShapeError where a table of ``limit`` positions is asked for another one."""
        for position in (self.highest(axis), self.lowest(axis)):
            if position >= limit or (position < 0 and count_positions(getattr(self, f"{axis}_positions"))):
                raise ShapeError(f"{name} covers {limit} {axis} positions, but there is a {axis} at {position}")

    def _tensor(self, positions: Positions) -> Tensor:
        if isinstance(positions, range):
            return torch.arange(positions.start, positions.stop, positions.step, device=self.device)
        return positions.to(self.device)


class BlockGrid:
    """A grid cut into blocks of ``query_size`` x ``key_size`` cells: what a mask is asked before any cell is."""

    def __init__(self, grid: Grid, query_size: int, key_size: int) -> None:
        self.grid = grid
        # [batch or 1, block, place in block]; the last block is filled up with its own last position, which
        # changes neither the smallest nor the largest nor which positions occur.
        self.queries = _cut(grid.query.flatten(1), query_size)
        self.keys = _cut(grid.key.flatten(1), key_size)

    # Bounds shaped to broadcast to [batch, head, query block, key block].
    @cached_property
    def query_low(self) -> Tensor:
        return self.queries.amin(-1)[:, None, :, None]

    @cached_property
    def query_high(self) -> Tensor:
        return self.queries.amax(-1)[:, None, :, None]

    @cached_property
    def key_low(self) -> Tensor:
        return self.keys.amin(-1)[:, None, None, :]

    @cached_property
    def key_high(self) -> Tensor:
        return self.keys.amax(-1)[:, None, None, :]


def _cut(places: Tensor, size: int) -> Tensor:
    missing = -places.shape[-1] % size
    if missing:
        places = torch.cat([places, places[..., -1:].expand(-1, missing)], -1)
    return places.view(places.shape[0], -1, size)
