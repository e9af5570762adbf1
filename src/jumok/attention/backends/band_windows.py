"""The windows of a band: which adjacent keys each block of queries reads, and which of these cells the mask allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
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


class SequenceGroup(NamedTuple):
    """Sequences, numbered batch row by batch row and head by head, to which the mask allows the same cells."""

    sequences: slice
    batches: range
    heads: range


class Piece(NamedTuple):
    """Blocks of queries with their cells, ``bool[block or 1, query, key]``; 1 if all blocks have the same cells."""

    blocks: slice
    allowed: Tensor


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of one call of ``attend()``: block s of the queries reads the keys from ``first + s * block`` on.

    Args:
        grid: All cells; their positions are ranges with step 1.
        mask: The mask, whose band has both bounds.
        block: Queries per block.
        width: Keys per window.
        first: Index of the first key of window 0; negative if the window begins before the keys.
        keys: Indices of the keys inside the band of some query.
    """

    grid: Grid
    mask: Mask
    block: int
    width: int
    first: int
    keys: range

    @staticmethod
    def plan(mask: Mask, grid: Grid) -> Windows | None:
        """Return the windows of a mask, or None if it is no band or if its band is too wide for windows.

        Args:
            mask: The mask.
            grid: All cells, with their positions.
        """
        _, _, queries, keys = grid.shape
        behind, ahead = mask.band
        if behind is None or ahead is None or behind + ahead < 0 or not (grid.contiguous and queries and keys):
            return None

        span = behind + ahead + 1  # keys in the band of one query
        block = min(max(-(-span // (2 * BLOCK_STEP)) * BLOCK_STEP, MIN_BLOCK), MAX_BLOCK)
        width = span + block - 1
        if width > keys:  # the windows would hold more cells than the dense grid
            return None

        offset = grid.min_position("query") - grid.min_position("key")
        first, end = offset - behind, offset + queries + ahead
        return Windows(grid, mask, block, width, first, range(max(first, 0), max(min(end, keys), 0)))

    @property
    def block_count(self) -> int:
        """Number of blocks of queries; the last one may be incomplete."""
        return -(-self.grid.shape[2] // self.block)

    @property
    def part_count(self) -> int:
        """Number of blocks that a window of keys overlaps; the last one may be incomplete."""
        return -(-self.width // self.block)

    def group_sequences(self) -> list[SequenceGroup]:
        """Return the sequences in groups for which the mask is evaluated once."""
        batch, head, _, _ = self.grid.shape
        # The shape of one cell tells whether the mask depends on the batch row and on the head.
        rows, columns = self.mask.evaluate(self.grid.tile(slice(0, 1), slice(0, 1))).shape[:2]
        if columns > 1:
            return [
                SequenceGroup(slice(row * head + column, row * head + column + 1), range(row, row + 1), _single(column))
                for row in range(batch)
                for column in range(head)
            ]
        if rows > 1:
            return [SequenceGroup(slice(row * head, (row + 1) * head), _single(row), range(1)) for row in range(batch)]
        return [SequenceGroup(slice(0, batch * head), range(1), range(1))]

    def evaluate_mask(self, group: SequenceGroup) -> list[Piece]:
        """Return the allowed cells of all windows.

        Args:
            group: The sequences.
        """
        relative = [part for part in self.mask.conjuncts if part.relative]
        other = [part for part in self.mask.conjuncts if not part.relative]
        shared = self._evaluate_relative(relative)
        if other:
            return [self._evaluate_blocks(range(self.block_count), shared, other, group)]

        # Inside, all blocks have the same cells; at both ends, windows reach beyond the keys.
        start = min(max(-(-(self.keys.start - self.first) // self.block), 0), self.block_count)
        stop = min((self.keys.stop - self.first - self.width) // self.block + 1, self.grid.shape[2] // self.block)
        stop = max(stop, start)
        ends = (range(start), range(stop, self.block_count))
        pieces = [self._evaluate_blocks(blocks, shared, [], group) for blocks in ends if blocks]
        return [*pieces, Piece(slice(start, stop), shared)] if start < stop else pieces

    def _evaluate_relative(self, parts: list[Mask]) -> Tensor:
        """Evaluate masks that are the same for all blocks, on the cells of block 0."""
        query_start = self.grid.min_position("query")
        key_start = self.grid.min_position("key") + self.first
        queries, keys = range(query_start, query_start + self.block), range(key_start, key_start + self.width)
        grid = Grid(range(1), range(1), queries, keys, self.grid.device)
        everything = torch.ones(1, self.block, self.width, dtype=torch.bool, device=self.grid.device)
        return reduce(torch.logical_and, (part.evaluate(grid)[0] for part in parts), everything)

    def _evaluate_blocks(self, blocks: range, shared: Tensor, parts: list[Mask], group: SequenceGroup) -> Piece:
        device, (_, _, queries, keys) = self.grid.device, self.grid.shape
        starts = torch.arange(blocks.start, blocks.stop, device=device)[:, None] * self.block
        query_indices = starts + torch.arange(self.block, device=device)  # [block, query]
        key_indices = starts + torch.arange(self.first, self.first + self.width, device=device)  # [block, key]
        is_key = (key_indices >= self.keys.start) & (key_indices < self.keys.stop)
        allowed = shared & is_key[:, None, :] & (query_indices < queries)[:, :, None]
        if not parts:
            return Piece(slice(blocks.start, blocks.stop), allowed)

        # Blocks take the place of batch rows: positions may differ from row to row. Tables end with the last token.
        query_positions = query_indices.clamp_max(queries - 1) + self.grid.min_position("query")
        key_positions = key_indices.clamp(0, keys - 1) + self.grid.min_position("key")
        grid = Grid(group.batches, group.heads, query_positions, key_positions, device)
        allowed = reduce(torch.logical_and, (part.evaluate(grid)[:, 0] for part in parts), allowed)
        return Piece(slice(blocks.start, blocks.stop), allowed)

    def find_unread_keys(self, pieces: list[Piece]) -> Tensor:
        """Return which entries of the padded keys no query reads, ``bool[padded key]``.

        Args:
            pieces: The allowed cells of all windows.
        """
        length = self.block_count + self.part_count - 1
        is_read = torch.zeros(length, self.block, dtype=torch.bool, device=self.grid.device)
        for blocks, allowed in pieces:
            window_is_read = allowed.any(-2)  # [block or 1, key]
            for part in range(self.part_count):
                columns = window_is_read[:, part * self.block : (part + 1) * self.block]
                is_read[blocks.start + part : blocks.stop + part, : columns.shape[1]] |= columns
        return ~is_read.flatten()


def _single(index: int) -> range:
    return range(index, index + 1)
