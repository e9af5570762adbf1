"""Compute what the page draws: tiles and thumbnails as bytes, and exact weights of a few cells."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from jumok.draw.pooling import split_axis

from .site_maps import SiteMap

TILE_CELLS = 256  # rows and columns of a tile
PIECE_WEIGHTS = 2**18  # weights that are computed at once: they fit into the cache of a core
PREVIEW_ROWS = 2  # rows of each cell that a preview reads
EXACT_TILE_WEIGHTS = 2**24  # of a tile; up to here a preview would not be faster than the exact tile
EXACT_THUMBNAIL_WEIGHTS = 2**23  # of all heads of a site; above, thumbnails are previews
MAX_CACHE_BYTES = 32 * 2**20

Check = Callable[[], None]  # raises an exception that stops the computation
Weights = NDArray[numpy.float32]


class PooledMap(NamedTuple):
    """A map or a part of one, pooled to cells.

    Attributes:
        cells: The largest weight of each cell ``[row, column]``; of a difference the one with the largest size.
        is_preview: Whether only some rows of each cell were read.
    """

    cells: Weights
    is_preview: bool


class TileCache:
    """The tiles that were computed last, limited by their bytes. Only the thread that computes tiles uses it."""

    def __init__(self, limit: int = MAX_CACHE_BYTES) -> None:
        self._limit = limit
        self._tiles: OrderedDict[Any, tuple[bytes, Any]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Any) -> tuple[bytes, Any] | None:
        """Return a tile and its description; None if it is not in the cache."""
        tile = self._tiles.get(key)
        if tile is not None:
            self._tiles.move_to_end(key)
        return tile

    def put(self, key: Any, content: bytes, body: Any) -> None:
        """Store a tile, and remove the oldest beyond the limit."""
        self._tiles[key] = (content, body)
        self._bytes += len(content)
        while self._bytes > self._limit:
            _, (oldest, _) = self._tiles.popitem(last=False)
            self._bytes -= len(oldest)


def count_levels(queries: int, keys: int) -> int:
    """Return the number of levels of a map: at the last one, it fits into one tile.

    >>> count_levels(200, 256), count_levels(257, 10), count_levels(16384, 16384)
    (1, 2, 7)
    """
    cells = -(-max(queries, keys) // TILE_CELLS)
    return 1 + (cells - 1).bit_length()


def compute_tile(
    maps: Sequence[SiteMap],
    head: int,
    level: int,
    row: int,
    column: int,
    *,
    preview: bool,
    skip_first: bool,
    check: Check,
) -> PooledMap:
    """Compute one tile of at most 256 x 256 cells, as ``TilesAsk`` describes; ``check`` is called between pieces."""
    size = 2**level
    span = TILE_CELLS * size
    rows = list(range(row * span, min((row + 1) * span, maps[0].queries), size))
    columns = list(range(column * span, min((column + 1) * span, maps[0].keys), size))
    row_end = min((row + 1) * span, maps[0].queries)
    column_end = min((column + 1) * span, maps[0].keys)
    is_large = (row_end - rows[0]) * (column_end - columns[0]) > EXACT_TILE_WEIGHTS
    is_preview = preview and is_large and size > PREVIEW_ROWS
    rows_per_cell = PREVIEW_ROWS if is_preview else None
    cells = pool_cells(
        maps, head, [*rows, row_end], [*columns, column_end], rows_per_cell, check, skip_first=skip_first
    )
    return PooledMap(cells, is_preview)


def compute_thumbnails(site_map: SiteMap, size: int, check: Check) -> tuple[NDArray[numpy.uint8], bool]:
    """Pool the maps of all heads of an attention, as bytes ``[head, row, column]``; also return whether only some rows
    were read."""
    rows = [*split_axis(site_map.queries, size), site_map.queries]
    columns = [*split_axis(site_map.keys, size), site_map.keys]
    weights = site_map.heads * site_map.queries * site_map.keys
    rows_per_cell = None
    if weights > EXACT_THUMBNAIL_WEIGHTS:
        rows_per_cell = max(1, EXACT_THUMBNAIL_WEIGHTS // (site_map.heads * (len(rows) - 1) * site_map.keys))
    heads = [pool_cells([site_map], head, rows, columns, rows_per_cell, check) for head in range(site_map.heads)]
    largest_cell = max(end - begin for begin, end in pairwise(rows))
    return encode_weights(numpy.stack(heads)), rows_per_cell is not None and rows_per_cell < largest_cell


def pool_cells(
    maps: Sequence[SiteMap],
    head: int,
    row_edges: Sequence[int],
    column_edges: Sequence[int],
    rows_per_cell: int | None,
    check: Check,
    *,
    skip_first: bool = False,
) -> Weights:
    """Pool a rectangle of a map to cells, piece by piece.

    Args:
        maps: One map; or two, whose difference (second minus first) is pooled.
        row_edges: The first query of each row of cells, and the end.
        column_edges: The first key of each column of cells, and the end.
        rows_per_cell: Read only this many rows in the middle of each cell; None reads all.
        skip_first: Whether the weights of the first key count as 0.
    """
    pooled = numpy.zeros((len(row_edges) - 1, len(column_edges) - 1), numpy.float32)
    width = column_edges[-1] - column_edges[0]
    step = max(1, PIECE_WEIGHTS // width)
    columns = slice(column_edges[0], column_edges[-1])
    column_starts = numpy.array(column_edges[:-1]) - column_edges[0]
    is_plain = len(column_starts) == width  # no columns to pool
    for begin, end, first_cell, starts in _list_pieces(row_edges, rows_per_cell, step):
        check()
        piece = _read_piece(maps, head, slice(begin, end), columns)
        if piece is None:
            continue
        if skip_first and columns.start == 0:
            piece = piece.copy()  # it may be a view of a table that the model returned
            piece[:, 0] = 0
        if not is_plain:
            piece = _reduce(piece, column_starts, 1, is_signed=len(maps) > 1)
        if len(starts) < len(piece):
            piece = _reduce(piece, starts, 0, is_signed=len(maps) > 1)
        cells = pooled[first_cell : first_cell + len(piece)]
        numpy.copyto(cells, piece, where=numpy.abs(piece) > numpy.abs(cells))
    return pooled


def encode_weights(weights: Weights) -> NDArray[numpy.uint8]:
    """Return weights from 0 to 1 as bytes: 255 * sqrt(weight)."""
    return numpy.rint(255 * numpy.sqrt(numpy.clip(numpy.nan_to_num(weights), 0, 1))).astype(numpy.uint8)


def encode_differences(differences: Weights) -> NDArray[numpy.uint8]:
    """Return differences of weights as bytes: 128 + 127 * sign(d) * sqrt(|d|)."""
    differences = numpy.nan_to_num(differences)
    roots = numpy.sign(differences) * numpy.sqrt(numpy.clip(numpy.abs(differences), 0, 1))
    return numpy.rint(128 + 127 * roots).astype(numpy.uint8)


def read_values(maps: Sequence[SiteMap], head: int, rows: slice, columns: slice) -> Weights:
    """Return exact weights of one map, or the second of two maps minus the first."""
    weights = [site_map.read_tile(head, rows, columns).numpy() for site_map in maps]
    return numpy.ascontiguousarray(weights[0] if len(weights) == 1 else weights[1] - weights[0], numpy.float32)


def read_column(maps: Sequence[SiteMap], head: int, key: int, check: Check) -> Weights:
    """Return a complete column of a map, piece by piece: a few rows are computed at a time."""
    step = max(1, PIECE_WEIGHTS // maps[0].keys)
    parts = []
    for begin in range(0, maps[0].queries, step):
        check()
        rows = slice(begin, min(begin + step, maps[0].queries))
        parts.append(read_values(maps, head, rows, slice(key, key + 1))[:, 0])
    return numpy.concatenate(parts)


def _list_pieces(
    row_edges: Sequence[int], rows_per_cell: int | None, step: int
) -> list[tuple[int, int, int, NDArray[numpy.int64]]]:
    """Return the pieces of rows to read: begin, end, the first cell, and where its cells begin inside the piece."""
    pieces = []
    if rows_per_cell is not None:
        for cell, (begin, end) in enumerate(pairwise(row_edges)):
            count = min(rows_per_cell, end - begin)
            first = begin + (end - begin - count) // 2
            pieces.append((first, first + count, cell, numpy.zeros(1, numpy.int64)))
        return pieces
    edges = numpy.array(row_edges)
    for begin in range(row_edges[0], row_edges[-1], step):
        end = min(begin + step, row_edges[-1])
        first_cell = int(numpy.searchsorted(edges, begin, side="right")) - 1
        last_cell = int(numpy.searchsorted(edges, end, side="left"))
        starts = numpy.maximum(edges[first_cell:last_cell] - begin, 0)
        pieces.append((begin, end, first_cell, starts))
    return pieces


def _read_piece(maps: Sequence[SiteMap], head: int, rows: slice, columns: slice) -> Weights | None:
    """Return the weights of a piece; None if its queries may attend to none of its keys."""
    bounds = [site_map.bound_keys(rows) for site_map in maps]
    begin = max(columns.start, min(first for first, _ in bounds))
    end = min(columns.stop, max(last for _, last in bounds))
    if begin >= end:
        return None
    if (begin, end) == (columns.start, columns.stop):
        return read_values(maps, head, rows, columns)
    weights = numpy.zeros((rows.stop - rows.start, columns.stop - columns.start), numpy.float32)
    weights[:, begin - columns.start : end - columns.start] = read_values(maps, head, rows, slice(begin, end))
    return weights


def _reduce(weights: Weights, starts: NDArray[numpy.int64], axis: int, is_signed: bool) -> Weights:
    """Return the largest number of each part of an axis; of signed numbers the one with the largest size."""
    highest: Weights = numpy.maximum.reduceat(weights, starts, axis=axis)
    if not is_signed:
        return highest
    lowest: Weights = numpy.minimum.reduceat(weights, starts, axis=axis)
    return numpy.where(highest >= -lowest, highest, lowest)
