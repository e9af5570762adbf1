"""The pictures of ``jumok look``: weights over an image, a spectrogram with words, or heat maps of heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jumok.checkpoint import Loaded
from jumok.cli.command_output import CommandOutput
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, locate_band
from jumok.data.images.preparation import stretch_pixels
from jumok.draw import AXIS_NAMES, ListeningTexts, TimedText, save_listening_map
from jumok.draw.panel import join_captions
from jumok.draw.pooling import PooledMap
from jumok.errors import ArgumentError
from jumok.layers.patches import PatchLayout
from jumok.lens.capture.head_figure import save_heads
from jumok.lens.describe.image_weights import choose_image_site, compute_patch_maps, draw_patch_maps
from jumok.lens.describe.table_rows import pool_labelled_head
from jumok.lens.sites import TARGET
from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
from jumok.tasks.speech.listening import compute_listening, read_capture_rows
from jumok.tasks.transformers_input import locate_patches

from .look_reports import TEXTS, ListeningReport, QueryReport

if TYPE_CHECKING:
    from .look_command import LookResult

HERTZ_TICKS = (500, 1000, 2000, 4000)
MAX_TITLE = 90  # letters of a transcript in the title
MAX_TOKENS = 80  # rows; longer transcripts are drawn by words


def draw_pictures(paths: list[Path], result: LookResult, output: CommandOutput) -> None:
    """Write the pictures: an image or audio as such, unless --heat-map asks for queries by keys."""
    loaded = result.loaded
    reads = loaded.model.reads if isinstance(loaded, Loaded) else loaded.reads
    if reads == "image" and not result.options.as_heat_map:
        try:
            _draw_over_image(paths, result)
            return
        except ArgumentError as error:  # such as a model of transformers that merges patches
            output.warn(f"{error}; the picture shows queries by keys")
    if result.listening is not None and not result.options.as_heat_map:
        _draw_listening(paths, result, result.listening, output.language)
        return
    _draw_heads(paths, result, output.language)


def _draw_heads(paths: list[Path], result: LookResult, language: str) -> None:
    """Draw the maps of the heads; the caption says which tokens are hidden, and what a decoder's rows stand for."""
    options = result.options
    captions = []
    if any(result.capture.sites.get_sides(site).queries == TARGET for site in result.heads):
        captions.append(TEXTS("pictures.decoder_rows"))
    if result.hidden:
        captions.append(TEXTS("pictures.hidden", names=", ".join(dict.fromkeys(result.hidden))))

    def read_map(site: str, head: int, limit: int) -> PooledMap:
        return pool_labelled_head(
            result.capture,
            result.labelled,
            site,
            head,
            limit,
            by_words=options.by_words,
            first_apart=options.skip_first,
        )

    for path in paths:
        save_heads(
            path,
            result.heads,
            result.capture.sites,
            read_map,
            scale=options.scale,
            skip_first=options.skip_first,
            caption=join_captions(*(caption.select(language) for caption in captions)),
            axis_names=AXIS_NAMES[language],
        )


def _draw_over_image(paths: list[Path], result: LookResult) -> None:
    """Draw the weights of patches over the image: of one query; or of the class token, all patches or all words.

    Raises:
        ArgumentError: If the positions of the attention cannot be found in the image.
    """
    loaded, labelled, capture = result.loaded, result.labelled, result.capture
    query = result.report.query if isinstance(result.report, QueryReport) else None
    layer = None if result.options.layer is None else next(iter(result.heads))
    site = choose_image_site(capture, layer, "" if query is None else query.side)
    layout = _locate_patches(result, site)
    first_layout = _locate_patches(result, choose_image_site(capture, None, first=True))
    if layout is None or first_layout is None:
        raise ArgumentError(
            "this model does not state the size of its patches, so weights cannot be drawn over the image"
        )
    position = None if query is None else query.position
    maps = compute_patch_maps(capture, site, layout, first_layout, result.options.head, position, labelled.target)
    pixels = labelled.inputs[0][0]
    if isinstance(loaded, Loaded) and loaded.preparation is not None:
        image = loaded.preparation.restore(pixels)
    else:
        image = stretch_pixels(pixels)
    # models of transformers do not read the pixels that fill no patch, at the right and below
    rows, columns = layout.grid[0] * layout.patch[0], layout.grid[1] * layout.patch[1]
    for path in paths:
        draw_patch_maps(path, maps, image[:rows, :columns], site, result.options.scale)


def _locate_patches(result: LookResult, site: str) -> PatchLayout | None:
    pixels = result.labelled.inputs[0]
    if isinstance(result.loaded, Loaded):
        return result.loaded.model.locate_patches(site, (pixels.shape[-2], pixels.shape[-1]))
    return locate_patches(result.loaded.model, pixels)


def _draw_listening(paths: list[Path], result: LookResult, report: ListeningReport, language: str) -> None:
    """Draw the spectrogram, the words, and the weights of the rows that write each token, or each word."""
    labelled, audio = result.labelled, result.labelled.audio
    assert audio is not None
    if not report.words:
        raise ArgumentError(
            "there is no speech in this audio, so there are no words to draw; --heat-map draws all heads"
        )
    words = [TimedText(word.text, audio.begin + word.start, audio.begin + word.end) for word in report.words]
    by_words = result.options.by_words or labelled.answer_length > MAX_TOKENS
    if by_words:
        weights, labels = report.weights, [word.text for word in words]
        spans = [(word.start, word.end) for word in words]
    else:
        rows = [row for word in report.words for row in word.rows]
        read_rows = read_capture_rows(result.capture)
        weights = compute_listening(read_rows, [range(row, row + 1) for row in rows], report.heads)
        labels = [labelled.target[row + 1] for row in rows]
        spans = [(text.start, text.end) for text, word in zip(words, report.words, strict=True) for _ in word.rows]

    positions = max(1, round(audio.seconds * POSITIONS_PER_SECOND))
    beyond = float(weights[:, positions:].sum() / len(weights))
    caption = TEXTS("pictures.red_box", heads=report.describe_heads())
    if beyond >= 0.005:
        caption = TEXTS("pictures.after_end", caption=caption, share=beyond)
    names = TEXTS.select("listening_map", language)
    model, answer = result.options.arguments[0], labelled.answer or ""
    texts = ListeningTexts(
        title=f"{model}: {answer}" if len(answer) <= MAX_TITLE else model,
        caption=caption.select(language),
        time=names["time"],
        weight=names["weight"],
        rows=names["word" if by_words else "token"],
        bands=names["bands"],
    )
    features = labelled.inputs[0][0].float().cpu()
    for path in paths:
        save_listening_map(
            path,
            features[:, : positions * FRAMES_PER_SECOND // POSITIONS_PER_SECOND].numpy(),
            weights[:, :positions],
            labels,
            words,
            seconds=positions / POSITIONS_PER_SECOND,
            begin=audio.begin,
            spans=spans,
            bands=[(locate_band(hertz, features.shape[0]), f"{hertz / 1000:g} kHz") for hertz in HERTZ_TICKS],
            texts=texts,
            scale=result.options.scale,
        )
