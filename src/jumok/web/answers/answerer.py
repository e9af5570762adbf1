"""Answer the asks about a finished run: maps, tokens, steps, effects and code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch

from jumok.errors import ArgumentError
from jumok.lens.sites import SOURCE, TARGET
from jumok.threads import use_threads
from jumok.web import asks, messages
from jumok.web.asks import check_index
from jumok.web.input_media import Sound, read_listening
from jumok.web.inspection import Inspection
from jumok.web.maps import tiles
from jumok.web.maps.site_maps import SiteMap
from jumok.web.messages import Reply
from jumok.web.opened_model import OpenedModel
from jumok.web.work_queue import Job

from .contrast import answer_contrast
from .contrast_patches import answer_patch, answer_sweep
from .head_measures import describe_kinds, list_cell_weights, measure_effects
from .head_steps import describe_steps
from .layer_stream import describe_layers
from .python_code import write_code
from .token_weights import describe_token

MAX_VALUES = 4096  # exact weights in one answer
MODEL_ASKS = (asks.KindsAsk, asks.EffectAsk, asks.TwoInputsAsk)  # they run the model, and choose its number of threads
TWO_INPUTS_ANSWERS: dict[type[asks.Ask], Callable[..., Reply]] = {
    asks.ContrastAsk: answer_contrast,
    asks.SweepAsk: answer_sweep,
    asks.PatchAsk: answer_patch,
}


class Answerer:
    """Answers asks about inspections; it keeps the tiles that were computed last."""

    def __init__(self) -> None:
        self._tiles = tiles.TileCache()
        self._answers: dict[type[asks.Ask], Callable[..., Reply]] = {
            asks.ThumbnailsAsk: self._answer_thumbnails,
            asks.TilesAsk: self._answer_tiles,
            asks.ValuesAsk: _answer_values,
            asks.LineAsk: _answer_line,
            asks.TokenAsk: _answer_token,
            asks.CellAsk: _answer_cell,
            asks.StepsAsk: _answer_steps,
            asks.LayersAsk: _answer_layers,
            asks.KindsAsk: _answer_kinds,
            asks.EffectAsk: _answer_effect,
            asks.CodeAsk: _answer_code,
            asks.AudioAsk: _answer_audio,
            asks.ListeningAsk: _answer_listening,
            asks.SaveAsk: _answer_save,
        }

    def answer(self, inspection: Inspection, job: Job, other: OpenedModel | None = None) -> Reply:
        """Return the body and the buffers of an answer; ``other`` is the model that reads a second input."""
        # one thread: these small products gain nothing from a second one, and beside a busy program they lose a lot
        threads = nullcontext() if isinstance(job.ask, MODEL_ASKS) else use_threads(1)
        with threads, torch.no_grad():  # the biases and scores of a capture may be parameters
            if isinstance(job.ask, asks.TwoInputsAsk):
                return TWO_INPUTS_ANSWERS[type(job.ask)](inspection, job.ask, job, other or inspection.opened)
            return self._answers[type(job.ask)](inspection, job.ask, job)

    def _answer_thumbnails(self, inspection: Inspection, ask: asks.ThumbnailsAsk, job: Job) -> Reply:
        check_index("site", ask.site, len(inspection.sites))
        shown = inspection.get_pass(ask.show)

        def compute() -> tuple[messages.Thumbnails, bytes]:
            heads, is_preview = tiles.compute_thumbnails(shown.maps[ask.site], ask.size, job.check)
            count, rows, columns = heads.shape
            return messages.Thumbnails(count, rows, columns, is_preview), heads.tobytes()

        body, content = self._tiles.get((shown.serial, ask.site, ask.size), compute)
        return body, (content,)

    def _answer_tiles(self, inspection: Inspection, ask: asks.TilesAsk, job: Job) -> Reply:
        maps = _find_maps(inspection, ask)
        check_index("level", ask.level, tiles.count_levels(maps[0].queries, maps[0].keys))
        span = tiles.TILE_CELLS * 2**ask.level
        check_index("row", ask.row, -(-maps[0].queries // span))
        check_index("column", ask.column, -(-maps[0].keys // span))

        def compute() -> tuple[messages.Tile, bytes]:
            cells, is_preview = tiles.compute_tile(maps, ask, job.check)
            encode = tiles.encode_differences if ask.show == "difference" else tiles.encode_weights
            rows, columns = cells.shape
            return messages.Tile(rows, columns, is_preview), encode(cells).tobytes()

        if ask.contrast is None:
            serials = tuple(shown.serial for shown in inspection.list_passes(ask.show))
        else:
            serials = (inspection.clean.serial, ask.contrast, {"clean": 0, "edited": 1, "difference": 2}[ask.show])
        part = (ask.site, ask.head, ask.level, ask.row, ask.column, ask.preview, ask.skip_first)
        body, content = self._tiles.get((serials, *part), compute)
        return body, (content,)


def _answer_values(inspection: Inspection, ask: asks.ValuesAsk, job: Job) -> Reply:
    maps = _find_maps(inspection, ask)
    rows = _read_range("rows", ask.rows, maps[0].queries)
    columns = _read_range("columns", ask.columns, maps[0].keys)
    count = (rows.stop - rows.start) * (columns.stop - columns.start)
    if count > MAX_VALUES:
        raise ArgumentError(f"these are {count:,} cells; the limit is {MAX_VALUES:,}")
    weights = tiles.read_values(maps, ask.head, rows, columns)
    return messages.Values(*weights.shape), (weights.astype("<f4").tobytes(),)


def _answer_line(inspection: Inspection, ask: asks.LineAsk, job: Job) -> Reply:
    maps = _find_maps(inspection, ask)
    if (ask.query is None) == (ask.key is None):
        raise ArgumentError("a line needs either a query or a key")
    if ask.query is not None:
        query = check_index("query", ask.query, maps[0].queries)
        weights = tiles.read_values(maps, ask.head, slice(query, query + 1), slice(0, maps[0].keys))[0]
    else:
        weights = tiles.read_column(maps, ask.head, check_index("key", ask.key or 0, maps[0].keys), job.check)
    return messages.Line(len(weights)), (weights.astype("<f4").tobytes(),)


def _answer_token(inspection: Inspection, ask: asks.TokenAsk, job: Job) -> Reply:
    shown = inspection.get_pass(ask.show)
    _check_position(inspection, ask)
    return describe_token(inspection, shown, ask.sequence, ask.position, job.check), ()


def _answer_cell(inspection: Inspection, ask: asks.CellAsk, job: Job) -> Reply:
    shown = inspection.get_pass(ask.show)
    return messages.Cell(list_cell_weights(inspection, shown, ask.site, ask.query, ask.key)), ()


def _answer_layers(inspection: Inspection, ask: asks.LayersAsk, job: Job) -> Reply:
    shown = inspection.get_pass(ask.show)
    _check_position(inspection, ask)
    return describe_layers(inspection, shown, ask.sequence, ask.position), ()


def _answer_audio(inspection: Inspection, ask: asks.AudioAsk, job: Job) -> Reply:
    sound = _get_sound(inspection)
    return messages.Audio(sound.bands, sound.frames), (sound.wav, sound.spectrogram)


def _answer_listening(inspection: Inspection, ask: asks.ListeningAsk, job: Job) -> Reply:
    sound = _get_sound(inspection)
    head = None
    if ask.site is not None:
        head = ask.site, -1 if ask.head is None else ask.head
        _check_head(inspection, *head)
        if inspection.clean.capture.sites.get_sides(inspection.sites[ask.site]) != (TARGET, SOURCE):
            raise ArgumentError(f"{inspection.sites[ask.site]} does not listen to the audio; choose a cross-attention")
    weights = read_listening(sound, inspection.get_pass(ask.show), inspection.sites, head)
    return messages.Listening(len(sound.words), sound.positions), (weights.numpy().astype("<f4").tobytes(),)


def _answer_steps(inspection: Inspection, ask: asks.StepsAsk, job: Job) -> Reply:
    _check_head(inspection, ask.site, ask.head)
    shown = inspection.get_pass(ask.show)
    check_index("query", ask.query, shown.maps[ask.site].queries)
    return describe_steps(shown, ask.site, ask.head, ask.query, ask.language or "en"), ()


def _answer_kinds(inspection: Inspection, ask: asks.KindsAsk, job: Job) -> Reply:
    # of the clean pass, so that they belong to later runs with other edits too
    inspection.clean.kinds = describe_kinds(inspection, job.report)
    return inspection.clean.kinds, ()


def _answer_effect(inspection: Inspection, ask: asks.EffectAsk, job: Job) -> Reply:
    effects = measure_effects(inspection, ask, job.report)
    if ask.over != "cell":  # a saved file shows the others
        inspection.clean.effects[ask.over] = effects
    return effects, ()


def _answer_code(inspection: Inspection, ask: asks.CodeAsk, job: Job) -> Reply:
    _check_selection(inspection, ask.selection)
    return messages.Code(write_code(inspection, ask.selection)), ()


def _answer_save(inspection: Inspection, ask: asks.SaveAsk, job: Job) -> Reply:
    from jumok.web.saved_file import build_html, build_live_html

    _check_selection(inspection, ask.selection)
    if ask.live:
        content = build_live_html(inspection, selection=ask.selection, language=ask.language)
    else:
        content = build_html(inspection, selection=ask.selection, language=ask.language, progress=job.report)
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in inspection.opened.name)
    return messages.SavedFile(f"jumok-{name.strip('-.')[-40:]}.html"), (content,)


def _get_sound(inspection: Inspection) -> Sound:
    if inspection.sound is None:
        raise ArgumentError("the input of this run is not audio")
    return inspection.sound


def _find_maps(inspection: Inspection, ask: asks.HeadAsk) -> list[SiteMap]:
    """Return the maps that an ask names: two for a difference."""
    _check_head(inspection, ask.site, ask.head)
    if ask.contrast is not None:
        contrast = inspection.clean.contrast
        if contrast is None or contrast.number != ask.contrast:
            raise ArgumentError(f"contrast {ask.contrast:,} is not the last one of this run; ask for it again")
        return list(contrast.list_maps(ask.show, ask.site))
    return [shown.maps[ask.site] for shown in inspection.list_passes(ask.show)]


def _check_head(inspection: Inspection, site: int, head: int) -> None:
    check_index("site", site, len(inspection.sites))
    if head < 0:
        raise ArgumentError("the message has no field head")
    check_index("head", head, inspection.clean.maps[site].heads)


def _check_position(inspection: Inspection, ask: asks.TokenAsk | asks.LayersAsk) -> None:
    count = inspection.count_positions(ask.sequence)
    if not count:
        raise ArgumentError(f"this run has no {ask.sequence}")
    check_index("position", ask.position, count)


def _check_selection(inspection: Inspection, selection: messages.Selection | None) -> None:
    if selection is None:
        return
    _check_head(inspection, selection.site, selection.head)
    site_map = inspection.clean.maps[selection.site]
    for name, index, count in (("query", selection.query, site_map.queries), ("key", selection.key, site_map.keys)):
        if index is not None:
            check_index(name, index, count)


def _read_range(name: str, bounds: tuple[int, int], count: int) -> slice:
    begin, end = bounds
    if not begin < end <= count:
        raise ArgumentError(f"{name} must be [begin, end] between 0 and {count:,}, not {list(bounds)}")
    return slice(begin, end)
