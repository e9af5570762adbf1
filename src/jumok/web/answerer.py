"""Answer the asks about a finished run: maps, tokens, steps, effects and code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jumok.errors import ArgumentError

from . import ask_fields as fields
from .answers import tiles
from .inspection import Inspection
from .work_queue import Job

PASSES = ("clean", "edited")
SHOWN = (*PASSES, "difference")
MAX_VALUES = 4096  # exact weights in one answer
MAX_THUMBNAIL = 256  # cells

Answer = tuple[dict[str, Any], tuple[bytes, ...]]


class Answerer:
    """Answers asks about inspections; it keeps the tiles that were computed last."""

    def __init__(self) -> None:
        self._tiles = tiles.TileCache()
        self._answers: dict[str, Callable[[Inspection, Job], Answer]] = {
            "thumbnails": self._answer_thumbnails,
            "tiles": self._answer_tiles,
            "values": self._answer_values,
            "line": self._answer_line,
        }

    def answer(self, inspection: Inspection, job: Job) -> Answer:
        """Answer an ask: the body and its buffers.

        Args:
            inspection: The run that the ask names.
            job: The ask.

        Raises:
            ArgumentError: If a field of the ask is invalid.
        """
        answer = self._answers.get(job.kind)
        if answer is None:
            raise ArgumentError(f"{job.kind} is not available")
        return answer(inspection, job)

    def _answer_thumbnails(self, inspection: Inspection, job: Job) -> Answer:
        show = fields.read_choice(job.ask, "show", PASSES)
        site = _read_site(inspection, job.ask)
        size = fields.read_integer(job.ask, "size", 1, MAX_THUMBNAIL)
        key = ("thumbnails", inspection.list_serials(show), site, size)
        stored = self._tiles.get(key)
        if stored is None:
            (site_map,) = inspection.get_maps(show, site)
            heads, is_preview = tiles.compute_thumbnails(site_map, size, job.check)
            shape = dict(zip(("heads", "rows", "columns"), heads.shape, strict=True))
            stored = heads.tobytes(), {**shape, "is_preview": is_preview}
            self._tiles.put(key, *stored)
        return stored[1], (stored[0],)

    def _answer_tiles(self, inspection: Inspection, job: Job) -> Answer:
        show = fields.read_choice(job.ask, "show", SHOWN)
        site, head = _read_site(inspection, job.ask), _read_head(inspection, job.ask)
        maps = inspection.get_maps(show, site)
        level = fields.read_integer(job.ask, "level", 0, tiles.count_levels(maps[0].queries, maps[0].keys) - 1)
        span = tiles.TILE_CELLS * 2**level
        row = fields.read_integer(job.ask, "row", 0, (maps[0].queries - 1) // span)
        column = fields.read_integer(job.ask, "column", 0, (maps[0].keys - 1) // span)
        preview = fields.read_boolean(job.ask, "preview")
        key = ("tile", inspection.list_serials(show), site, head, level, row, column, preview)
        stored = self._tiles.get(key)
        if stored is None:
            tile = tiles.compute_tile(maps, head, level, row, column, preview=preview, check=job.check)
            is_difference = show == "difference"
            cells = tiles.encode_differences(tile.cells) if is_difference else tiles.encode_weights(tile.cells)
            body = {"rows": cells.shape[0], "columns": cells.shape[1], "is_preview": tile.is_preview}
            stored = cells.tobytes(), body
            self._tiles.put(key, *stored)
        return stored[1], (stored[0],)

    def _answer_values(self, inspection: Inspection, job: Job) -> Answer:
        show = fields.read_choice(job.ask, "show", SHOWN)
        site, head = _read_site(inspection, job.ask), _read_head(inspection, job.ask)
        maps = inspection.get_maps(show, site)
        rows = fields.read_range(job.ask, "rows", maps[0].queries)
        columns = fields.read_range(job.ask, "columns", maps[0].keys)
        count = (rows[1] - rows[0]) * (columns[1] - columns[0])
        if count > MAX_VALUES:
            raise ArgumentError(f"these are {count:,} cells; the limit is {MAX_VALUES:,}")
        weights = tiles.read_values(maps, head, slice(*rows), slice(*columns))
        body = {"rows": weights.shape[0], "columns": weights.shape[1], "is_exact": True}
        return body, (weights.astype("<f4").tobytes(),)

    def _answer_line(self, inspection: Inspection, job: Job) -> Answer:
        show = fields.read_choice(job.ask, "show", SHOWN)
        site, head = _read_site(inspection, job.ask), _read_head(inspection, job.ask)
        maps = inspection.get_maps(show, site)
        if (job.ask.get("query") is None) == (job.ask.get("key") is None):
            raise ArgumentError("a line needs either a query or a key")
        if job.ask.get("query") is not None:
            query = fields.read_integer(job.ask, "query", 0, maps[0].queries - 1)
            weights = tiles.read_values(maps, head, slice(query, query + 1), slice(0, maps[0].keys))[0]
        else:
            key = fields.read_integer(job.ask, "key", 0, maps[0].keys - 1)
            weights = tiles.read_column(maps, head, key, job.check)
        return {"length": len(weights), "is_exact": True}, (weights.astype("<f4").tobytes(),)


def _read_site(inspection: Inspection, ask: dict[str, Any]) -> int:
    return fields.read_integer(ask, "site", 0, len(inspection.sites) - 1)


def _read_head(inspection: Inspection, ask: dict[str, Any]) -> int:
    maps = inspection.clean.maps[_read_site(inspection, ask)]
    return fields.read_integer(ask, "head", 0, maps.heads - 1)
