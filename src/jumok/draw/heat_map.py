"""Write attention patterns as PNG or SVG images: one heat map, or a grid with one for each head."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .checks import check_image_path, check_labels, check_patterns, check_single_pattern
from .figure import create_figure, open_figure_style, save_figure
from .panel import draw_color_bar, draw_map

MAP_VALUES_LIMIT = 24  # a single heat map shows values up to this many queries or keys
GRID_VALUES_LIMIT = 8  # the same for the heat maps of a grid
# Cells with values cannot shrink below a readable size; beyond this limit the image would be metres wide.
VALUES_LIMIT = 200


def save_heat_map(
    path: str | os.PathLike[str],
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    values: bool | None = None,
) -> Path:
    """Write a pattern as a heat map, a PNG or SVG image, and return its path. Equal input gives equal bytes.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        pattern: Weights ``[query, key]`` of one head, between 0 and 1.
        queries: The label of each row.
        keys: The label of each column.
        title: The title above the map; default: none.
        values: Whether to write the weight into each cell; default: for maps of at most 24 by 24.

    Raises:
        DrawError: If the inputs do not fit together, matplotlib is missing, or the file cannot be written.

    >>> save_heat_map("map.png", [[1, 0], [0.25, 0.75]], ["나는", "간다"], ["나는", "간다"])  # doctest: +SKIP
    PosixPath('map.png')
    """
    target = check_image_path(path)
    weights = check_single_pattern(pattern)
    check_labels(weights, queries, keys)
    larger = max(weights.shape)
    if values is None:
        values = larger <= MAP_VALUES_LIMIT
    if values and larger > VALUES_LIMIT:
        raise DrawError(
            f"A map of {len(queries)} by {len(keys)} is too large for a value in each cell (at most {VALUES_LIMIT} by "
            f"{VALUES_LIMIT}); omit values=True or draw a slice of the pattern."
        )
    # Inches: large cells for a sentence, smaller ones for long texts so that the image fits on a screen.
    cell = min(0.6, max(10 / larger, 0.34)) if values else min(0.6, 8 / larger)
    width, height = cell * len(keys), cell * len(queries)

    with open_figure_style([*queries, *keys, title]) as fonts:
        figure = create_figure(width, height)
        axes = figure.add_axes((0, 0, 1, 1))
        draw_map(
            axes,
            weights,
            fonts.format_labels(queries),
            fonts.format_labels(keys),
            cell=cell,
            label_size=min(10.0, max(6.0, cell * 72 * 0.5)),
            value_size=min(9.0, cell * 72 * 0.33) if values else None,
            keys_on_top=True,
        )
        axes.set_xlabel("key", fontsize=10, labelpad=6)
        axes.set_ylabel("query", fontsize=10, labelpad=6)
        if title:
            axes.set_title(fonts.replace_missing(title), fontsize=12, pad=10)
        draw_color_bar(figure, width, height, gap=0.2)
        return save_figure(figure, target)


def save_head_grid(
    path: str | os.PathLike[str],
    patterns: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
) -> Path:
    """Write one heat map for each head, side by side in a PNG or SVG image, and return its path.

    The maps share their labels and one colour bar. Equal input gives equal bytes.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        patterns: Weights ``[head, query, key]``, between 0 and 1.
        queries: The label of each row.
        keys: The label of each column.
        titles: A title for each head; default: "head 0", "head 1" and so on.
        title: The title above all maps; default: none.

    Raises:
        DrawError: If the inputs do not fit together, matplotlib is missing, or the file cannot be written.

    >>> save_head_grid("heads.png", [[[1, 0], [0.25, 0.75]]] * 8, ["I", "am"], ["I", "am"])  # doctest: +SKIP
    PosixPath('heads.png')
    """
    target = check_image_path(path)
    weights = check_patterns(patterns)
    check_labels(weights[0], queries, keys)
    heads = len(weights)
    if titles is None:
        titles = [f"head {head}" for head in range(heads)]
    if len(titles) != heads:
        raise DrawError(
            f"There are {len(titles)} titles but {heads} heads; give one title for each head, or omit titles."
        )

    grid = _GridLayout(*weights.shape)
    with open_figure_style([*queries, *keys, *titles, title]) as fonts:
        query_labels, key_labels = fonts.format_labels(queries), fonts.format_labels(keys)
        figure = create_figure(grid.width, grid.height)
        for head in range(heads):
            axes = figure.add_axes(grid.place_head(head))
            # The maps share their labels: queries at the left, keys below the lowest map of each column.
            is_leftmost, is_lowest = head % grid.columns == 0, head + grid.columns >= heads
            draw_map(
                axes,
                weights[head],
                query_labels if is_leftmost else None,
                key_labels if is_lowest else None,
                cell=grid.cell,
                label_size=8.0 if grid.has_values else 6.5,
                value_size=7.0 if grid.has_values else None,
                keys_on_top=False,
            )
            axes.set_title(fonts.replace_missing(titles[head]), fontsize=9, pad=4)
            if is_leftmost:
                axes.set_ylabel("query", fontsize=8)
            if is_lowest:
                axes.set_xlabel("key", fontsize=8)
        if title:
            top = 1 + 0.32 / grid.height
            figure.text(0.5, top, fonts.replace_missing(title), ha="center", va="bottom", fontsize=12)
        draw_color_bar(figure, grid.width, grid.height, gap=0.25)
        return save_figure(figure, target)


class _GridLayout:
    """The sizes of a grid of heat maps, in inches."""

    def __init__(self, heads: int, queries: int, keys: int) -> None:
        larger = max(queries, keys)
        self.has_values = larger <= GRID_VALUES_LIMIT
        self.cell = max(0.34, min(0.5, 1.6 / larger)) if self.has_values else 2.7 / larger
        rows = math.ceil(heads / (4 if heads <= 16 else 8))
        self.columns = math.ceil(heads / rows)  # 6 heads become 3 and 3, not 4 and 2
        self._map_width, self._map_height = self.cell * keys, self.cell * queries
        self._across = max(self._map_width, 0.6) + 0.2  # even a map of one key leaves room for the title "head 10"
        self._down = self._map_height + 0.4
        self.width = self._across * (self.columns - 1) + self._map_width
        self.height = self._down * (rows - 1) + self._map_height

    def place_head(self, head: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of a head's map as shares of the figure."""
        row, column = divmod(head, self.columns)
        left = self._across * column / self.width
        bottom = 1 - (self._down * row + self._map_height) / self.height
        return left, bottom, self._map_width / self.width, self._map_height / self.height
