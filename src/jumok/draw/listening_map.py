"""Write a spectrogram with words at their times, and below it where the rows of an attention listen, as PNG or SVG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import count_cells
from .checks import check_single_pattern
from .figure import CAPTION_INK, Canvas, open_canvas
from .panel import COLOR_MAP, FRAME, Shades, choose_shading, draw_color_bar, thin_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES_PER_SECOND = 1.7
LEAST_WIDTH, MOST_WIDTH = 6.4, 15.0  # inches of the time axis
SPECTROGRAM_HEIGHT = 1.25  # inches
ROW_HEIGHT, LEAST_ROW_HEIGHT = 0.19, 0.12  # inches of a row of weights; more than 40 rows are lower
LANE_HEIGHT, MAX_LANES = 0.2, 4  # inches of a line of words; words that would overlap stand on another line
GAP = 0.1  # inches between spectrogram and weights
WORD_SIZE, LABEL_SIZE = 9.0, 8.0  # points
LETTER_WIDTH = 0.62  # of the font size, for a terminal cell
SOUND_COLOURS = ("#ffffff", "#dfe6ee", "#9fb3c8", "#5a7795", "#2b4560", "#101d2e")  # from silence to the loudest
SPAN_INK = "#d1462f"  # frames the time of a word in its rows
BOUNDARY_INK = "#b9c2cc"


@dataclass(frozen=True)
class TimedText:
    """A word that is spoken, and when it begins and ends, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class ListeningTexts:
    """The texts of a listening map: the title above it, the caption below the title, and the names of the axes."""

    title: str = ""
    caption: str = ""
    time: str = "seconds"
    weight: str = "weight"
    rows: str = "written token"
    bands: str = "frequency"


def save_listening_map(
    path: str | os.PathLike[str],
    spectrogram: ArrayLike,
    weights: ArrayLike,
    labels: Sequence[str],
    words: Sequence[TimedText] = (),
    *,
    seconds: float,
    begin: float = 0.0,
    spans: Sequence[tuple[float, float] | None] = (),
    bands: Sequence[tuple[float, str]] = (),
    texts: ListeningTexts | None = None,
    scale: str = "linear",
) -> Path:
    """Write a spectrogram with its words, and where each row of an attention listens, and return the path.

    Spectrogram and weights share the time axis, so that a dark cell stands below the sound that it belongs to.

    Args:
        spectrogram: The loudness ``[band, frame]`` of each frequency band, the lowest first; any finite numbers.
        weights: The weights ``[row, position]`` between 0 and 1.
        labels: A label for each row.
        seconds: The length of the time axis; the last frame and the last position end there.
        spans: For each row the start and the end of its word, which are framed; None frames nothing.
        bands: Ticks of the frequency axis: the index of a band, and its text.
        texts: Title, caption and the names of the axes.

    >>> save_listening_map("word.png", [[0, 1], [1, 0]], [[0.9, 0.1]], ["hi"], [TimedText("hi", 0.0, 1.0)], seconds=2.0)
    ... # doctest: +SKIP
    PosixPath('word.png')
    """
    pattern = check_single_pattern(weights)
    loudness = numpy.asarray(spectrogram, dtype=numpy.float64)
    if loudness.ndim != 2 or not loudness.size or not numpy.isfinite(loudness).all():
        raise DrawError(f"the spectrogram has the shape {loudness.shape}; give finite numbers [band, frame]")
    shading = choose_shading([pattern], scale, largest=float(pattern.max()))
    if len(labels) != len(pattern) or (spans and len(spans) != len(pattern)):
        raise DrawError(f"there are {len(pattern)} rows of weights; give one label, and one span, for each of them")
    if seconds <= 0:
        raise DrawError(f"the audio has {seconds:g} seconds; give a length above 0")

    texts = texts or ListeningTexts()
    times = (begin, begin + seconds)
    width = min(max(seconds * INCHES_PER_SECOND, LEAST_WIDTH), MOST_WIDTH)
    lanes = _assign_lanes(words, seconds / width)
    words_height = LANE_HEIGHT * (1 + max(lanes, default=0)) if words else 0.0
    row_height = min(ROW_HEIGHT, max(LEAST_ROW_HEIGHT, 8.0 / len(pattern)))
    rows_height = row_height * len(pattern)
    names = [*astuple(texts), *labels, *(word.text for word in words), *(name for _, name in bands)]
    with open_canvas(path, names) as canvas:
        from matplotlib.colors import LinearSegmentedColormap

        canvas.resize(width, words_height + SPECTROGRAM_HEIGHT + GAP + rows_height)
        sound = canvas.add_axes(0.0, words_height, width, SPECTROGRAM_HEIGHT)
        colours = LinearSegmentedColormap.from_list("sound", list(SOUND_COLOURS))
        extent = (*times, -0.5, len(loudness) - 0.5)
        sound.imshow(loudness, cmap=colours, origin="lower", aspect="auto", extent=extent, interpolation="nearest")
        sound.set_yticks([band for band, _ in bands], canvas.format_labels(name for _, name in bands))
        sound.tick_params(labelsize=LABEL_SIZE - 1, length=2, width=0.6, color=FRAME, labelbottom=False)
        sound.set_ylabel(canvas.replace_missing(texts.bands), fontsize=LABEL_SIZE, color=CAPTION_INK)

        listening = canvas.add_axes(0.0, words_height + SPECTROGRAM_HEIGHT + GAP, width, rows_height)
        _draw_weights(listening, shading.compute_shades(pattern), times, spans)
        label_size = min(LABEL_SIZE, row_height * 72 / 1.25)
        listening.set_yticks(range(len(pattern)), canvas.format_labels(labels), fontsize=label_size)
        listening.set_ylabel(canvas.replace_missing(texts.rows), fontsize=LABEL_SIZE, color=CAPTION_INK)
        listening.set_xlabel(canvas.replace_missing(texts.time), fontsize=LABEL_SIZE, color=CAPTION_INK)

        if words:
            axes = canvas.add_axes(0.0, 0.0, width, words_height)
            axes.set_ylim(0, words_height)
            axes.set_xlim(times)
            _draw_words(axes, canvas, words, lanes, seconds / width)
        for panel in (sound, listening):
            panel.set_xlim(times)
            thin_frame(panel)
            for word in words:
                panel.axvline(word.start, color=BOUNDARY_INK, linewidth=0.5, alpha=0.8)
        canvas.write_heading(texts.title, texts.caption)
        draw_color_bar(canvas, shading, name=texts.weight if shading.scale == "linear" else None)
    return canvas.path


