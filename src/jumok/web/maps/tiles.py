"""Compute what the page draws: tiles and thumbnails as bytes, and exact weights."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy
from numpy.typing import NDArray

from jumok.draw.pooling import PIECE_WEIGHTS, Weights, pool_cells, split_axis
from jumok.web.asks import TilesAsk

from .site_maps import SiteMap

TILE_CELLS = 256  # rows and columns of a tile
PREVIEW_ROWS = 2  # rows of each cell that a preview reads
EXACT_TILE_WEIGHTS = 2**24  # of a tile; up to here a preview would not be faster than the exact tile
EXACT_THUMBNAIL_WEIGHTS = 2**23  # of all heads of a site; above, thumbnails are previews
MAX_CACHE_BYTES = 32 * 2**20

Check = Callable[[], None]  # raises an exception that stops the computation


class TileCache:
    """The tiles that were computed last, limited by their bytes. Only the thread that computes tiles uses it."""

    def __init__(self, limit: int = MAX_CACHE_BYTES) -> None:
        self._limit = limit
        self._tiles: OrderedDict[Any, tuple[Any, bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Any, compute: Callable[[], tuple[Any, bytes]]) -> tuple[Any, bytes]:
        """Return the description and the bytes of a tile; it is computed if it is not in the cache."""
        if key not in self._tiles:
            self._tiles[key] = compute()
            self._bytes += len(self._tiles[key][1])
        self._tiles.move_to_end(key)
        tile = self._tiles[key]
        while self._bytes > self._limit:
            _, (_, oldest) = self._tiles.popitem(last=False)
            self._bytes -= len(oldest)
        return tile


def count_levels(queries: int, keys: int) -> int:
    """Return the number of levels of a map: at the last one, it fits into one tile.

    >>> count_levels(200, 256), count_levels(257, 10), count_levels(16384, 16384)
    (1, 2, 7)
    """
    cells = -(-max(queries, keys) // TILE_CELLS)
    return 1 + (cells - 1).bit_length()


def compute_tile(maps: Sequence[SiteMap], ask: TilesAsk, check: Check) -> tuple[Weights, bool]:
    """Compute a tile of at most 256 x 256 cells, and whether it is a preview, of which only some rows were read;
    ``check`` is called between pieces."""
    size = 2**ask.level
    span = TILE_CELLS * size
    row_end = min((ask.row + 1) * span, maps[0].queries)
    column_end = min((ask.column + 1) * span, maps[0].keys)
    rows = range(ask.row * span, row_end, size)
    columns = range(ask.column * span, column_end, size)
    is_large = (row_end - rows[0]) * (column_end - columns[0]) > EXACT_TILE_WEIGHTS
    is_preview = ask.preview and is_large and size > PREVIEW_ROWS
    rows_per_cell = PREVIEW_ROWS if is_preview else None
    edges = [*rows, row_end], [*columns, column_end]
    return pool_maps(maps, ask.head, *edges, rows_per_cell, check, skip_first=ask.skip_first), is_preview


def compute_thumbnails(
    site_map: SiteMap, size: int, check: Check, rows_per_cell: int | None = None
) -> tuple[NDArray[numpy.uint8], bool]:
    """Pool the maps of all heads of an attention, as bytes ``[head, row, column]``; also return whether only some rows
    were read, which ``rows_per_cell`` or the size of the maps limits."""
    rows = [*split_axis(site_map.queries, size), site_map.queries]
    columns = [*split_axis(site_map.keys, size), site_map.keys]
    weights = site_map.heads * site_map.queries * site_map.keys
    if rows_per_cell is None and weights > EXACT_THUMBNAIL_WEIGHTS:
        rows_per_cell = max(1, EXACT_THUMBNAIL_WEIGHTS // (site_map.heads * (len(rows) - 1) * site_map.keys))
    heads = [pool_maps([site_map], head, rows, columns, rows_per_cell, check) for head in range(site_map.heads)]
    largest_cell = max(end - begin for begin, end in pairwise(rows))
    return encode_weights(numpy.stack(heads)), rows_per_cell is not None and rows_per_cell < largest_cell


def pool_maps(
    maps: Sequence[SiteMap],
    head: int,
    row_edges: Sequence[int],
    column_edges: Sequence[int],
    rows_per_cell: int | None,
    check: Check,
    *,
    skip_first: bool = False,
) -> Weights:
    """Pool a rectangle of one map, or of the difference of two maps (second minus first), as ``pool_cells`` does.

    Args:
        skip_first: Whether the weights of the first key count as 0.
    """

    def read_piece(rows: slice, columns: slice) -> Weights:
        check()
        piece = read_values(maps, head, rows, columns)
        if skip_first and columns.start == 0:
            piece = piece.copy()  # it may be a view of a table that the model returned
            piece[:, 0] = 0
        return piece

    def bound_keys(rows: slice) -> tuple[int, int]:
        bounds = [site_map.bound_keys(rows) for site_map in maps]
        return min(first for first, _ in bounds), max(last for _, last in bounds)

    return pool_cells(
        read_piece,
        row_edges,
        column_edges,
        bound_keys=bound_keys,
        complete_rows=any(site_map.attention.needs_full_rows for site_map in maps),
        rows_per_cell=rows_per_cell,
        is_signed=len(maps) > 1,
    ).largest


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
