"""Write effects as a PNG or SVG image: layers by heads or by positions, with a diverging colour scale."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from jaxtyping import Float64
from numpy import ndarray
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import is_dark
from .checks import check_image_path
from .figure import create_figure, open_figure_style, save_figure
from .panel import BAR_WIDTH, CAPTION_INK, FRAME, NOT_DRAWN, measure_color_bar, style_color_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        effects: Effects ``[layer, head]``; nan where a layer has no such head.
        layers: The label of each row; default: numbers from 0.
        columns: The label of each column; default: numbers from 0.
        column_axis: What the columns are: heads, or for example positions.
        row_axis: What the rows are: layers, or for example positions.
        quantity: What the numbers are: effects, or for example position encodings.
        title: The title above the map; default: none.
        caption: A line below the map; default: what the colours mean.

    Raises:
        DrawError: If the inputs do not fit together, matplotlib is missing, or the file cannot be written.

    >>> save_effect_map("effects.png", [[-2.5, 0.1], [0.0, 0.4]])  # doctest: +SKIP
    PosixPath('effects.png')
    """
    target = check_image_path(path)
    table = _check_effects(effects)
    layers = [str(layer) for layer in range(len(table))] if layers is None else layers
    if len(layers) != len(table):
        raise DrawError(f"There are {len(layers)} labels but {len(table)} layers; give one label for each layer.")
    columns = [str(column) for column in range(table.shape[1])] if columns is None else columns
    if len(columns) != table.shape[1]:
        raise DrawError(f"There are {len(columns)} labels but {table.shape[1]} columns; give one label for each.")
    has_values = table.size <= VALUES_LIMIT
    cell_width, cell_height = _choose_cell_size(*table.shape) if has_values else (0.24, 0.24)
    width, height = cell_width * table.shape[1], cell_height * table.shape[0]
    line = width + 0.75  # inches, with the colour bar and its numbers
    limit = float(numpy.nanmax(abs(table)))
    with open_figure_style([*layers, *columns, title, caption]) as fonts:
        figure = create_figure(width, height)
        axes = figure.add_axes((0, 0, 1, 1))
        # an all-zero table still needs a scale
        value_size = min(12.0, cell_height * 72 * 0.31) if has_values else None
        _draw_effects(axes, table, limit or 1.0, fonts.format_labels(layers), value_size)
        axes.set_ylabel(row_axis, fontsize=9)
        axes.set_xticks(range(table.shape[1]), fonts.format_labels(columns))
        axes.set_xlabel(column_axis, fontsize=9)
        if title:
            axes.set_title(_wrap(fonts.replace_missing(title), line, 11.0), fontsize=11, pad=8, loc="left")
        length = measure_color_bar(height)
        if caption:
            below = max(0.55, length - height + 0.15)
            text = _wrap(fonts.replace_missing(caption), line, 8.0, separator=";")
            figure.text(0, -below / height, text, ha="left", va="top", fontsize=8, color=CAPTION_INK)
        _draw_effect_bar(figure, axes, width, height, length, quantity)
        return save_figure(figure, target)


def _choose_cell_size(layers: int, heads: int) -> tuple[float, float]:
    """Return the width and height of a cell in inches; the cells of a small table are larger."""
    return min(1.05, max(0.58, 3.2 / heads)), min(0.62, max(0.34, 2.5 / layers))


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
        raise DrawError(f"The effects cannot be read as numbers ({error}); give a table [layer, head].") from error
    if table.ndim != 2 or table.size == 0:
        raise DrawError(f"The effects have the shape {table.shape}; give a table [layer, head] with at least one head.")
    if numpy.isinf(table).any() or numpy.isnan(table).all():
        raise DrawError("The effects must be finite numbers; only heads that a layer does not have may be nan.")
    return table


def _draw_effects(axes: Axes, table: EffectTable, limit: float, layers: list[str], value_size: float | None) -> None:
    from matplotlib import colormaps

    axes.imshow(table, cmap=EFFECT_COLOR_MAP, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_facecolor(NOT_DRAWN)  # visible where a layer has no such head
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)
    axes.set_yticks(range(len(layers)), layers)
    axes.tick_params(length=2, width=0.6, color=FRAME, labelsize=8, pad=3)
    if value_size is None:
        return
    axes.set_xticks(numpy.arange(table.shape[1] - 1) + 0.5, minor=True)
    axes.set_yticks(numpy.arange(len(layers) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)
    for (layer, head), effect in numpy.ndenumerate(table):
        if not numpy.isnan(effect):
            red, green, blue, _ = colormaps[EFFECT_COLOR_MAP](0.5 + effect / limit / 2)
            ink = "white" if is_dark(red, green, blue) else "#1a1a1a"
            axes.text(head, layer, _format_effect(effect), ha="center", va="center", fontsize=value_size, color=ink)


def _format_effect(effect: float) -> str:
    """Return an effect with its sign and two decimals; one that rounds to zero has no sign."""
    text = f"{effect:+.2f}"
    return text[1:] if float(text) == 0 else text


def _draw_effect_bar(figure: Figure, axes: Axes, width: float, height: float, length: float, quantity: str) -> None:
    from matplotlib.ticker import MaxNLocator

    bar_axes = figure.add_axes((1 + 0.2 / width, 1 - length / height, BAR_WIDTH / width, length / height))
    ticks = MaxNLocator(2 if length < 2 else 4, symmetric=True)
    bar = figure.colorbar(axes.images[0], cax=bar_axes, ticks=ticks)
    bar.set_label(quantity, fontsize=9)
    style_color_bar(bar)
