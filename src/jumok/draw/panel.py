"""Paint heat maps: the shades of weights, the cells, labels and values of one map, and its colour bar.

All pictures of maps are painted here. A shade lies between 0 (white) and 1 (dark).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy
from jaxtyping import Float64
from numpy import ndarray

from jumok.errors import DrawError

from .cell_text import ZERO_MARK, count_cells, format_weight, is_dark
from .checks import Pattern
from .figure import CAPTION_INK, Canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from matplotlib.ticker import Locator

COLOR_MAP = "Blues"
FRAME = "#999999"
NOT_DRAWN = "#e4e4e4"  # the cells of a key that is left out
BAR_WIDTH = 0.09  # inches
SCALES = ("linear", "sqrt", "row")
AnyPatterns = Float64[ndarray, "..."]  # maps of several layers, which may have different sizes
Shades = Float64[ndarray, "query key"]  # nan: not drawn


class Shading(NamedTuple):
    """How the weights of a figure become shades.

    With the scale "linear", the shade is proportional to the weight; with "sqrt" to its square root, which makes small
    weights visible; with "row" to the weight divided by the largest weight of its row.
    """

    scale: str = "linear"
    largest: float = 1.0  # the weight of the darkest shade, except for "row"
    # many heads attend to the first token when there is nothing else to attend to (an attention sink)
    skip_first: bool = False

    def compute_shades(self, weights: Pattern) -> Shades:
        """Return a shade between 0 and 1 for each weight; nan in the first column if it is left out."""
        shown = weights.copy()
        if self.skip_first:
            shown[:, 0] = numpy.nan
        if self.scale == "row":
            row_largest = numpy.nanmax(shown, axis=1, initial=0.0, keepdims=True)
            return shown / numpy.where(row_largest > 0, row_largest, 1.0)
        shares = numpy.clip(shown / self.largest, 0.0, 1.0)
        return numpy.sqrt(shares) if self.scale == "sqrt" else shares

    def list_ticks(self, *, few: bool = False) -> list[tuple[float, str]]:
        """Return the ticks of the colour bar, the shade and the text of each; ``few`` are three."""
        if self.scale == "sqrt":
            shares = [0.0, 0.25, 1.0] if few else [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0]
            return [(share**0.5, f"{share * self.largest:.2g}") for share in shares]
        end = 1.0 if self.scale == "row" else self.largest
        return [(share, f"{share * end:.2g}") for share in ((0.0, 0.5, 1.0) if few else (0.0, 0.25, 0.5, 0.75, 1.0))]


def choose_shading(patterns: list[AnyPatterns], scale: str, skip_first: bool = False, largest: float = 1.0) -> Shading:
    """Return the shading of a figure; without the first key, it ends at the largest weight that remains."""
    if scale not in SCALES:
        raise DrawError(f"the colour scale {scale!r} is unknown; choose one of {', '.join(SCALES)}")
    if skip_first:
        if any(weights.shape[-1] < 2 for weights in patterns):
            raise DrawError("the map has one key, and skipping the first key leaves none; draw it without skip_first")
        largest = max(float(weights[..., 1:].max()) for weights in patterns)
    return Shading(scale, largest or 1.0, skip_first)


def paint_map(
    axes: Axes,
    weights: Pattern,
    query_labels: list[str] | None,
    key_labels: list[str] | None,
    *,
    cell: float,
    label_size: float,
    value_size: float | None,
    shading: Shading,
    keys_on_top: bool = False,
) -> None:
    """Draw one heat map of weights into axes whose size fits cells of ``cell`` inches; nothing is drawn for None."""
    query_count, key_count = weights.shape
    shades = shading.compute_shades(weights)
    paint_cells(axes, shades, COLOR_MAP)
    if cell >= 0.12:
        separate_cells(axes, shades.shape, linewidth=1.0 if cell >= 0.3 else 0.5)
    else:
        _frame_outside(axes, query_count, key_count, cell)
    axes.tick_params(which="major", labelsize=label_size)
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
        write_values(axes, weights, shades, COLOR_MAP, format_weight, value_size)


def paint_cells(axes: Axes, shades: Shades, color_map: str) -> None:
    """Paint the cells of a map, with the thin frame and small ticks of all maps; nan is not painted."""
    axes.imshow(shades, cmap=color_map, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.set_facecolor(NOT_DRAWN)
    thin_frame(axes)
    axes.tick_params(which="major", length=2, width=0.6, color=FRAME, labelsize=8, pad=3)


def separate_cells(axes: Axes, shape: tuple[int, ...], linewidth: float = 1.0) -> None:
    """Draw white lines between the cells of a map."""
    axes.set_xticks(numpy.arange(shape[1] - 1) + 0.5, minor=True)
    axes.set_yticks(numpy.arange(shape[0] - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=linewidth)
    axes.tick_params(which="minor", length=0)


def thin_frame(axes: Axes) -> None:
    """Give axes a thin grey frame."""
    axes.spines[:].set_color(FRAME)
    axes.spines[:].set_linewidth(0.6)


def write_values(
    axes: Axes, numbers: Pattern, shades: Shades, color_map: str, format_number: Callable[[float], str], size: float
) -> None:
    """Write each number into its cell, in a colour that contrasts with the background."""
    from matplotlib import colormaps

    for (row, column), number in numpy.ndenumerate(numbers):
        if numpy.isnan(shades[row, column]):
            continue
        text = format_number(number)
        red, green, blue, _ = colormaps[color_map](float(shades[row, column]))
        ink, ink_size = "white" if is_dark(red, green, blue) else "#1a1a1a", size
        if text == ZERO_MARK:
            ink, ink_size = "#8c8c8c", size * 1.6
        axes.text(column, row, text, ha="center", va="center", fontsize=ink_size, color=ink)


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


def draw_color_bar(
    canvas: Canvas,
    shading: Shading,
    *,
    gap: float = 0.2,
    color_map: str | Colormap = COLOR_MAP,
    name: str | None = None,
) -> None:
    """Draw the colour bar of a shading to the right of a figure, ``gap`` inches from the maps.

    ``name`` stands beside the bar; by default it is English, and says which scale it is.
    """
    names = {"row": "share of the row's largest weight", "sqrt": "weight (square-root scale)"}
    bar = add_color_bar(canvas, gap, (0.0, 1.0), color_map, name or names.get(shading.scale, "weight"))
    ticks = shading.list_ticks(few=measure_color_bar(canvas.height) < 2)
    bar.set_ticks([shade for shade, _ in ticks], labels=[text for _, text in ticks])


def add_color_bar(
    canvas: Canvas,
    gap: float,
    limits: tuple[float, float],
    color_map: str | Colormap,
    name: str,
    ticks: Locator | None = None,
) -> Colorbar:
    """Add a colour bar with its name to the right of a figure."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = canvas.add_axes(canvas.width + gap, 0.0, BAR_WIDTH, measure_color_bar(canvas.height))
    bar = canvas.figure.colorbar(ScalarMappable(Normalize(*limits), color_map), cax=axes, ticks=ticks)
    bar.set_label(name, fontsize=9)
    style_color_bar(bar)
    return bar


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


def join_captions(*captions: str) -> str:
    """Join the parts of a caption that are not empty."""
    return "; ".join(caption for caption in captions if caption)
