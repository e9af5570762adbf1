"""Numbers over steps, as lines: how a loss fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .checks import picture_path
from .sheet import new_figure, sheet_for, write

Points = Sequence[tuple[int | float, int | float]]

COLOURS = ("#7a8793", "#0b6e8f", "#b4552d", "#3f7d3a")  # the first is for what is noisy and many


def line_plot(series: Mapping[str, Points], target: str | Path, *, title: str = "", across: str = "step") -> Path:
    """Draw each series as a line into a PNG or SVG file; those without points are left out."""
    place = picture_path(target)
    drawn = {name: points for name, points in series.items() if points}
    with sheet_for([title, across, *drawn]) as sheet:
        figure = new_figure(6.4, 3.6)
        axes = figure.add_subplot()
        for (name, points), colour in zip(drawn.items(), COLOURS * (1 + len(drawn)), strict=False):
            few = len(points) < 60
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=colour,
                linewidth=1.6 if few else 1.0,
                marker="o" if few else None,
                markersize=3,
                label=sheet.text(name),
            )
        axes.set_title(sheet.text(title))
        axes.set_xlabel(sheet.text(across))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        if drawn:
            axes.legend(frameon=False)
        return write(figure, place)
