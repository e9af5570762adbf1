"""Pool large maps to fewer cells, so that no large weight disappears: a cell is the maximum of what it stands for.

``pool_cells`` reads a map piece by piece and never stores all of it; the lens and the page use it. ``pool_patterns``
pools maps that are in memory, with their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import NDArray

from jumok.reporting import Progress

PIECE_WEIGHTS = 2**18  # weights that are read at once: they fit into the cache of a core
PIECE_KEYS = 2048  # keys that are read at once; fewer cost more in calls than they save

Weights = NDArray[numpy.float32]
ReadPiece = Callable[[slice, slice], Weights]  # the weights of some queries and keys


class PooledMap(NamedTuple):
    """A map, or the maps of several heads, that fit into an image."""

    weights: Float[ndarray, "*head row column"]
    queries: list[str]
    keys: list[str]
    caption: str  # what a cell stands for; empty if nothing was pooled


class PooledCells(NamedTuple):
    """The cells of a map: the largest weight of each (of signed numbers the largest size), and on request the mean."""

    largest: Weights
    mean: Weights


class _Piece(NamedTuple):
    """A part of an axis that is read at once: its positions, its first cell, and where its cells begin inside of it."""

    positions: slice
    first_cell: int
    starts: list[int]

    @property
    def cells(self) -> slice:
        return slice(self.first_cell, self.first_cell + len(self.starts))


def pool_cells(
    read: ReadPiece,
    row_edges: Sequence[int],
    column_edges: Sequence[int],
    *,
    bound_keys: Callable[[slice], tuple[int, int]],
    complete_rows: bool,
    rows_per_cell: int | None = None,
    is_signed: bool = False,
    with_mean: bool = False,
    progress: Progress | None = None,
) -> PooledCells:
    """Pool a rectangle of a map to cells, piece by piece.

    Args:
        row_edges: The first query of each row of cells, and the end.
        column_edges: The first key of each column of cells, and the end.
        bound_keys: Returns the first and the end of the keys that queries may attend to; other weights are 0.
        complete_rows: Whether a narrow piece costs as much as complete rows.
        rows_per_cell: Read only this many rows in the middle of each cell; None reads all.
        is_signed: Whether the numbers are differences of weights.
        with_mean: Whether to compute the means too; otherwise they are 0.
        progress: Called with the finished and the total number of rows.
    """
    shape = len(row_edges) - 1, len(column_edges) - 1
    largest, sums = numpy.zeros(shape, numpy.float32), numpy.zeros(shape, numpy.float64)
    width = column_edges[-1] - column_edges[0]
    rows_per_piece = max(1, PIECE_WEIGHTS // max(1, width if complete_rows else min(width, PIECE_KEYS)))
    if rows_per_cell is None:
        row_pieces = list(_split(row_edges, row_edges[0], row_edges[-1], rows_per_piece))
    else:
        row_pieces = []
        for cell, (begin, end) in enumerate(pairwise(row_edges)):
            count = min(rows_per_cell, end - begin)
            first = begin + (end - begin - count) // 2
            row_pieces.append(_Piece(slice(first, first + count), cell, [0]))
    rows_read = numpy.zeros(shape[0], numpy.int64)
    for rows in row_pieces:
        count = rows.positions.stop - rows.positions.start
        rows_read[rows.cells] += numpy.diff([*rows.starts, count])
        keys_per_piece = width if complete_rows else max(PIECE_KEYS, PIECE_WEIGHTS // count)
        first, end = bound_keys(rows.positions)
        for keys in _split(column_edges, max(first, column_edges[0]), min(end, column_edges[-1]), keys_per_piece):
            piece = read(rows.positions, keys.positions)
            reduced = _find_largest(piece, rows.starts, keys.starts, is_signed)
            cells = largest[rows.cells, keys.cells]
            numpy.copyto(cells, reduced, where=numpy.abs(reduced) > numpy.abs(cells))
            if with_mean:
                sums[rows.cells, keys.cells] += _reduce(numpy.add, piece, rows.starts, keys.starts)
        if progress is not None:
            progress(rows.positions.stop - row_edges[0], row_edges[-1] - row_edges[0])
    mean = sums / (rows_read[:, None] * numpy.diff(column_edges))
    return PooledCells(largest, mean.astype(numpy.float32))


def _split(edges: Sequence[int], begin: int, end: int, step: int) -> Iterator[_Piece]:
    """Yield the pieces of an axis between two positions."""
    cells = numpy.array(edges)
    for start in range(begin, end, step):
        stop = min(start + step, end)
        first_cell = int(numpy.searchsorted(cells, start, side="right")) - 1
        last_cell = int(numpy.searchsorted(cells, stop, side="left"))
        yield _Piece(slice(start, stop), first_cell, numpy.maximum(cells[first_cell:last_cell] - start, 0).tolist())


def _find_largest(
    weights: ndarray, row_starts: Sequence[int], column_starts: Sequence[int], is_signed: bool = False
) -> ndarray:
    """Return the largest number of each cell; of signed numbers the one with the largest size."""
    highest = _reduce(numpy.maximum, weights, row_starts, column_starts)
    if not is_signed:
        return highest
    lowest = _reduce(numpy.minimum, weights, row_starts, column_starts)
    return numpy.where(highest >= -lowest, highest, lowest)


def _reduce(
    operation: numpy.ufunc, weights: ndarray, row_starts: Sequence[int], column_starts: Sequence[int]
) -> ndarray:
    """Combine the numbers ``[..., query, key]`` of each cell by an operation."""
    rows, columns = weights.shape[-2:]
    if len(row_starts) < rows:
        # not reduceat, which is 20 times as slow over any axis but the last
        parts = [operation.reduce(weights[..., slice(*ends), :], axis=-2) for ends in pairwise([*row_starts, rows])]
        weights = numpy.stack(parts, axis=-2)
    if len(column_starts) < columns:
        weights = operation.reduceat(weights, column_starts, axis=-1)
    return weights


def pool_patterns(
    weights: Float[ndarray, "*head query key"],
    queries: Sequence[str],
    keys: Sequence[str],
    limit: int,
    *,
    first_apart: bool = False,
) -> PooledMap:
    """Shrink maps to at most ``limit`` rows and columns by maximum pooling.

    Drawing a large map directly would drop most of its cells, and with them single large weights. The labels of a
    pooled axis are the positions at which its rows or columns begin; with ``first_apart``, the first key keeps its own.
    """
    row_starts = split_axis(weights.shape[-2], limit)
    column_starts = split_axis(weights.shape[-1], limit, first_apart=first_apart)
    return PooledMap(
        _find_largest(weights, row_starts, column_starts),
        label_parts(queries, row_starts),
        label_parts(keys, column_starts, first_apart=first_apart),
        describe_pooling(len(queries), row_starts, len(keys), column_starts),
    )


def split_axis(count: int, limit: int, *, first_apart: bool = False) -> list[int]:
    """Split positions into at most ``limit`` parts of similar size, and return the first position of each part.

    >>> split_axis(10, 4), split_axis(10, 4, first_apart=True), split_axis(3, 4)
    ([0, 2, 5, 7], [0, 1, 4, 7], [0, 1, 2])
    """
    if count <= limit:
        return list(range(count))
    if first_apart:
        return [0, *(1 + start for start in split_axis(count - 1, limit - 1))]
    return [count * part // limit for part in range(limit)]


def label_parts(labels: Sequence[str], starts: list[int], *, first_apart: bool = False) -> list[str]:
    """Return the labels of an axis, or the first position of each part if positions were pooled.

    >>> label_parts(["<s>", "a", "b", "c", "d"], [0, 1, 3], first_apart=True)
    ['<s>', '1', '3']
    """
    if len(starts) == len(labels):
        return list(labels)
    positions = [str(start) for start in starts]
    return [labels[0], *positions[1:]] if first_apart else positions


def describe_pooling(queries: int, row_starts: list[int], keys: int, column_starts: list[int]) -> str:
    """Return the caption of a pooled map; "" if nothing was pooled."""
    ends = ([*row_starts, queries], [*column_starts, keys])
    rows, columns = (max(end - start for start, end in pairwise(edges)) for edges in ends)
    if rows == columns == 1:
        return ""
    return f"each cell is the maximum of up to {rows} x {columns} weights; the axes count positions"
