"""Answer the asks about a finished run: maps, tokens, steps, effects and code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from jumok.defaults import LANGUAGES
from jumok.errors import ArgumentError
from jumok.lens.sites import SOURCE, TARGET
from jumok.threads import use_threads
from jumok.web import ask_fields as fields
from jumok.web.inspection import Inspection
from jumok.web.work_queue import Job

from . import tiles
from .effect_answer import measure_effects
from .head_facts import classify_heads
from .head_steps import describe_steps
from .python_code import write_code
from .sound import Sound, read_listening
from .token_answer import describe_token

PASSES = ("clean", "edited")
SHOWN = (*PASSES, "difference")
MAX_VALUES = 4096  # exact weights in one answer
MAX_THUMBNAIL = 256  # cells
MODEL_ASKS = ("kinds", "effect")  # they run the model, and choose its number of threads

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
            "token": _answer_token,
            "steps": _answer_steps,
            "kinds": _answer_kinds,
            "effect": _answer_effect,
            "code": _answer_code,
            "audio": _answer_audio,
            "listening": _answer_listening,
            "save": _answer_save,
        }

    def answer(self, inspection: Inspection, job: Job) -> Answer:
        """Answer an ask: the body and its buffers.

        Raises:
            ArgumentError: If a field of the ask is invalid.
        """
        # one thread: these small products gain nothing from a second one, and beside a busy program they lose a lot
        threads = nullcontext() if job.kind in MODEL_ASKS else use_threads(1)
        with threads, torch.no_grad():  # the biases and scores of a capture may be parameters
            return self._answers[job.kind](inspection, job)

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
        preview, skip_first = fields.read_boolean(job.ask, "preview"), fields.read_boolean(job.ask, "skip_first")
        key = ("tile", inspection.list_serials(show), site, head, level, row, column, preview, skip_first)
        stored = self._tiles.get(key)
        if stored is None:
            tile = tiles.compute_tile(
                maps, head, level, row, column, preview=preview, skip_first=skip_first, check=job.check
            )
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


def _answer_token(inspection: Inspection, job: Job) -> Answer:
    shown = inspection.get_pass(fields.read_choice(job.ask, "show", PASSES))
    sequence = fields.read_choice(job.ask, "sequence", ("source", "target"))
    count = inspection.count_positions(sequence)
    if not count:
        raise ArgumentError(f"this run has no {sequence}")
    position = fields.read_integer(job.ask, "position", 0, count - 1)
    return describe_token(inspection, shown, sequence, position, job.check), ()


def _answer_audio(inspection: Inspection, job: Job) -> Answer:
    sound = _get_sound(inspection)
    return {"bands": sound.bands, "frames": sound.frames}, (sound.wav, sound.spectrogram)


def _answer_listening(inspection: Inspection, job: Job) -> Answer:
    sound = _get_sound(inspection)
    shown = inspection.get_pass(fields.read_choice(job.ask, "show", PASSES))
    head = None
    if job.ask.get("site") is not None:
        site = _read_site(inspection, job.ask)
        head = site, _read_head(inspection, job.ask)
        if inspection.clean.capture.sites.get_sides(inspection.sites[site]) != (TARGET, SOURCE):
            raise ArgumentError(f"{inspection.sites[site]} does not listen to the audio; choose a cross-attention")
    weights = read_listening(sound, shown, inspection.sites, head)
    return {"words": len(sound.words), "positions": sound.positions}, (weights.numpy().astype("<f4").tobytes(),)


def _get_sound(inspection: Inspection) -> Sound:
    if inspection.sound is None:
        raise ArgumentError("the input of this run is not audio")
    return inspection.sound


def _answer_steps(inspection: Inspection, job: Job) -> Answer:
    shown = inspection.get_pass(fields.read_choice(job.ask, "show", PASSES))
    site, head = _read_site(inspection, job.ask), _read_head(inspection, job.ask)
    query = fields.read_integer(job.ask, "query", 0, shown.maps[site].queries - 1)
    language = fields.read_choice(job.ask, "language", LANGUAGES, default="en")
    return describe_steps(shown, site, head, query, language), ()


def _answer_kinds(inspection: Inspection, job: Job) -> Answer:
    # of the clean pass, so that they belong to later runs with other edits too
    inspection.clean.measured["kinds"] = {"heads": classify_heads(inspection, job.report)}
    return inspection.clean.measured["kinds"], ()


def _answer_effect(inspection: Inspection, job: Job) -> Answer:
    over = fields.read_choice(job.ask, "over", ("heads", "edges"))
    inspection.clean.measured[over] = measure_effects(inspection, over, job.report)
    return inspection.clean.measured[over], ()


def _answer_code(inspection: Inspection, job: Job) -> Answer:
    return {"code": write_code(inspection, _read_selection(inspection, job.ask))}, ()


def _answer_save(inspection: Inspection, job: Job) -> Answer:
    from jumok.web.saved_file import build_html

    language = None if job.ask.get("language") is None else fields.read_choice(job.ask, "language", LANGUAGES)
    content = build_html(
        inspection,
        selection=_read_selection(inspection, job.ask),
        language=language,
        kinds=inspection.kinds,
        effects=list(inspection.effects.values()),
        progress=job.report,
    )
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in inspection.opened.name)
    return {"name": f"jumok-{name.strip('-.')[-40:]}.html"}, (content,)


def _read_selection(inspection: Inspection, ask: dict[str, Any]) -> dict[str, int | None] | None:
    """Return the selection of an ask, inside the ranges of the run; None without one."""
    if ask.get("selection") is None:
        return None
    selection = fields.read_selection(ask)
    site_map = inspection.clean.maps[_read_site(inspection, selection)]
    limits = {"head": site_map.heads, "query": site_map.queries, "key": site_map.keys}
    for name, count in limits.items():
        if selection[name] is not None:
            fields.read_integer(selection, name, 0, count - 1)
    return selection


def _read_site(inspection: Inspection, ask: dict[str, Any]) -> int:
    return fields.read_integer(ask, "site", 0, len(inspection.sites) - 1)


def _read_head(inspection: Inspection, ask: dict[str, Any]) -> int:
    maps = inspection.clean.maps[_read_site(inspection, ask)]
    return fields.read_integer(ask, "head", 0, maps.heads - 1)
