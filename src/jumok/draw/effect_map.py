"""Write effects as a PNG or SVG image: layers by heads or by positions, with a diverging colour scale."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy
from jaxtyping import Float64
from numpy import ndarray
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .figure import CAPTION_INK, open_canvas
from .panel import add_color_bar, measure_color_bar, paint_cells, separate_cells, write_values

EFFECT_COLOR_MAP = "RdBu"  # red: negative, white: 0, blue: positive
VALUES_LIMIT = 400  # cells up to which the effect is written into each of them
CAPTION = "red: the metric falls without the head; blue: it rises; white: no effect"

EffectTable = Float64[ndarray, "layer head"]


def save_effect_map(
    path: str | os.PathLike[str],
    effects: ArrayLike,
    layers: Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    column_axis: str = "head",
    row_axis: str = "layer",
    quantity: str = "effect",
    title: str = "",
    caption: str = CAPTION,
) -> Path:
    """Write effects as a heat map, a row for each layer and a column for each head, and return the path of the image.

    Args:
        effects: Effects ``[layer, head]``; nan where a layer has no such head.
        layers: The label of each row; default: numbers from 0.
        columns: The label of each column; default: numbers from 0.

    >>> save_effect_map("effects.png", [[-2.5, 0.1], [0.0, 0.4]])  # doctest: +SKIP
    PosixPath('effects.png')
    """
    table = _check_effects(effects)
    layers = [str(layer) for layer in range(len(table))] if layers is None else layers
    if len(layers) != len(table):
        raise DrawError(f"there are {len(layers)} labels but {len(table)} layers; give one label for each layer")
    columns = [str(column) for column in range(table.shape[1])] if columns is None else columns
    if len(columns) != table.shape[1]:
        raise DrawError(f"there are {len(columns)} labels but {table.shape[1]} columns; give one label for each")
    has_values = table.size <= VALUES_LIMIT
    cell_width = cell_height = 0.24  # inches
    if has_values:  # the cells of a small table are larger
        cell_width = min(1.05, max(0.58, 3.2 / table.shape[1]))
        cell_height = min(0.62, max(0.34, 2.5 / table.shape[0]))
    width, height = cell_width * table.shape[1], cell_height * table.shape[0]
    line = width + 0.75  # inches, with the colour bar and its numbers
    limit = float(numpy.nanmax(abs(table))) or 1.0  # an all-zero table still needs a scale
    shades = 0.5 + table / limit / 2
    with open_canvas(path, [*layers, *columns, row_axis, column_axis, quantity, title, caption]) as canvas:
        from matplotlib.ticker import MaxNLocator

        canvas.resize(width, height)
        axes = canvas.add_axes(0.0, 0.0, width, height)
        paint_cells(axes, shades, EFFECT_COLOR_MAP)
        if has_values:
            separate_cells(axes, table.shape)
            size = min(12.0, cell_height * 72 * 0.31)
            write_values(axes, table, shades, EFFECT_COLOR_MAP, _format_effect, size)
        axes.set_yticks(range(len(layers)), canvas.format_labels(layers))
        axes.set_ylabel(canvas.replace_missing(row_axis), fontsize=9)
        axes.set_xticks(range(table.shape[1]), canvas.format_labels(columns))
        axes.set_xlabel(canvas.replace_missing(column_axis), fontsize=9)
        if title:
            text = _wrap(canvas.replace_missing(title), line, 11.0)
            axes.set_title(text, fontsize=11, pad=8, loc="left")
        length = measure_color_bar(height)
        if caption:
            text = _wrap(canvas.replace_missing(caption), line, 8.0, separator=";")
            below = max(height + 0.55, length + 0.15)
            canvas.figure.text(0, 1 - below / height, text, ha="left", va="top", fontsize=8, color=CAPTION_INK)
        ticks = MaxNLocator(2 if length < 2 else 4, symmetric=True)
        add_color_bar(canvas, 0.2, (-limit, limit), EFFECT_COLOR_MAP, canvas.replace_missing(quantity), ticks)
    return canvas.path


def _wrap(text: str, width: float, font_size: float, separator: str = "") -> str:
    """Break a text that is wider than ``width`` inches into lines, after each separator and where it is still wider."""
    letters = max(16, int(width * 72 / font_size / 0.55))  # a letter is about 0.55 of the font size wide
    if len(text) <= letters:
        return text
    parts = text.replace(f"{separator} ", f"{separator}\n").split("\n") if separator else [text]
    return "\n".join(textwrap.fill(part, letters, break_long_words=False) for part in parts)


def _check_effects(effects: ArrayLike) -> EffectTable:
    """Return the effects as float64 ``[layer, head]``, or raise a DrawError."""
    try:
        table = numpy.asarray(effects, dtype=numpy.float64)
    except (TypeError, ValueError) as error:
        raise DrawError(f"the effects cannot be read as numbers ({error}); give a table [layer, head]") from error
    if table.ndim != 2 or table.size == 0:
        raise DrawError(f"the effects have the shape {table.shape}; give a table [layer, head] with at least one head")
    if numpy.isinf(table).any() or numpy.isnan(table).all():
        raise DrawError("the effects must be finite numbers; only heads that a layer does not have may be nan")
    return table


def _format_effect(effect: float) -> str:
    """Return an effect with its sign and two decimals; one that rounds to zero has no sign."""
    text = f"{effect:+.2f}"
    return text[1:] if float(text) == 0 else text
