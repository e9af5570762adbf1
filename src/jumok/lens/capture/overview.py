"""Pool a head's map of weights to fewer cells, tile by tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jumok.draw.pooling import split_axis
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from .model_capture import Capture

MAX_WEIGHTS = 2**22  # weights that are in memory at once while a map is pooled


class Overview(NamedTuple):
    """A head's map of weights, pooled to fewer cells.

    Attributes:
        largest: The largest weight of each patch ``[row, column]``.
        mean: The mean weight of each patch ``[row, column]``.
    """

    largest: Tensor
    mean: Tensor


def pool_weights(
    capture: Capture, layer: int | str, head: int, size: int, batch: int = 0, first_apart: bool = False
) -> Overview:
    """Pool a head's map to at most ``size`` x ``size`` cells.

    Args:
        capture: The capture.
        layer: The layer's number or site name.
        head: The head.
        size: The largest number of rows and columns.
        batch: The batch row.
        first_apart: Whether the first key keeps a column of its own.

    Raises:
        ArgumentError: If the size is too small.
    """
    smallest = 2 if first_apart else 1
    if size < smallest:
        raise ArgumentError(f"size must be at least {smallest}, not {size}")
    attention = capture.attention(layer)
    row_ends = [*split_axis(attention.queries, size)[1:], attention.queries]
    column_ends = [*split_axis(attention.keys, size, first_apart=first_apart)[1:], attention.keys]
    rows, columns = len(row_ends), len(column_ends)
    device = attention.device
    column_sizes = torch.tensor(_measure_parts(column_ends), device=device)
    column_of_key = torch.repeat_interleave(torch.arange(columns, device=device), column_sizes)

    largest = torch.zeros(rows, columns, device=device)
    mean = torch.zeros(rows, columns, device=device)
    step = max(1, MAX_WEIGHTS // max(1, attention.keys))
    begin = 0
    for row, end in enumerate(row_ends):
        for first in range(begin, end, step):
            queries = slice(first, min(first + step, end))
            tile = capture.tile(layer, head, queries, slice(None), batch).float()
            mean[row] += tile.new_zeros(columns).index_add_(0, column_of_key, tile.sum(0))
            largest[row] = largest[row].scatter_reduce(0, column_of_key, tile.amax(0), "amax")
        mean[row] /= column_sizes.float() * (end - begin)
        begin = end
    return Overview(largest, mean)


def _measure_parts(ends: list[int]) -> list[int]:
    """Return the sizes of parts from their ends."""
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
