"""Small pictures side by side, each with what it is and what a model said of it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import cells, cut
from .checks import picture_path
from .sheet import new_figure, sheet_for, write

SIDE = 1.2  # inches of a picture
GAP = 0.5  # between two pictures, so that sentences have room
LINE = 0.15  # inches of a line of text
CELLS = 24  # of a line, at most
LINES = 2  # of a text, at most
WANTED, RIGHT, WRONG = "#333333", "#3f7d3a", "#b4552d"


def gallery(
    path: str | os.PathLike[str],
    pictures: Sequence[ArrayLike],
    wanted: Sequence[str],
    found: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
) -> Path:
    """Write pictures (bytes, [row, column] or [row, column, 3]) as a PNG or SVG sheet and return the path.

    Under each stands what is ``wanted`` of it and what was ``found``: green where they are equal, red where not.

    >>> gallery("sheet.png", [numpy.zeros((28, 28), numpy.uint8)], ["7"], ["1"])  # doctest: +SKIP
    PosixPath('sheet.png')
    """
    target = picture_path(path)
    if not len(pictures) == len(wanted) == len(found) or not pictures:
        raise DrawError(
            f"There are {len(pictures)} pictures, {len(wanted)} texts for them and {len(found)} answers; give as many "
            "of each, and at least one."
        )
    drawn = [_checked(place, one) for place, one in enumerate(pictures)]
    columns = min(columns, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    with sheet_for([title, *wanted, *found]) as sheet:
        under = [[wrapped(sheet.text(text)) for text in both] for both in zip(wanted, found, strict=True)]
        tallest = max(len(above) + len(below) for above, below in under)
        across, down = SIDE + GAP, SIDE + (tallest + 1) * LINE
        width, height = across * columns - GAP, down * rows
        figure = new_figure(width, height)
        for place, (picture, (above, below)) in enumerate(zip(drawn, under, strict=True)):
            row, column = divmod(place, columns)
            left, top = across * column / width, 1 - down * row / height
            axes = figure.add_axes((left, top - SIDE / height, SIDE / width, SIDE / height))
            axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()
            colour = RIGHT if wanted[place] == found[place] else WRONG
            told = [*((line, WANTED) for line in above), *((line, colour) for line in below)]
            for number, (line, ink) in enumerate(told):
                middle, bottom = left + SIDE / 2 / width, top - (SIDE + (number + 0.8) * LINE) / height
                figure.text(middle, bottom, line, ha="center", va="center", fontsize=7, color=ink)
        if title:
            figure.text(0.5, 1 + 0.15 / height, sheet.text(title), ha="center", va="bottom", fontsize=11)
        return write(figure, target)


def wrapped(text: str, width: int = CELLS, lines: int = LINES) -> list[str]:
    """A text in lines of at most ``width`` cells, broken at spaces; what is more than ``lines`` is cut.

    >>> wrapped("woman in manual wheelchair facing right", 16)
    ['woman in manual', 'wheelchair faci…']
    """
    found: list[str] = []
    for word in text.split(" "):
        if found and (cells(f"{found[-1]} {word}") <= width or len(found) == lines):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return [cut(line, width) for line in found]


def _checked(place: int, picture: ArrayLike) -> numpy.ndarray:
    array = numpy.asarray(picture)
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise DrawError(
            f"Picture {place} is {array.dtype} {array.shape}; give bytes of [row, column] or [row, column, 3]."
        )
    return array
