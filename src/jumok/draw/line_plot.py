"""Plot numbers over steps as lines, such as the loss of a training run, alone or side by side with maps of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .effect_map import EFFECT_COLOR_MAP
from .figure import Canvas, open_canvas
from .panel import style_color_bar

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Points = Sequence[tuple[int | float, int | float]]

# the first, a grey, suits long noisy series
COLOURS = ("#7a8793", "#0b6e8f", "#b4552d", "#3f7d3a", "#8a5aa8", "#c79a1e", "#222222", "#c2518b")
MARKERS = "osd^vPXD"
LARGEST_MARKER, SMALLEST_MARKER = 7, 3
MARKER_LIMIT = 60  # series with fewer points show a marker at each of them
MOST_INSIDE = 4  # names in a legend inside the plot; a longer one would cover lines, and stands beside the plot
PLOT_WIDTH, PLOT_HEIGHT = 6.4, 3.6  # inches
PANEL_WIDTH, PANEL_HEIGHT = 5.2, 3.6  # inches of one of several panels


@dataclass(frozen=True)
class LinePanel:
    """A line plot, one of several that are drawn side by side."""

    series: Mapping[str, Points]  # the points (x, y) of each line by its name; series without points are omitted
    title: str = ""
    across: str = "step"  # the label of the x axis
    vertical: str = ""  # the label of the y axis
    log_across: bool = False  # a logarithmic x axis, with a tick at every point; all x must be positive
    log_vertical: bool = False  # a logarithmic y axis; all y must be positive
    from_zero: bool = False  # whether the y axis begins at 0
    limits: tuple[float, float] | None = None  # of the y axis; None = around the points
    mark: int | float | None = None  # the x of a dotted vertical line


@dataclass(frozen=True)
class MapPanel:
    """A heat map of signed numbers: red is negative, white is 0, blue is positive."""

    title: str
    numbers: ArrayLike  # [row, column]
    across: str  # the label of the x axis
    vertical: str  # the label of the y axis


class _LineStyle(NamedTuple):
    """How a line is drawn; the marker is matplotlib's letter."""

    colour: str
    marker: str
    size: float


def save_line_plot(
    series: Mapping[str, Points],
    target: str | Path,
    *,
    title: str = "",
    across: str = "step",
    vertical: str = "",
    log_across: bool = False,
    log_vertical: bool = False,
) -> Path:
    """Write an image with one line for each series, and return its path; the arguments are those of ``LinePanel``."""
    panel = LinePanel(series, title, across, vertical, log_across, log_vertical)
    with open_canvas(target, _list_texts(panel)) as canvas:
        canvas.resize(PLOT_WIDTH, PLOT_HEIGHT)
        axes = canvas.figure.add_subplot()
        styles = {name: style._replace(marker="o", size=3) for name, style in _select_line_styles([panel]).items()}
        _draw_line_panel(axes, panel, styles, canvas)
        if len(styles) > MOST_INSIDE:
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif styles:
            axes.legend(frameon=False)
    return canvas.path


def save_panel_row(target: str | Path, panels: Sequence[LinePanel | MapPanel]) -> Path:
    """Write an image with panels from left to right and one legend below them, and return its path.

    A line has the same colour and marker in every panel.
    """
    if not panels:
        raise DrawError("there is nothing to draw; give at least one panel")
    plots = [panel for panel in panels if isinstance(panel, LinePanel)]
    texts = [text for panel in panels for text in _list_texts(panel)]
    styles = _select_line_styles(plots)
    with open_canvas(target, texts) as canvas:
        canvas.resize(PANEL_WIDTH * len(panels), PANEL_HEIGHT)
        figure = canvas.figure
        figure.set_layout_engine("constrained", w_pad=0.15)
        handles: dict[str, Artist] = {}
        for index, panel in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), index)
            if isinstance(panel, LinePanel):
                _draw_line_panel(axes, panel, styles, canvas)
                artists, names = axes.get_legend_handles_labels()
                handles.update(zip(names, artists, strict=True))
            else:
                _draw_map_panel(axes, panel, canvas)
        if handles:
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False
            )
    return canvas.path


def _list_texts(panel: LinePanel | MapPanel) -> list[str]:
    names = panel.series if isinstance(panel, LinePanel) else ()
    return [panel.title, panel.across, panel.vertical, *names]


def _select_line_styles(panels: Sequence[LinePanel]) -> dict[str, _LineStyle]:
    """Return the style of each name. Later markers are smaller, so that a marker below them remains visible."""
    names = dict.fromkeys(name for panel in panels for name, points in panel.series.items() if points)
    styles = {}
    for index, name in enumerate(names):
        size = LARGEST_MARKER - (LARGEST_MARKER - SMALLEST_MARKER) * index / len(names)
        styles[name] = _LineStyle(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], size)
    return styles


def _draw_line_panel(axes: Axes, panel: LinePanel, styles: Mapping[str, _LineStyle], canvas: Canvas) -> None:
    """Draw a line plot without a legend into existing axes."""
    from matplotlib.ticker import LogFormatter

    lines = {name: points for name, points in panel.series.items() if points}
    for name, points in lines.items():
        style = styles[name]
        is_short = len(points) < MARKER_LIMIT
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=style.colour,
            linewidth=1.6 if is_short else 1.0,
            marker=style.marker if is_short else None,
            markersize=style.size,
            label=canvas.replace_missing(name),
        )
    axes.set_title(canvas.replace_missing(panel.title))
    axes.set_xlabel(canvas.replace_missing(panel.across))
    axes.set_ylabel(canvas.replace_missing(panel.vertical))
    if panel.log_across:
        ticks = sorted({x for points in lines.values() for x, _ in points})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
    if panel.log_vertical:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
        # about one decade or less: minor ticks have labels too, which are formulas by default; those are not rendered
        axes.yaxis.set_minor_formatter(LogFormatter())
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    if panel.mark is not None:
        axes.axvline(panel.mark, color=COLOURS[0], linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)


def _draw_map_panel(axes: Axes, panel: MapPanel, canvas: Canvas) -> None:
    numbers = numpy.asarray(panel.numbers, dtype=numpy.float64)
    if numbers.ndim != 2 or numbers.size == 0 or not numpy.isfinite(numbers).all():
        raise DrawError(f"a map needs finite numbers [row, column], not an array of the shape {numbers.shape}")
    limit = float(abs(numbers).max()) or 1.0  # a map of zeros still needs a scale
    image = axes.imshow(numbers, cmap=EFFECT_COLOR_MAP, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.locator_params(integer=True)  # rows and columns are counted
    axes.set_title(canvas.replace_missing(panel.title))
    axes.set_xlabel(canvas.replace_missing(panel.across))
    axes.set_ylabel(canvas.replace_missing(panel.vertical))
    style_color_bar(canvas.figure.colorbar(image, ax=axes, pad=0.02, aspect=30))