def _draw_weights(
    axes: Axes, shades: Shades, times: tuple[float, float], spans: Sequence[tuple[float, float] | None]
) -> None:
    """Draw the weights, and a frame around the time of each word."""
    from matplotlib.patches import Rectangle

    extent = (*times, len(shades) - 0.5, -0.5)
    axes.imshow(shades, cmap=COLOR_MAP, vmin=0, vmax=1, aspect="auto", extent=extent, interpolation="nearest")
    first = 0
    for span, rows in groupby(spans):  # adjacent rows of one word share a frame
        count = len(list(rows))
        if span is not None:
            box = ((span[0], first - 0.5), span[1] - span[0], count)
            axes.add_patch(Rectangle(*box, fill=False, edgecolor=SPAN_INK, linewidth=0.7))
        first += count
    axes.tick_params(axis="x", labelsize=LABEL_SIZE, length=3, width=0.6, color=FRAME)
    axes.tick_params(axis="y", length=2, width=0.6, color=FRAME, pad=3)


def _draw_words(
    axes: Axes, canvas: Canvas, words: Sequence[TimedText], lanes: list[int], seconds_per_inch: float
) -> None:
    """Write the words above the spectrogram, each with a bracket from its start to its end."""
    axes.set_axis_off()
    for word, lane in zip(words, lanes, strict=True):
        low = lane * LANE_HEIGHT
        middle = (word.start + word.end) / 2
        text = canvas.replace_missing(word.text)
        axes.text(middle, low + 0.055, text, ha="center", va="bottom", fontsize=WORD_SIZE)
        space = min(seconds_per_inch * 0.012, (word.end - word.start) / 4)  # between the bars of two words
        ends = [word.start + space, word.end - space]
        axes.plot(ends, [low + 0.03] * 2, color=SPAN_INK, linewidth=1.2, solid_capstyle="butt")
        if lane:
            axes.plot([middle] * 2, [0.0, low + 0.03], color=BOUNDARY_INK, linewidth=0.5)


def _assign_lanes(words: Sequence[TimedText], seconds_per_inch: float) -> list[int]:
    """Return the line of each word, so that neighbours do not overlap; the last line takes what fits nowhere."""
    ends: list[float] = []
    lanes = []
    for word in words:
        half = count_cells(word.text) * WORD_SIZE * LETTER_WIDTH / 72 * seconds_per_inch / 2
        middle = (word.start + word.end) / 2
        free = [lane for lane, end in enumerate(ends) if end <= middle - half]
        lane = free[0] if free else min(len(ends), MAX_LANES - 1)
        if lane == len(ends):
            ends.append(0.0)
        ends[lane] = middle + half + 0.04 * seconds_per_inch
        lanes.append(lane)
    return lanes
