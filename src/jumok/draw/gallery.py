"""Write images side by side, each with its expected and its predicted text below."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import count_cells, truncate
from .checks import check_pixels
from .figure import open_canvas

IMAGE_SIDE = 1.2  # inches
GAP = 0.5  # inches between two images, so that sentences have room
LINE_HEIGHT = 0.15  # inches of a line of text
CAPTION_CELLS = 24  # the longest line, in terminal cells
CAPTION_LINES = 2  # the most lines of a text
EXPECTED_COLOUR, RIGHT_COLOUR, WRONG_COLOUR = "#333333", "#3f7d3a", "#b4552d"


def save_gallery(
    path: str | os.PathLike[str],
    images: Sequence[ArrayLike],
    expected: Sequence[str],
    predicted: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
) -> Path:
    """Write images with captions as one image, and return its path.

    Below each image stand its expected and its predicted text; the latter is green if they are equal, otherwise red.

    Args:
        images: The images, bytes (uint8) of ``[row, column]`` or ``[row, column, 3]``.
        predicted: The model's text for each image.

    >>> import numpy
    >>> save_gallery("sheet.png", [numpy.zeros((28, 28), numpy.uint8)], ["7"], ["1"])  # doctest: +SKIP
    PosixPath('sheet.png')
    """
    if not len(images) == len(expected) == len(predicted) or not images:
        raise DrawError(
            f"There are {len(images)} images, {len(expected)} expected texts and {len(predicted)} predicted texts; "
            "give the same number of each, at least one."
        )
    pixels = [check_pixels(image, f"Image {index}") for index, image in enumerate(images)]
    columns = min(columns, len(pixels))
    rows = math.ceil(len(pixels) / columns)

    with open_canvas(path, [title, *expected, *predicted]) as canvas:
        captions = []
        for correct, answer in zip(expected, predicted, strict=True):
            colour = RIGHT_COLOUR if correct == answer else WRONG_COLOUR
            lines = [(line, EXPECTED_COLOUR) for line in wrap_text(canvas.replace_missing(correct))]
            captions.append([*lines, *((line, colour) for line in wrap_text(canvas.replace_missing(answer)))])
        tallest = max(len(lines) for lines in captions)
        across, down = IMAGE_SIDE + GAP, IMAGE_SIDE + (tallest + 1) * LINE_HEIGHT
        canvas.resize(across * columns - GAP, down * rows)

        for index, (image, lines) in enumerate(zip(pixels, captions, strict=True)):
            row, column = divmod(index, columns)
            left, top = across * column, down * row
            axes = canvas.add_axes(left, top, IMAGE_SIDE, IMAGE_SIDE)
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()
            middle = left + IMAGE_SIDE / 2
            for number, (line, colour) in enumerate(lines):
                below = top + IMAGE_SIDE + (number + 0.8) * LINE_HEIGHT
                canvas.write(middle, below, line, ha="center", va="center", fontsize=7, color=colour)
        if title:
            canvas.write(canvas.width / 2, -0.15, title, ha="center", va="bottom", fontsize=11)
    return canvas.path


def wrap_text(text: str, width: int = CAPTION_CELLS, lines: int = CAPTION_LINES) -> list[str]:
    """Break a text at spaces into lines, and shorten what does not fit.

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
