"""The windows of a band: which adjacent keys each block of queries reads, and which of these cells the mask allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention.grid import Grid
from jumok.attention.mask.base import Mask

# Measured (bench/attend.py): larger blocks make better use of the matrix product, smaller ones compute fewer cells
# outside the band; with half of the band's width, a third of the cells lies outside.
BLOCK_STEP = 64
MIN_BLOCK = 128
MAX_BLOCK = 1024
MAX_CACHED_CELLS = 2**20  # larger masks are evaluated in every call


class SequenceGroup(NamedTuple):
    """Sequences, numbered batch row by batch row and head by head, to which the mask allows the same cells."""

    sequences: slice
    batches: range
    heads: range


class Piece(NamedTuple):
    """Blocks of queries with the mask of their cells."""

    blocks: slice
    added_mask: Tensor  # 0 or -inf, to be added to the scores, [block or 1, query, key]; 1 if all blocks are alike
    is_empty: Tensor  # rows that may attend to no key, bool[block or 1, query]


class WindowMask(NamedTuple):
    """The mask on all windows of a group of sequences."""

    pieces: list[Piece]
    unread: Tensor | None  # the padded keys that no query reads, bool[padded key]; None if every key is read


@dataclass(frozen=True)
class Windows:
    """The windows of one call of ``attend()``: block s of the queries reads the keys from ``first + s * block`` on."""

    mask: Mask
    batch: int
    heads: int
    query_positions: range
    key_positions: range
    device: torch.device | None
    block: int  # queries per block
    width: int  # keys per window
    first: int  # the first key of window 0; negative if the window begins before the keys

    @staticmethod
    def plan(mask: Mask, grid: Grid) -> Windows | None:
        """Return the windows of a mask, or None if it is no band or if its band is too wide for windows."""
        batch, heads, queries, keys = grid.shape
        query_positions, key_positions = grid.query_positions, grid.key_positions
        if not (isinstance(query_positions, range) and isinstance(key_positions, range)):
            return None
        behind, ahead = mask.band
        if behind is None or ahead is None or not (grid.contiguous and batch and queries and keys):
            return None

        span = behind + ahead + 1  # keys in the band of one query
        block = min(max(-(-span // (2 * BLOCK_STEP)) * BLOCK_STEP, MIN_BLOCK), MAX_BLOCK)
        width = span + block - 1
        if width > keys:  # the windows would hold more cells than the dense grid
            return None
        first = query_positions.start - key_positions.start - behind
        return Windows(mask, batch, heads, query_positions, key_positions, grid.device, block, width, first)

    @property
    def block_count(self) -> int:
        """Number of blocks of queries; the last one may be incomplete."""
        return -(-len(self.query_positions) // self.block)

    @property
    def part_count(self) -> int:
        """Number of blocks that a window of keys overlaps; the last one may be incomplete."""
        return -(-self.width // self.block)

    @property
    def padded_length(self) -> int:
        """Number of keys, padded to whole windows and blocks."""
        return (self.block_count + self.part_count - 1) * self.block

    @property
    def keys(self) -> slice:
        """Indices of the keys inside the band of some query."""
        start = min(max(self.first, 0), len(self.key_positions))
        end = self.first + len(self.query_positions) + self.width - self.block
        return slice(start, max(min(end, len(self.key_positions)), start))

    @property
    def padded_keys(self) -> slice:
        """Indices of the same keys among the padded keys."""
        return slice(self.keys.start - self.first, self.keys.stop - self.first)

    def group_sequences(self) -> list[SequenceGroup]:
        """Return the sequences in groups for which the mask is evaluated once."""
        # The shape of one cell tells whether the mask depends on the batch row and on the head.
        batches, heads = range(self.batch), range(self.heads)
        cell = Grid(batches, heads, self.query_positions[:1], self.key_positions[:1], self.device)
        rows, columns = (1, 1) if self.mask.relative else self.mask.evaluate(cell).shape[:2]
        if columns > 1:
            cells = product(batches, heads)
            return [
                SequenceGroup(slice(index, index + 1), range(row, row + 1), range(head, head + 1))
                for index, (row, head) in enumerate(cells)
            ]
        if rows > 1:
            starts = range(0, self.batch * self.heads, self.heads)
            return [
                SequenceGroup(slice(start, start + self.heads), range(row, row + 1), range(1))
                for row, start in enumerate(starts)
            ]
        return [SequenceGroup(slice(0, self.batch * self.heads), range(1), range(1))]

    def evaluate_mask(self, group: SequenceGroup, dtype: torch.dtype) -> WindowMask:
        """Return the mask of all windows."""
        if self.mask.relative:
            is_small = self.block * self.width * (self.part_count + 1) <= MAX_CACHED_CELLS
            return (_evaluate_relative_mask if is_small else _evaluate_relative_mask.__wrapped__)(self, dtype)

        shared = self.evaluate_relative([part for part in self.mask.conjuncts if part.relative])
        absolute = [part for part in self.mask.conjuncts if not part.relative]
        blocks = range(self.block_count)
        return self.finish({blocks: self.evaluate_blocks(blocks, shared, absolute, group)}, dtype)

    def evaluate_relative(self, parts: list[Mask]) -> Tensor:
        """Evaluate masks that are the same for all blocks, ``bool[1, query, key]``."""
        query_start, key_start = self.query_positions.start, self.key_positions.start + self.first
        queries, keys = range(query_start, query_start + self.block), range(key_start, key_start + self.width)
        grid = Grid(range(1), range(1), queries, keys, self.device)
        everything = torch.ones(1, self.block, self.width, dtype=torch.bool, device=self.device)
        return reduce(torch.logical_and, (part.evaluate(grid)[0] for part in parts), everything)

    def evaluate_blocks(self, blocks: range, shared: Tensor, parts: list[Mask], group: SequenceGroup | None) -> Tensor:
        """Evaluate masks that differ from block to block, ``bool[block, query, key]``; ``shared`` is that of all."""
        starts = torch.arange(blocks.start, blocks.stop, device=self.device)[:, None] * self.block
        query_indices = starts + torch.arange(self.block, device=self.device)  # [block, query]
        key_indices = starts + torch.arange(self.first, self.first + self.width, device=self.device)  # [block, key]
        is_key = (key_indices >= self.keys.start) & (key_indices < self.keys.stop)
        is_query = query_indices < len(self.query_positions)
        allowed = shared & (is_key[:, None, :] & is_query[:, :, None])
        if not parts:
            return allowed

        # Blocks take the place of batch rows, whose positions may differ. A table ends with the last token.
        query_positions = query_indices.clamp_max(len(self.query_positions) - 1) + self.query_positions.start
        key_positions = key_indices.clamp(0, len(self.key_positions) - 1) + self.key_positions.start
        assert group is not None
        grid = Grid(group.batches, group.heads, query_positions, key_positions, self.device)
        return reduce(torch.logical_and, (part.evaluate(grid)[:, 0] for part in parts), allowed)

    def finish(self, cells: dict[range, Tensor], dtype: torch.dtype) -> WindowMask:
        """Convert allowed cells, ``bool[block or 1, query, key]``, to numbers to add, and find the keys not read."""
        is_read = torch.zeros(self.padded_length // self.block, self.block, dtype=torch.bool, device=self.device)
        pieces = []
        for blocks, allowed in cells.items():
            window_is_read = allowed.any(-2)  # [block or 1, key]
            for part in range(self.part_count):
                columns = window_is_read[:, part * self.block : (part + 1) * self.block]
                is_read[blocks.start + part : blocks.stop + part, : columns.shape[1]] |= columns
            added_mask = torch.zeros(allowed.shape, dtype=dtype, device=self.device).masked_fill_(
                ~allowed, float("-inf")
            )
            pieces.append(Piece(slice(blocks.start, blocks.stop), added_mask, ~allowed.any(-1)))

        unread = ~is_read.flatten()
        return WindowMask(pieces, unread if bool(unread[self.padded_keys].any()) else None)


@lru_cache(maxsize=8)
def _evaluate_relative_mask(windows: Windows, dtype: torch.dtype) -> WindowMask:
    """Inside, all blocks have the same cells; at both ends, windows reach beyond the keys."""
    shared = windows.evaluate_relative([windows.mask])
    block, count = windows.block, windows.block_count
    start = min(max(-(-(windows.keys.start - windows.first) // block), 0), count)
    stop = (windows.keys.stop - windows.first - windows.width) // block + 1
    stop = max(min(stop, len(windows.query_positions) // block), start)
    cells = {blocks: windows.evaluate_blocks(blocks, shared, [], None) for blocks in (range(start), range(stop, count))}
    cells[range(start, stop)] = shared
    return windows.finish({blocks: allowed for blocks, allowed in cells.items() if blocks}, dtype)
