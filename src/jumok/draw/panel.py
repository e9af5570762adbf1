"""Draw the parts of a figure: one heat map with its labels and values, and the colour bar beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy

from .cell_text import count_cells, format_weight, is_dark
from .checks import Pattern

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOR_MAP = "Blues"
FRAME = "#999999"


def draw_map(
    axes: Axes,
    weights: Pattern,
    query_labels: list[str] | None,
    key_labels: list[str] | None,
    *,
    cell: float,
    label_size: float,
    value_size: float | None,
    keys_on_top: bool,
) -> None:
    """Draw one heat map into existing axes.

    Args:
        axes: matplotlib's axes, whose size must fit cells of ``cell`` inches.
        weights: Weights ``[query, key]`` between 0 and 1.
        query_labels: The labels of the rows, or None to draw none.
        key_labels: The labels of the columns, or None to draw none.
        cell: The side of a cell in inches.
        label_size: The font size of the labels in points.
        value_size: The font size of the weights in the cells, or None to draw none.
        keys_on_top: Whether the labels of the keys stand above the map instead of below.
    """
    query_count, key_count = weights.shape
    axes.imshow(weights, cmap=COLOR_MAP, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)
    if cell >= 0.12:
        axes.set_xticks(numpy.arange(key_count - 1) + 0.5, minor=True)
        axes.set_yticks(numpy.arange(query_count - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0 if cell >= 0.3 else 0.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(which="major", length=2, width=0.6, color=FRAME, labelsize=label_size, pad=3)
    if keys_on_top:
        axes.tick_params(axis="x", which="major", top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.xaxis.set_label_position("top")

    # Where cells are lower than a line of text, only every step-th label has room.
    step = max(1, math.ceil(label_size * 1.2 / 72 / cell))
    if query_labels is None:
        axes.set_yticks([])
    else:
        axes.set_yticks(range(0, query_count, step), query_labels[::step])
    if key_labels is None:
        axes.set_xticks([])
    else:
        axes.set_xticks(range(0, key_count, step), key_labels[::step])
        _rotate_key_labels(axes, max(count_cells(label) for label in key_labels), cell * step, label_size, keys_on_top)
    if value_size is not None:
        _write_values(axes, weights, value_size)


def _rotate_key_labels(axes: Axes, longest: int, room: float, label_size: float, keys_on_top: bool) -> None:
    """Rotate the labels of the keys if the longest one (in terminal cells) is wider than ``room`` inches."""
    # The width of a terminal cell is about 0.6 of the font size.
    if longest * label_size * 0.62 / 72 <= room * 0.9:
        return
    is_slanted = room >= label_size * 2.1 / 72
    for label in axes.get_xticklabels():
        label.set_rotation(45 if is_slanted else 90)
        if is_slanted:
            label.set_rotation_mode("anchor")
            label.set_horizontalalignment("left" if keys_on_top else "right")
            label.set_verticalalignment("center")


def _write_values(axes: Axes, weights: Pattern, size: float) -> None:
    """Write each weight into its cell, in a colour that contrasts with the background."""
    from matplotlib import colormaps

    colors = colormaps[COLOR_MAP]
    for (query, key), weight in numpy.ndenumerate(weights):
        ink, ink_size = "#8c8c8c", size * 1.6
        if weight != 0:
            red, green, blue, _ = colors(float(weight))
            ink, ink_size = "white" if is_dark(red, green, blue) else "#1a1a1a", size
        axes.text(key, query, format_weight(weight), ha="center", va="center", fontsize=ink_size, color=ink)


def draw_color_bar(figure: Figure, width: float, height: float, *, gap: float) -> None:
    """Draw a colour bar from 0 to 1 to the right of a figure.

    Args:
        figure: The figure with the heat maps.
        width: The width of the figure in inches.
        height: The height of the figure in inches.
        gap: The distance between the maps and the bar in inches.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    # A map of one query is lower than the bar's numbers need, and a tall map needs no bar of its full height.
    length = min(max(height, 1.2), 5.0)
    axes = figure.add_axes((1 + gap / width, 1 - length / height, 0.14 / width, length / height))
    bar = figure.colorbar(
        ScalarMappable(norm=Normalize(0.0, 1.0), cmap=COLOR_MAP),
        cax=axes,
        ticks=[0, 0.2, 0.4, 0.6, 0.8, 1] if length >= 1.6 else [0, 0.5, 1],
        format="{x:.1f}",
    )
    bar.set_label("weight", fontsize=9)
    axes.tick_params(labelsize=8, length=2, width=0.6, color=FRAME)
    bar.outline.set_linewidth(0.6)
    bar.outline.set_edgecolor(FRAME)
