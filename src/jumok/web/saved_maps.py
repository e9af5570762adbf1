"""Store attention maps in a saved file: exactly, as bytes, or as queries and keys from which the page computes them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy

from jumok.attention.mask import Mask
from jumok.attention.mask.base import And, Not
from jumok.attention.mask.position_masks import Causal, Edge, Window
from jumok.reporting import Progress

from . import messages
from .inspection import Inspection
from .maps.site_maps import SiteMap, WindowMap
from .maps.tiles import Check, compute_thumbnails, encode_weights, pool_maps, read_values
from .opened_model import Pass
from .saved_format import (
    ComputedWeights,
    ExactWeights,
    ForbiddenCells,
    Piece,
    PooledWeights,
    RoundedWeights,
    SavedMap,
    SavedMask,
    SavedThumbnails,
)

MAX_EXACT_BYTES = 8_000_000  # of all maps as float32
MAX_ROUNDED_BYTES = 72_000_000  # of all maps as bytes: SmolLM2 (270 heads) at 512 tokens
MAX_LONG_BYTES = 32_000_000  # of the maps of a longer input that are stored
MAX_POOLED_CELLS = 1024  # rows and columns of a pooled map
THUMBNAIL_CELLS = 48
ALIGNMENT = 4  # bytes, so that a page can read float32 numbers without copying them

FLOAT32, ROUNDED, LONG = "float32", "u8", "long"


class Blob:
    """The binary part of a saved file. Equal pieces are stored once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._pieces: dict[bytes, Piece] = {}
        self.size = 0

    def add(self, content: bytes) -> Piece:
        """Add bytes, and return where they are."""
        digest = sha256(content).digest()
        if digest not in self._pieces:
            self._pieces[digest] = Piece(self.size, len(content))
            padding = -len(content) % ALIGNMENT
            self._parts += [content, b"\0" * padding]
            self.size += len(content) + padding
        return self._pieces[digest]

    def add_floats(self, numbers: Any) -> Piece:
        """Add a tensor or an array as little-endian float32, row by row."""
        return self.add(numpy.ascontiguousarray(numbers, "<f4").tobytes())

    def join(self) -> bytes:
        """Return all bytes."""
        return b"".join(self._parts)


