"""Dynamic time warping: assign the columns of a table to its rows, in order, so that the sum of the cells is largest.

The method is that of Sakoe and Chiba 1978, "Dynamic programming algorithm optimization for spoken word recognition".
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def find_row_starts(rewards: Float[Tensor, "row column"]) -> list[int]:
    """Return the column at which the best path enters each row.

    A path leads from the first cell of the first row to the last cell of the last row. Its steps go one column to the
    right, one row down, or both. The best path is the one with the largest sum of cells.

    Args:
        rewards: The table; at least one row and one column, finite.

    Returns:
        For each row its first column. The first one is 0, and none is smaller than the one before.

    >>> find_row_starts(torch.tensor([[5.0, 5.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 5.0]]))
    [0, 2, 3]
    """
    cells = rewards.detach().to("cpu", torch.float64)
    nothing = cells.new_full((1,), -torch.inf)
    best = cells[0].cumsum(0)  # the largest sum of a path to each cell of the current row
    entries: list[Tensor] = []  # of each row after the first: the column where the best path to a cell enters the row
    is_diagonal: list[Tensor] = []
    for row in cells[1:]:
        # Inside a row, a path only goes to the right. So the best path to column j enters at the column k <= j with the
        # largest (best sum above k) - (cells before k), which is a running maximum: no loop over columns is needed.
        total = row.cumsum(0)
        from_left = torch.cat([nothing, best[:-1]])
        is_diagonal.append(from_left >= best)
        above = torch.maximum(from_left, best) - (total - row)
        largest, entry = above.cummax(0)
        entries.append(entry)
        best = total + largest

    starts = [0]
    column = cells.shape[1] - 1
    for entry, diagonal in zip(reversed(entries), reversed(is_diagonal), strict=True):
        column = int(entry[column])
        starts.insert(1, column)
        column -= int(diagonal[column])
    return starts
