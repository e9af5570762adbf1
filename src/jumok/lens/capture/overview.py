"""Pool a head's map of weights to fewer cells, tile by tile."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jumok.draw.pooling import split_axis
from jumok.errors import ArgumentError, Progress
from jumok.threads import use_threads

if TYPE_CHECKING:
    from .model_capture import Capture

MAX_WEIGHTS = 2**22  # weights that are in memory at once while a map is pooled
SMALLEST_BLOCK = 2048  # keys; smaller blocks cost more in calls than they save
BLOCK_WEIGHTS = 2**17  # weights that are computed at once: 512 KB, which fit into the cache of a core


class Overview(NamedTuple):
    """A head's map of weights, pooled to fewer cells.

    Attributes:
        largest: The largest weight of each patch ``[row, column]``.
        mean: The mean weight of each patch ``[row, column]``.
    """

    largest: Tensor
    mean: Tensor


def pool_weights(
    capture: Capture,
    layer: int | str,
    head: int,
    size: int,
    batch: int = 0,
    first_apart: bool = False,
    *,
    rows_per_cell: int | None = None,
    progress: Progress | None = None,
) -> Overview:
    """Pool a head's map to at most ``size`` x ``size`` cells.

    Args:
        layer: The layer's number or site name.
        size: The largest number of rows and columns.
        first_apart: Whether the first key keeps a column of its own.
        rows_per_cell: Compute only this many rows in the middle of each cell, for a preview; default: all rows.
        progress: Called with the finished and the total number of rows; an exception that it raises stops the
            computation.
    """
    smallest = 2 if first_apart else 1
    if size < smallest:
        raise ArgumentError(f"size must be at least {smallest}, not {size}")
    if rows_per_cell is not None and rows_per_cell < 1:
        raise ArgumentError(f"rows_per_cell must be at least 1, not {rows_per_cell}")
    attention = capture.attention(layer)
    row_ends = [*split_axis(attention.queries, size)[1:], attention.queries]
    column_ends = [*split_axis(attention.keys, size, first_apart=first_apart)[1:], attention.keys]
    columns = len(column_ends)
    device = attention.device
    column_sizes = torch.tensor(_measure_parts(column_ends), device=device)
    column_of_key = torch.repeat_interleave(torch.arange(columns, device=device), column_sizes)

    largest = torch.zeros(len(row_ends), columns, device=device)
    mean = torch.zeros(len(row_ends), columns, device=device)
    # one thread: these small products gain nothing from a second one, and beside a busy program they lose a lot
    with use_threads(1) if device.type == "cpu" else nullcontext():
        begin = 0
        for row, end in enumerate(row_ends):
            first, last = _select_rows(begin, end, rows_per_cell)
            key_sums, key_maxima = _reduce_rows(capture, layer, head, first, last, batch)
            mean[row].index_add_(0, column_of_key, key_sums).div_(column_sizes * (last - first))
            largest[row].scatter_reduce_(0, column_of_key, key_maxima, "amax")
            if progress is not None:
                progress(end, attention.queries)
            begin = end
    return Overview(largest, mean)


def _select_rows(begin: int, end: int, count: int | None) -> tuple[int, int]:
    """Return the first and the end of the rows to compute: all of them, or some in the middle."""
    if count is None or count >= end - begin:
        return begin, end
    first = begin + (end - begin - count) // 2
    return first, first + count


def _reduce_rows(
    capture: Capture, layer: int | str, head: int, first: int, last: int, batch: int
) -> tuple[Tensor, Tensor]:
    """Return the sum and the maximum of some rows for each key, block by block; keys that they may not read get 0."""
    attention = capture.attention(layer)
    sums = torch.zeros(attention.keys, device=attention.device)
    maxima = torch.zeros(attention.keys, device=attention.device)
    is_complete = attention.needs_full_rows
    block = attention.keys if is_complete else max(SMALLEST_BLOCK, BLOCK_WEIGHTS // (last - first))
    step = max(1, MAX_WEIGHTS // max(1, block))
    for start in range(first, last, step):
        queries = slice(start, min(start + step, last))
        left, right = (0, attention.keys) if is_complete else attention.bound_keys(queries)
        for low in range(left, right, block):
            keys = slice(low, min(low + block, right))
            tile = capture.tile(layer, head, queries, keys, batch).float()
            sums[keys] += tile.sum(0)
            maxima[keys] = torch.maximum(maxima[keys], tile.amax(0))
    return sums, maxima


def _measure_parts(ends: list[int]) -> list[int]:
    """Return the sizes of parts from their ends."""
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
