"""Plot numbers over steps as lines, for example the loss of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .checks import check_image_path
from .figure import create_figure, open_figure_style, save_figure

Points = Sequence[tuple[int | float, int | float]]

# the first, a grey, suits long noisy series
COLOURS = ("#7a8793", "#0b6e8f", "#b4552d", "#3f7d3a", "#8a5fa8", "#c79a2b", "#c2518b", "#333333")
MARKER_LIMIT = 60  # series with fewer points show a marker at each of them


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
    lines = {name: points for name, points in series.items() if points}

    with open_figure_style([title, across, vertical, *lines]) as fonts:
        figure = create_figure(6.4, 3.6)
        axes = figure.add_subplot()

        for (name, points), colour in zip(lines.items(), COLOURS * (1 + len(lines)), strict=False):
            is_short = len(points) < MARKER_LIMIT
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=colour,
                linewidth=1.6 if is_short else 1.0,
                marker="o" if is_short else None,
                markersize=3,
                label=fonts.replace_missing(name),
            )

        axes.set_title(fonts.replace_missing(title))
        axes.set_xlabel(fonts.replace_missing(across))
        axes.set_ylabel(fonts.replace_missing(vertical))
        if log_across:
            ticks = sorted({x for points in lines.values() for x, _ in points})
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.minorticks_off()
        if log_vertical:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda number, _: f"{number:,g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        if lines:
            axes.legend(frameon=False, fontsize="small" if len(lines) > 4 else None)
        return save_figure(figure, path)
