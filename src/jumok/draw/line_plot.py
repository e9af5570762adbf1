"""Plot numbers over steps as lines, for example the loss of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .checks import check_image_path
from .figure import FigureFonts, create_figure, open_figure_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[tuple[int | float, int | float]]

# the first, a grey, suits long noisy series
COLOURS = ("#7a8793", "#0b6e8f", "#b4552d", "#3f7d3a", "#8a5aa8", "#c79a1e", "#222222", "#c2518b")
MARKERS = "osd^vPXD"
LARGEST_MARKER, SMALLEST_MARKER = 7, 3
MARKER_LIMIT = 60  # series with fewer points show a marker at each of them
MOST_INSIDE = 4  # names in a legend inside the plot; a longer one would cover lines, and stands beside the plot
PLOT_WIDTH, PLOT_HEIGHT = 6.4, 3.6  # inches


@dataclass(frozen=True)
class LinePanel:
    """A line plot, one of several that are drawn side by side.

    Attributes:
        series: The points ``(x, y)`` of each line by its name; series without points are omitted.
        title: The title above the plot; default: none.
        across: The label of the x axis.
        vertical: The label of the y axis; default: none.
        log_across: Whether the x axis is logarithmic, with a tick at every point; all x must be positive.
        log_vertical: Whether the y axis is logarithmic; all y must be positive.
        from_zero: Whether the y axis begins at 0.
        limits: The ends of the y axis; default: around the points.
        mark: The x of a dotted vertical line; default: none.
    """

    series: Mapping[str, Points]
    title: str = ""
    across: str = "step"
    vertical: str = ""
    log_across: bool = False
    log_vertical: bool = False
    from_zero: bool = False
    limits: tuple[float, float] | None = None
    mark: int | float | None = None


class LineStyle(NamedTuple):
    """How a line is drawn.

    Attributes:
        marker: matplotlib's letter of the marker.
    """

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
    """Write a PNG or SVG image with one line for each series, and return its path.

    Args:
        series: The points ``(x, y)`` of each line by its name; series without points are omitted.
        target: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        title: The title above the plot; default: none.
        across: The label of the x axis.
        vertical: The label of the y axis; default: none.
        log_across: Whether the x axis is logarithmic, with a tick at every point; all x must be positive.
        log_vertical: Whether the y axis is logarithmic; all y must be positive.

    Raises:
        DrawError: If the suffix is unknown, matplotlib is missing, or the file cannot be written.
    """
    path = check_image_path(target)
    panel = LinePanel(series, title, across, vertical, log_across, log_vertical)
    with open_figure_style(list_texts(panel)) as fonts:
        figure = create_figure(PLOT_WIDTH, PLOT_HEIGHT)
        axes = figure.add_subplot()
        styles = {name: style._replace(marker="o", size=3) for name, style in select_line_styles([panel]).items()}
        draw_line_panel(axes, panel, styles, fonts)
        if len(styles) > MOST_INSIDE:
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif styles:
            axes.legend(frameon=False)
        return save_figure(figure, path)


def list_texts(panel: LinePanel) -> list[str]:
    """Return all texts of a plot, for the choice of a font."""
    return [panel.title, panel.across, panel.vertical, *panel.series]


def select_line_styles(panels: Sequence[LinePanel]) -> dict[str, LineStyle]:
    """Return the style of each name. Later markers are smaller, so that a marker below them remains visible."""
    names = dict.fromkeys(name for panel in panels for name, points in panel.series.items() if points)
    styles = {}
    for index, name in enumerate(names):
        size = LARGEST_MARKER - (LARGEST_MARKER - SMALLEST_MARKER) * index / len(names)
        styles[name] = LineStyle(COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], size)
    return styles


def draw_line_panel(axes: Axes, panel: LinePanel, styles: Mapping[str, LineStyle], fonts: FigureFonts) -> None:
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
            label=fonts.replace_missing(name),
        )
    axes.set_title(fonts.replace_missing(panel.title))
    axes.set_xlabel(fonts.replace_missing(panel.across))
    axes.set_ylabel(fonts.replace_missing(panel.vertical))
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