class MapStore:
    """Stores the maps of an inspection in a blob.

    Attributes:
        form: "float32", "u8" or "long", by the number of weights.
        pooled: How many of them are pooled, because the page cannot compute them.
    """

    def __init__(self, inspection: Inspection, blob: Blob, limit: int = MAX_LONG_BYTES) -> None:
        """Decide how to store the maps; of an input whose maps do not all fit, at most ``limit`` bytes are stored."""
        self._inspection, self._blob, self._limit = inspection, blob, limit
        passes = [inspection.clean] + ([] if inspection.edited is None else [inspection.edited])
        site_maps = [site_map for shown in passes for site_map in shown.maps]
        weights = sum(site_map.heads * site_map.queries * site_map.keys for site_map in site_maps)
        self.total = sum(site_map.heads for site_map in site_maps)
        self.stored = self.pooled = 0
        self.form = FLOAT32 if 4 * weights <= MAX_EXACT_BYTES else ROUNDED if weights <= MAX_ROUNDED_BYTES else LONG

    @property
    def is_complete(self) -> bool:
        """Whether every weight of every map is stored, or can be computed."""
        return self.stored == self.total and not self.pooled

    def store_thumbnails(self, shown: Pass | None, check: Check) -> list[SavedThumbnails] | None:
        """Store the pooled maps of all heads, by site; None of a pass that does not exist."""
        if shown is None:
            return None
        thumbnails = []
        for site_map in shown.maps:
            heads, is_preview = compute_thumbnails(site_map, THUMBNAIL_CELLS, check)
            piece = self._blob.add(heads.tobytes())
            count, rows, columns = heads.shape
            thumbnails.append(SavedThumbnails(piece.at, piece.bytes, count, rows, columns, is_preview))
        return thumbnails

    def store_maps(
        self, first: tuple[int, int], report: Progress
    ) -> dict[messages.Pass, list[list[SavedMap | None]] | None]:
        """Store the maps of both passes, by site and head: the first one in any case, the others if they fit."""
        inspection = self._inspection
        passes: dict[messages.Pass, Pass | None] = {"clean": inspection.clean, "edited": inspection.edited}
        maps: dict[messages.Pass, Any] = {
            name: None if shown is None else [[None] * site_map.heads for site_map in shown.maps]
            for name, shown in passes.items()
        }
        begin = self._blob.size
        for done, (site, head) in enumerate(_order_heads(inspection.clean.maps, first)):
            for name, shown in passes.items():
                if shown is None:
                    continue
                report(done * len(maps), self.total)
                size = self._blob.size - begin + _measure_long(shown.maps[site])
                if self.form == LONG and done and size > self._limit:
                    return maps
                maps[name][site][head] = self._store_map(
                    shown.maps[site], head, lambda: report(self.stored, self.total)
                )
                self.stored += 1
        return maps

    def _store_map(self, site_map: SiteMap, head: int, check: Check) -> SavedMap:
        if self.form == LONG:
            computed = self._store_computed(site_map, head)
            return self._store_pooled(site_map, head, check) if computed is None else computed
        rows, columns = slice(0, site_map.queries), slice(0, site_map.keys)
        weights = read_values([site_map], head, rows, columns)
        if self.form == FLOAT32:
            piece = self._blob.add_floats(weights)
            return ExactWeights(piece.at, piece.bytes)
        piece = self._blob.add(encode_weights(weights).tobytes())
        return RoundedWeights(piece.at, piece.bytes)

    def _store_computed(self, site_map: SiteMap, head: int) -> ComputedWeights | None:
        """Store queries, keys and log-sum-exps; None if weights are not the exponential of a masked dot product."""
        calls = site_map.attention.calls
        if len(calls) != 1 or isinstance(site_map, WindowMap):
            return None
        (call,) = calls
        if call.bias is not None or call.logsumexp is None:
            return None
        positions = (call.query_positions, call.key_positions)
        is_counted_from_0 = all(isinstance(part, range) and part.start == 0 and part.step == 1 for part in positions)
        product, mask = call.score.fold_into_query(call.query), describe_mask(call.mask, head)
        if not is_counted_from_0 or product is None or mask is None:
            return None
        query, scale = product
        group = head // (query.shape[1] // call.key.shape[1])
        return ComputedWeights(
            query=self._blob.add_floats(query[0, head].detach().float().cpu()),
            key=self._blob.add_floats(call.key[0, group].detach().float().cpu()),
            lse=self._blob.add_floats(call.logsumexp[0, head].detach().float().cpu()),
            width=query.shape[-1],
            scale=float(scale),
            mask=mask,
        )

    def _store_pooled(self, site_map: SiteMap, head: int, check: Check) -> PooledWeights:
        level = 0
        while -(-max(site_map.queries, site_map.keys) // 2**level) > MAX_POOLED_CELLS:
            level += 1
        rows = [*range(0, site_map.queries, 2**level), site_map.queries]
        columns = [*range(0, site_map.keys, 2**level), site_map.keys]
        cells = pool_maps([site_map], head, rows, columns, None, check)
        self.pooled += level > 0
        piece = self._blob.add(encode_weights(cells).tobytes())
        return PooledWeights(piece.at, piece.bytes, level)


def describe_mask(mask: Mask | None, head: int) -> SavedMask | None:
    """Return a mask as a band without some rectangles; None if it has another form. No mask allows everything.

    >>> from jumok.attention.mask import causal, edge, window
    >>> describe_mask(causal & window(4) & ~edge(query=5, key=2), head=0)
    SavedMask(behind=3, ahead=0, forbidden=[ForbiddenCells(queries=[5], keys=[2])])
    """
    if mask is None:
        return SavedMask()
    if isinstance(mask, Causal | Window):
        return SavedMask(mask.band.behind, mask.band.ahead)
    if isinstance(mask, Not) and isinstance(edge := mask.parts[0], Edge):
        if (edge.head is not None and head not in edge.head) or (edge.batch is not None and 0 not in edge.batch):
            return SavedMask()
        queries, keys = (None if side is None else list(side) for side in (edge.query, edge.key))
        return SavedMask(forbidden=[ForbiddenCells(queries, keys)])
    if not isinstance(mask, And):
        return None
    parts = [describe_mask(part, head) for part in mask.parts]
    bands = [part for part in parts if part is not None]
    if len(bands) < len(parts):
        return None
    return SavedMask(
        min((band.behind for band in bands if band.behind is not None), default=None),
        min((band.ahead for band in bands if band.ahead is not None), default=None),
        [cells for band in bands for cells in band.forbidden],
    )


def _order_heads(site_maps: list[SiteMap], first: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield site and head: the first one, then those of its attention, then the others."""
    pairs = [(site, head) for site, site_map in enumerate(site_maps) for head in range(site_map.heads)]
    yield from sorted(pairs, key=lambda pair: (pair != first, pair[0] != first[0], pair))


def _measure_long(site_map: SiteMap) -> int:
    """Return how many bytes the queries, keys and log-sum-exps of a map take; about as many as a pooled map."""
    width = site_map.attention.calls[0].query.shape[-1]
    return 4 * width * (site_map.queries + site_map.keys) + 4 * site_map.queries
