"""Write a grid of heat maps, one for each head, as a PNG or SVG image."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from jumok.errors import DrawError

from .axis_names import AXIS_NAMES, AxisNames
from .checks import PatternsLike, check_image_path, check_labels, check_patterns
from .figure import create_figure, open_figure_style, save_figure
from .panel import describe_first_key, draw_color_bar, draw_heading, draw_map, join_captions
from .pooling import PooledMap, pool_patterns
from .shading import Shading, choose_shading

GRID_VALUES_LIMIT = 8  # the maps show values up to this many queries or keys
GRID_CELLS = 135  # rows and columns of a map; larger maps are pooled, so that a cell has at least 3 pixels


def save_head_grid(
    path: str | os.PathLike[str],
    patterns: PatternsLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
    caption: str = "",
    scale: str = "linear",
    skip_first: bool = False,
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write one heat map for each head, side by side in a PNG or SVG image, and return its path.

    The maps share their labels and one colour bar. Equal input gives equal bytes. Maps of more than 135 queries or keys
    are shrunk: each cell becomes the maximum of its weights, as the caption says.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        patterns: Weights ``[head, query, key]``, between 0 and 1; or what ``MultiHead`` returns: ``[1, head, query,
            key]``, or the pair (output, weights).
        titles: A title for each head; default: "head 0", "head 1" and so on.
        title: The title above all maps; default: none.
        caption: A line below the title; default: none.
        scale: The colour scale: "linear", "sqrt" or "row", as for ``save_heat_map``.
        skip_first: Whether to leave out the first key, as for ``save_heat_map``.
        axis_names: The words on the axes and the colour bar; default: English.

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
    shading = choose_shading([weights], scale, skip_first)
    pooled = pool_patterns(weights, queries, keys, GRID_CELLS, first_apart=skip_first)
    left_out = describe_first_key(keys) if skip_first else ""
    caption = join_captions(caption, pooled.caption, left_out)
    return _draw_grid(target, pooled, titles, title, caption, shading, axis_names)


def _draw_grid(
    target: Path,
    maps: PooledMap,
    titles: Sequence[str],
    title: str,
    caption: str,
    shading: Shading,
    axis_names: AxisNames,
) -> Path:
    """Draw the maps with shared labels: queries at the left, keys below the lowest map of each column."""
    heads = len(maps.weights)
    grid = _GridLayout(*maps.weights.shape)
    with open_figure_style([*maps.queries, *maps.keys, *titles, *axis_names, title, caption]) as fonts:
        query_labels, key_labels = fonts.format_labels(maps.queries), fonts.format_labels(maps.keys)
        figure = create_figure(grid.width, grid.height)
        for head in range(heads):
            axes = figure.add_axes(grid.place_head(head))
            is_leftmost, is_lowest = head % grid.columns == 0, head + grid.columns >= heads
            draw_map(
                axes,
                maps.weights[head],
                query_labels if is_leftmost else None,
                key_labels if is_lowest else None,
                cell=grid.cell,
                label_size=8.0 if grid.has_values else 6.5,
                value_size=7.0 if grid.has_values else None,
                keys_on_top=False,
                shading=shading,
            )
            axes.set_title(fonts.replace_missing(titles[head]), fontsize=9, pad=4)
            if is_leftmost:
                axes.set_ylabel(fonts.replace_missing(axis_names.query), fontsize=8)
            if is_lowest:
                axes.set_xlabel(fonts.replace_missing(axis_names.key), fontsize=8)
        draw_heading(figure, grid.height, fonts.replace_missing(title), fonts.replace_missing(caption))
        draw_color_bar(figure, grid.width, grid.height, gap=0.25, shading=shading, name=axis_names.weight)
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
