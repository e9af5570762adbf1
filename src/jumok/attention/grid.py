"""Grids: the cells [batch, head, query, key] on which masks and biases are evaluated, with their positions.

A tile of a grid is a grid too, so the same mask serves a full forward pass, one block of the blocked backend, one
decoding step with a cache, and one window of a map on the screen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from jumok.errors import ShapeError

Positions = range | Tensor  # a range, or integers [length] or [batch, length]


def convert_positions(positions: Positions, device: torch.device | None) -> Tensor:
    """Return positions as a tensor."""
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    return positions.to(device)


def find_bounds(positions: Positions) -> tuple[int, int]:
    """Return the smallest and the largest position; 0 and -1 if there are none."""
    if not count_positions(positions):
        return 0, -1
    if isinstance(positions, range):
        return min(positions[0], positions[-1]), max(positions[0], positions[-1])
    return int(positions.min()), int(positions.max())


def count_positions(positions: Positions) -> int:
    """Return how many positions there are per batch row."""
    if not isinstance(positions, range):
        return positions.shape[-1]
    if positions.step == 1 and positions.start < positions.stop:
        return positions.stop - positions.start  # torch.compile knows no len() of a range with a symbolic end
    return len(positions)


class Grid:
    """The cells ``batches x heads x queries x keys``."""

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
        # Cached by hand: before Python 3.12, functools.cached_property takes a lock, which costs microseconds and
        # which torch.compile cannot trace.
        self._query: Tensor | None = None
        self._key: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of batch rows, heads, queries and keys."""
        return (
            count_positions(self.batches),
            count_positions(self.heads),
            count_positions(self.query_positions),
            count_positions(self.key_positions),
        )

    # The four coordinates are shaped to broadcast to [batch, head, query, key].
    @property
    def batch(self) -> Tensor:
        """Batch indices, ``[batch, 1, 1, 1]``."""
        return convert_positions(self.batches, self.device).view(-1, 1, 1, 1)

    @property
    def head(self) -> Tensor:
        """Head indices, ``[1, head, 1, 1]``."""
        return convert_positions(self.heads, self.device).view(1, -1, 1, 1)

    @property
    def query(self) -> Tensor:
        """Query positions, ``[batch or 1, 1, query, 1]``."""
        if self._query is None:
            positions = convert_positions(self.query_positions, self.device)
            rows = positions.shape[0] if positions.dim() == 2 else 1
            self._query = positions.view(rows, 1, positions.shape[-1], 1)
        return self._query

    @property
    def key(self) -> Tensor:
        """Key positions, ``[batch or 1, 1, 1, key]``."""
        if self._key is None:
            positions = convert_positions(self.key_positions, self.device)
            rows = positions.shape[0] if positions.dim() == 2 else 1
            self._key = positions.view(rows, 1, 1, positions.shape[-1])
        return self._key

    @property
    def contiguous(self) -> bool:
        """Whether query and key positions are ranges with step 1."""
        return (
            isinstance(self.query_positions, range)
            and isinstance(self.key_positions, range)
            and self.query_positions.step == 1
            and self.key_positions.step == 1
        )

    def tile(self, queries: slice, keys: slice) -> Grid:
        """Return the part of this grid in these rows and columns, which are indices, not positions."""
        query_positions = _slice_positions(self.query_positions, queries)
        key_positions = _slice_positions(self.key_positions, keys)
        return Grid(self.batches, self.heads, query_positions, key_positions, self.device)

    def max_position(self, axis: str) -> int:
        """Return the largest position on this axis, or -1 on an empty axis."""
        return find_bounds(self.query_positions if axis == "query" else self.key_positions)[1]

    def min_position(self, axis: str) -> int:
        """Return the smallest position on this axis, or 0 on an empty axis."""
        return find_bounds(self.query_positions if axis == "query" else self.key_positions)[0]

    def check_covered(self, axis: str, limit: int, name: str | Callable[[], str]) -> None:
        """Raise ShapeError if a position on this axis lies outside ``0 .. limit - 1`` of the table of this name."""
        lowest, highest = find_bounds(self.query_positions if axis == "query" else self.key_positions)
        if lowest < 0 or highest >= limit:
            position = highest if highest >= limit else lowest
            name = name if isinstance(name, str) else name()
            raise ShapeError(f"{name} covers {limit} {axis} positions, but there is a {axis} at {position}")


def read_cells(table: Tensor, grid: Grid, first_query: int = 0, first_key: int = 0) -> Tensor:
    """Return the cells of a grid from a table ``[batch, head, query, key]`` that begins at these positions; an axis of
    size 1 holds the same for all its indices."""
    indices = (grid.batch, grid.head, grid.query - first_query, grid.key - first_key)
    cells = [index if size > 1 else torch.zeros_like(index) for index, size in zip(indices, table.shape, strict=True)]
    return table.to(grid.key.device)[tuple(cells)]


def _slice_positions(positions: Positions, indices: slice) -> Positions:
    return positions[indices] if isinstance(positions, range) else positions[..., indices]


class BlockGrid:
    """A grid cut into blocks of ``query_size`` x ``key_size`` cells, for classifying blocks at once."""

    def __init__(self, grid: Grid, query_size: int, key_size: int) -> None:
        self.grid = grid
        self.queries = _cut_into_blocks(grid.query.flatten(1), query_size)  # [batch or 1, block, query in block]
        self.keys = _cut_into_blocks(grid.key.flatten(1), key_size)

        # The smallest and largest position of each block, shaped to broadcast to [batch, head, query block, key block]
        self.query_low, self.query_high = (bound[:, None, :, None] for bound in self.queries.aminmax(dim=-1))
        self.key_low, self.key_high = (bound[:, None, None, :] for bound in self.keys.aminmax(dim=-1))


def _cut_into_blocks(positions: Tensor, size: int) -> Tensor:
    """Reshape [batch, length] to [batch, block, size].

    The last block is filled up with its own last position, which changes neither its smallest nor its largest
    position nor the set of its positions.
    """
    missing = -positions.shape[-1] % size
    if missing:
        positions = torch.cat([positions, positions[..., -1:].expand(-1, missing)], -1)
    return positions.view(positions.shape[0], -1, size)
