"""Write images side by side, each with its expected and its predicted text below."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numpy.typing import ArrayLike

from jumok.draw.cell_text import count_cells, truncate
from jumok.draw.checks import Pixels, check_image_path, check_pixels
from jumok.draw.figure import create_figure, open_figure_style, save_figure
from jumok.errors import DrawError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGE_SIDE = 1.2  # inches
GAP = 0.5  # inches between two images, so that sentences have room
LINE_HEIGHT = 0.15  # inches of a line of text
CAPTION_CELLS = 24  # the longest line, in terminal cells
CAPTION_LINES = 2  # the most lines of a text
EXPECTED_COLOUR, RIGHT_COLOUR, WRONG_COLOUR = "#333333", "#3f7d3a", "#b4552d"


class CaptionLine(NamedTuple):
    """One line of text below an image."""

    text: str
    colour: str


def save_gallery(
    path: str | os.PathLike[str],
    images: Sequence[ArrayLike],
    expected: Sequence[str],
    predicted: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
) -> Path:
    """Write images with captions as one PNG or SVG file, and return its path.

    Below each image stand its expected and its predicted text; the latter is green if they are equal, otherwise red.

    Args:
        path: Where to write the file; the suffix ``.png`` or ``.svg`` selects the format.
        images: The images, bytes (uint8) of ``[row, column]`` or ``[row, column, 3]``.
        predicted: The model's text for each image.
        title: The title above the images; default: none.

    Raises:
        DrawError: If the numbers of images and texts differ, or an image has another type or shape.

    >>> import numpy
    >>> save_gallery("sheet.png", [numpy.zeros((28, 28), numpy.uint8)], ["7"], ["1"])  # doctest: +SKIP
    PosixPath('sheet.png')
    """
    target = check_image_path(path)
    if not len(images) == len(expected) == len(predicted) or not images:
        raise DrawError(
            f"There are {len(images)} images, {len(expected)} expected texts and {len(predicted)} predicted texts; "
            "give the same number of each, at least one."
        )
    pixels = [check_pixels(image, f"Image {index}") for index, image in enumerate(images)]
    columns = min(columns, len(pixels))
    rows = math.ceil(len(pixels) / columns)

    with open_figure_style([title, *expected, *predicted]) as fonts:
        captions = []
        for correct, answer in zip(expected, predicted, strict=True):
            colour = RIGHT_COLOUR if correct == answer else WRONG_COLOUR
            captions.append(
                [CaptionLine(line, EXPECTED_COLOUR) for line in wrap_text(fonts.replace_missing(correct))]
                + [CaptionLine(line, colour) for line in wrap_text(fonts.replace_missing(answer))]
            )
        tallest = max(len(lines) for lines in captions)
        across, down = IMAGE_SIDE + GAP, IMAGE_SIDE + (tallest + 1) * LINE_HEIGHT
        width, height = across * columns - GAP, down * rows

        figure = create_figure(width, height)
        for index, (image, lines) in enumerate(zip(pixels, captions, strict=True)):
            row, column = divmod(index, columns)
            _draw_image(figure, image, lines, across * column, down * row, width, height)
        if title:
            figure.text(0.5, 1 + 0.15 / height, fonts.replace_missing(title), ha="center", va="bottom", fontsize=11)
        return save_figure(figure, target)


def _draw_image(
    figure: Figure, image: Pixels, lines: list[CaptionLine], x: float, y: float, width: float, height: float
) -> None:
    """Draw one image and its caption, ``x`` inches from the left and ``y`` inches from the top of the figure."""
    left, top = x / width, 1 - y / height
    axes = figure.add_axes((left, top - IMAGE_SIDE / height, IMAGE_SIDE / width, IMAGE_SIDE / height))
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()
    for number, line in enumerate(lines):
        middle = left + IMAGE_SIDE / 2 / width
        bottom = top - (IMAGE_SIDE + (number + 0.8) * LINE_HEIGHT) / height
        figure.text(middle, bottom, line.text, ha="center", va="center", fontsize=7, color=line.colour)


def wrap_text(text: str, width: int = CAPTION_CELLS, lines: int = CAPTION_LINES) -> list[str]:
    """Break a text at spaces into lines, and shorten what does not fit.

    Args:
        width: The largest width of a line, in terminal cells.

    >>> wrap_text("woman in manual wheelchair facing right", 16)
    ['woman in manual', 'wheelchair faci…']
    """
    wrapped: list[str] = []
    for word in text.split(" "):
        if wrapped and (count_cells(f"{wrapped[-1]} {word}") <= width or len(wrapped) == lines):
            wrapped[-1] += f" {word}"
        else:
            wrapped.append(word)
    return [truncate(line, width) for line in wrapped]
