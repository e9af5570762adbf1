"""Draw line plots and heat maps of signed numbers side by side in one image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .checks import check_image_path
from .effect_map import EFFECT_COLOR_MAP
from .figure import FigureFonts, create_figure, open_figure_style, save_figure
from .line_plot import LinePanel, draw_line_panel, list_texts, select_line_styles
from .panel import style_color_bar

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 5.2, 3.6  # inches


@dataclass(frozen=True)
class MapPanel:
    """A heat map of signed numbers: red is negative, white is 0, blue is positive.

    Attributes:
        numbers: The numbers ``[row, column]``.
        across: The label of the x axis.
        vertical: The label of the y axis.
    """

    title: str
    numbers: ArrayLike
    across: str
    vertical: str


def save_panel_row(target: str | Path, panels: Sequence[LinePanel | MapPanel]) -> Path:
    """Write a PNG or SVG image with panels from left to right and one legend below them, and return its path.

    A line has the same colour and marker in every panel.

    Args:
        target: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        panels: The panels, at least one.

    Raises:
        DrawError: If the suffix is unknown, there is no panel, matplotlib is missing, or the file cannot be written.
    """
    path = check_image_path(target)
    if not panels:
        raise DrawError("There is nothing to draw; give at least one panel.")
    plots = [panel for panel in panels if isinstance(panel, LinePanel)]
    texts = [text for panel in plots for text in list_texts(panel)]
    texts += [text for panel in panels for text in (panel.title, panel.across, panel.vertical)]
    styles = select_line_styles(plots)
    with open_figure_style(texts) as fonts:
        figure = create_figure(PANEL_WIDTH * len(panels), PANEL_HEIGHT)
        figure.set_layout_engine("constrained", w_pad=0.15)
        handles: dict[str, Artist] = {}
        for index, panel in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), index)
            if isinstance(panel, LinePanel):
                draw_line_panel(axes, panel, styles, fonts)
                artists, names = axes.get_legend_handles_labels()
                handles.update(zip(names, artists, strict=True))
            else:
                _draw_map_panel(figure, axes, panel, fonts)
        if handles:
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False
            )
        return save_figure(figure, path)


def _draw_map_panel(figure: Figure, axes: Axes, panel: MapPanel, fonts: FigureFonts) -> None:
    numbers = numpy.asarray(panel.numbers, dtype=numpy.float64)
    if numbers.ndim != 2 or numbers.size == 0 or not numpy.isfinite(numbers).all():
        raise DrawError(f"A map needs finite numbers [row, column], not an array of the shape {numbers.shape}.")
    limit = float(abs(numbers).max()) or 1.0  # a map of zeros still needs a scale
    image = axes.imshow(numbers, cmap=EFFECT_COLOR_MAP, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.locator_params(integer=True)  # rows and columns are counted
    axes.set_title(fonts.replace_missing(panel.title))
    axes.set_xlabel(fonts.replace_missing(panel.across))
    axes.set_ylabel(fonts.replace_missing(panel.vertical))
    style_color_bar(figure.colorbar(image, ax=axes, pad=0.02, aspect=30))
