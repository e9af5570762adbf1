"""Draw line plots and heat maps of signed numbers side by side in one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .checks import check_image_path
from .effect_map import EFFECT_COLOR_MAP
from .figure import FigureFonts, create_figure, open_figure_style, save_figure
from .line_plot import Points, draw_lines
from .panel import style_color_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 5.2, 3.6  # inches


@dataclass(frozen=True)
class LinePanel:
    """One line for each series of points, over a logarithmic x axis.

    Attributes:
        title: The title above the plot.
        series: The points ``(x, y)`` of each line by its name; every x is positive.
        across: The label of the x axis.
        vertical: The label of the y axis.
        limits: The ends of the y axis; default: around the points.
    """

    title: str
    series: Mapping[str, Points]
    across: str
    vertical: str
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class MapPanel:
    """A heat map of signed numbers: red is negative, white is 0, blue is positive.

    Attributes:
        title: The title above the map.
        numbers: The numbers ``[row, column]``.
        across: The label of the x axis.
        vertical: The label of the y axis.
    """

    title: str
    numbers: ArrayLike
    across: str
    vertical: str


def save_panel_row(target: str | Path, panels: Sequence[LinePanel | MapPanel]) -> Path:
    """Write a PNG or SVG image with panels from left to right, and return its path.

    Panels with the same lines share the legend of the first of them.

    Args:
        target: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        panels: The panels, at least one.

    Raises:
        DrawError: If the suffix is unknown, there is no panel, matplotlib is missing, or the file cannot be written.
    """
    path = check_image_path(target)
    if not panels:
        raise DrawError("There is nothing to draw; give at least one panel.")
    texts = [text for panel in panels for text in (panel.title, panel.across, panel.vertical)]
    texts += [name for panel in panels if isinstance(panel, LinePanel) for name in panel.series]
    with open_figure_style(texts) as fonts:
        figure = create_figure(PANEL_WIDTH * len(panels), PANEL_HEIGHT)
        figure.set_layout_engine("constrained", w_pad=0.15)
        explained: set[tuple[str, ...]] = set()  # names of lines that a legend explains
        for index, panel in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), index)
            if isinstance(panel, LinePanel):
                _draw_line_panel(axes, panel, fonts)
                legend = axes.get_legend()
                if legend is not None and tuple(panel.series) in explained:
                    legend.remove()
                explained.add(tuple(panel.series))
            else:
                _draw_map_panel(figure, axes, panel, fonts)
        return save_figure(figure, path)


def _draw_line_panel(axes: Axes, panel: LinePanel, fonts: FigureFonts) -> None:
    lines = {name: points for name, points in panel.series.items() if points}
    draw_lines(axes, lines, fonts, title=panel.title, across=panel.across, vertical=panel.vertical, log_across=True)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)


def _draw_map_panel(figure: Figure, axes: Axes, panel: MapPanel, fonts: FigureFonts) -> None:
    numbers = numpy.asarray(panel.numbers, dtype=numpy.float64)
    if numbers.ndim != 2 or numbers.size == 0 or not numpy.isfinite(numbers).all():
        raise DrawError(f"A map needs finite numbers [row, column], not an array of the shape {numbers.shape}.")
    limit = float(abs(numbers).max()) or 1.0  # a map of zeros still needs a scale
    image = axes.imshow(numbers, cmap=EFFECT_COLOR_MAP, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.set_title(fonts.replace_missing(panel.title))
    axes.set_xlabel(fonts.replace_missing(panel.across))
    axes.set_ylabel(fonts.replace_missing(panel.vertical))
    style_color_bar(figure.colorbar(image, ax=axes, pad=0.02, aspect=30))
