"""Attention inside shifted windows of a two-dimensional grid, with a learned bias per distance (Liu et al. 2021, Swin).

The shift rolls the grid, so that all windows keep their size; windows at the edge then hold patches that are not
neighbours, and a mask separates them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.attention import MultiHead, mask
from jumok.attention.bias import BucketBias
from jumok.attention.grid import Grid
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError


class WindowAttention(MultiHead):
    """Self-attention inside the windows of a grid; each window is one row of the batch in ``attend()``."""

    def __init__(self, width: int, heads: int, window: int, shifted: bool, *, bias: bool, dropout: float) -> None:
        super().__init__(width, heads, bias=bias, output_bias=True, dropout=dropout)
        self.window = window
        self.shifted = shifted
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def forward(  # type: ignore[override]  # a grid has neither source nor cache, and builds its own mask and bias
        self, inputs: axes.Hidden, *, grid: tuple[int, int]
    ) -> Tensor:
        """Return the output; with ``weights=True`` the call also returns [batch x windows, head, patch, patch]."""
        window, shift = self.select_window_and_shift(grid)
        rows, columns = grid
        padded = functional.pad(inputs.unflatten(1, grid), (0, 0, 0, -columns % window, 0, -rows % window))
        windows = _split_windows(padded.roll((-shift, -shift), (1, 2)), window)
        padded_grid = (padded.shape[1], padded.shape[2])
        neighbours = build_neighbour_mask(padded_grid, window, shift, len(inputs)) if shift else None
        distance_bias = WindowDistance(self.table, self.window, window)
        output = super().forward(windows.flatten(0, 1), mask=neighbours, bias=distance_bias)

        windows = output.unflatten(0, windows.shape[:2])
        split = windows.unflatten(2, (window, window)).unflatten(1, (-1, padded_grid[1] // window))
        joined = split.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # the inverse of _split_windows
        return joined.roll((shift, shift), (1, 2))[:, :rows, :columns].flatten(1, 2)

    def convert_projection(self, projection: str) -> MultiHead:
        """Refuse: the table of distances belongs to this class."""
        raise ArgumentError("the projection of WindowAttention cannot be converted: its table would be lost")

    def select_window_and_shift(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Return window and shift for a grid; one that is no larger than a window is not shifted."""
        if min(grid) <= self.window:
            return min(grid), 0
        return self.window, self.window // 2 if self.shifted else 0


@dataclass(frozen=True, eq=False)
class WindowDistance(BucketBias):
    """A bucket for each distance (rows, columns) between two patches of a window: ``(2 window - 1)^2`` of them."""

    name = "the bias of this window attention"
    window: int
    side: int  # rows and columns of the actual windows; smaller ones use a part of the table

    def compute_buckets(self, grid: Grid) -> Tensor:
        rows = grid.query // self.side - grid.key // self.side + self.window - 1
        columns = grid.query % self.side - grid.key % self.side + self.window - 1
        return rows * (2 * self.window - 1) + columns

    def check(self, grid: Grid) -> None:
        super().check(grid)
        for axis in ("query", "key"):
            grid.check_covered(axis, self.side**2, f"a window of {self.side} x {self.side}")


def list_window_patches(grid: tuple[int, int], window: int, shift: int = 0) -> Int[Tensor, "window patch"]:
    """Return the index of every patch in every window.

    >>> list_window_patches((4, 4), 2, 1)[0].tolist()
    [5, 6, 9, 10]
    """
    patches = torch.arange(grid[0] * grid[1]).view(1, *grid, 1)
    return _split_windows(patches.roll((-shift, -shift), (1, 2)), window)[0, :, :, 0]


def build_neighbour_mask(grid: tuple[int, int], window: int, shift: int, batch: int) -> Mask:
    """Return a mask for the windows of a rolled grid: only patches that were neighbours before it was rolled. On the
    grid itself this is ``mask.blocks((window, window), grid=grid, shift=(shift, shift))``.
    """
    patches = list_window_patches(grid, window, shift)
    rolled_rows, rolled_columns = patches // grid[1] < shift, patches % grid[1] < shift
    return mask.documents((2 * rolled_rows.long() + rolled_columns.long()).repeat(batch, 1))


def _split_windows(
    grid: Shaped[Tensor, "batch row column width"], window: int
) -> Shaped[Tensor, "batch window patch width"]:
    return grid.unflatten(2, (-1, window)).unflatten(1, (-1, window)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
