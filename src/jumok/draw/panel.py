"""Draw the parts of a figure: one heat map with its labels and values, and its colour bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from .cell_text import count_cells, format_weight, is_dark
from .checks import Pattern
from .shading import Shades, Shading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

COLOR_MAP = "Blues"
FRAME = "#999999"
NOT_DRAWN = "#e4e4e4"  # the cells of a key that is left out
CAPTION_INK = "#595959"
BAR_WIDTH = 0.09  # inches


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
    shading: Shading,
) -> None:
    """Draw one heat map into existing axes.

    Args:
        axes: matplotlib's axes, whose size must fit cells of ``cell`` inches.
        weights: Weights ``[query, key]`` between 0 and 1.
        query_labels: The labels of the rows, or None to draw none.
        key_labels: The labels of the columns, or None to draw none.
        value_size: The font size of the weights in the cells, or None to draw none.
        keys_on_top: Whether the labels of the keys stand above the map instead of below.
    """
    query_count, key_count = weights.shape
    shades = shading.compute_shades(weights)
    axes.imshow(shades, cmap=COLOR_MAP, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.set_facecolor(NOT_DRAWN)  # visible where a shade is nan
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)
    if cell >= 0.12:
        axes.set_xticks(numpy.arange(key_count - 1) + 0.5, minor=True)
        axes.set_yticks(numpy.arange(query_count - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.0 if cell >= 0.3 else 0.5)
    else:
        _frame_outside(axes, query_count, key_count, cell)
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
        _write_values(axes, weights, shades, value_size)


def _frame_outside(axes: Axes, query_count: int, key_count: int, cell: float) -> None:
    """Draw the frame around the map instead of on its border, where it would cover small cells."""
    from matplotlib.patches import Rectangle

    axes.spines[:].set_visible(False)
    margin = 0.4 / 72 / cell  # in cells
    corner, width, height = (-0.5 - margin, -0.5 - margin), key_count + 2 * margin, query_count + 2 * margin
    axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=FRAME, linewidth=0.6, clip_on=False))


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


def _write_values(axes: Axes, weights: Pattern, shades: Shades, size: float) -> None:
    """Write each weight into its cell, in a colour that contrasts with the background."""
    from matplotlib import colormaps

    colors = colormaps[COLOR_MAP]
    for (query, key), weight in numpy.ndenumerate(weights):
        ink, ink_size = "#8c8c8c", size * 1.6
        if numpy.isnan(shades[query, key]):
            continue
        if weight != 0:
            red, green, blue, _ = colors(float(shades[query, key]))
            ink, ink_size = "white" if is_dark(red, green, blue) else "#1a1a1a", size
        axes.text(key, query, format_weight(weight), ha="center", va="center", fontsize=ink_size, color=ink)


def draw_color_bar(
    figure: Figure,
    width: float,
    height: float,
    *,
    gap: float,
    shading: Shading,
    color_map: str | Colormap = COLOR_MAP,
    name: str = "weight",
) -> None:
    """Draw a colour bar to the right of a figure.

    Args:
        gap: The distance between the maps and the bar in inches.
        name: The name beside a linear scale; other scales explain themselves.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    length = measure_color_bar(height)
    axes = figure.add_axes((1 + gap / width, 1 - length / height, BAR_WIDTH / width, length / height))
    ticks = shading.list_ticks(few=length < 2)
    bar = figure.colorbar(ScalarMappable(norm=Normalize(0.0, 1.0), cmap=color_map), cax=axes)
    bar.set_ticks([shade for shade, _ in ticks], labels=[text for _, text in ticks])
    bar.set_label(name if shading.scale == "linear" else shading.name, fontsize=9)
    style_color_bar(bar)


def measure_color_bar(height: float) -> float:
    """Return the length of a colour bar in inches."""
    # A map of one query is lower than the bar's numbers need, and a tall map needs no bar of its full height.
    return min(max(height, 1.2), 4.0)


def style_color_bar(bar: Colorbar) -> None:
    """Give a colour bar the same thin frame and small numbers as the maps."""
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8, length=2, width=0.6, color=FRAME, pad=2)
    bar.ax.yaxis.label.set_color(CAPTION_INK)
    bar.outline.set_linewidth(0.4)
    bar.outline.set_edgecolor(FRAME)


def draw_heading(figure: Figure, height: float, title: str, caption: str) -> None:
    """Write the title and the caption above the maps of a grid, whose heads have titles of their own.

    Args:
        title: The title, or "".
        caption: A line of smaller text below the title, or "".
    """
    top = 0.32  # inches above the maps
    if caption:
        figure.text(0, 1 + top / height, caption, ha="left", va="bottom", fontsize=8, color=CAPTION_INK)
        top += 0.22
    if title:
        figure.text(0.5, 1 + top / height, title, ha="center", va="bottom", fontsize=12)


def describe_first_key(keys: Sequence[str]) -> str:
    """Return the caption of a map without its first key."""
    return f"without the first key, {keys[0]!r}"


def join_captions(*captions: str) -> str:
    """Join the parts of a caption that are not empty."""
    return "; ".join(caption for caption in captions if caption)
