"""Write all heads of a model as a PNG or SVG image: a row of heat maps for each layer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import count_cells
from .checks import check_image_path, check_labels, check_patterns
from .figure import WIDEST_LABEL, create_figure, open_figure_style, save_figure
from .panel import draw_color_bar, draw_heading, draw_map, join_captions
from .pooling import PooledMap, pool_patterns
from .shading import Shading, choose_shading

MODEL_CELLS = 80  # rows and columns of a map; larger maps are pooled
SMALLEST_SIDE, LARGEST_SIDE = 0.9, 2.7  # inches of the longer side of a map
WIDTH, HEIGHT = 12.0, 27.0  # inches that the maps of a model fill, unless the smallest side needs more
ACROSS_GAP, DOWN_GAP = 0.1, 0.16  # inches between two maps
LARGEST_CELL = 0.32  # inches


class LayerMaps(NamedTuple):
    """The maps of one layer.

    Attributes:
        weights: Weights ``[head, query, key]``, between 0 and 1.
        heads: The number of each head; default: from 0.
    """

    title: str
    weights: ArrayLike
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[int] | None = None


def save_model_grid(
    path: str | os.PathLike[str],
    layers: Sequence[LayerMaps],
    *,
    title: str = "",
    caption: str = "",
    scale: str = "linear",
    skip_first: bool = False,
) -> Path:
    """Write the heads of several layers, one row of heat maps for each layer, and return the path of the image.

    Layers may have different labels and numbers of heads, as those of an encoder and a decoder. Maps of more than 80
    queries or keys are shrunk: each cell becomes the maximum of its weights, as the caption says.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        title: The title above all maps; default: none.
        caption: A line below the title; default: none.
        scale: The colour scale: "linear", "sqrt" or "row", as for ``save_heat_map``.
        skip_first: Whether to leave out the first key of every map, as for ``save_heat_map``.

    Raises:
        DrawError: If the inputs do not fit together, matplotlib is missing, or the file cannot be written.

    >>> save_model_grid("model.png", [LayerMaps("layer 0", [[[1, 0], [0.5, 0.5]]], "ab", "ab")])  # doctest: +SKIP
    PosixPath('model.png')
    """
    target = check_image_path(path)
    if not layers:
        raise DrawError("There are no layers to draw; give at least one.")
    checked = [check_patterns(layer.weights) for layer in layers]
    for weights, layer in zip(checked, layers, strict=True):
        check_labels(weights[0], layer.queries, layer.keys)
    shading = choose_shading(checked, scale, skip_first)
    rows = [
        pool_patterns(weights, layer.queries, layer.keys, MODEL_CELLS, first_apart=skip_first)
        for weights, layer in zip(checked, layers, strict=True)
    ]
    numbers = [
        list(range(len(weights))) if layer.heads is None else list(layer.heads)
        for weights, layer in zip(checked, layers, strict=True)
    ]
    titles = [layer.title for layer in layers]
    pooling = next((row.caption for row in rows if row.caption), "")
    left_out = "without the first key" if skip_first else ""
    return _draw_rows(target, rows, numbers, titles, title, join_captions(caption, pooling, left_out), shading)


def _draw_rows(
    target: Path,
    rows: list[PooledMap],
    numbers: list[list[int]],
    titles: list[str],
    title: str,
    caption: str,
    shading: Shading,
) -> Path:
    """Draw the maps of each layer beside each other. Keys are labelled below the last of the layers that share them."""
    layout = _RowLayout(rows)
    texts = [text for row in rows for text in (*row.queries, *row.keys)]
    with open_figure_style([*texts, *titles, title, caption]) as fonts:
        figure = create_figure(layout.width, layout.height)
        for index, row in enumerate(rows):
            query_labels, key_labels = fonts.format_labels(row.queries), fonts.format_labels(row.keys)
            for head, weights in enumerate(row.weights):
                axes = figure.add_axes(layout.place_map(index, head))
                draw_map(
                    axes,
                    weights,
                    query_labels if head == 0 else None,
                    key_labels if layout.has_keys_below(index) else None,
                    cell=layout.cell,
                    label_size=layout.label_size,
                    value_size=None,
                    keys_on_top=False,
                    shading=shading,
                )
                if head == 0:
                    axes.set_ylabel(fonts.replace_missing(titles[index]), fontsize=8)
                if index == 0 or layout.has_keys_below(index - 1):
                    axes.set_title(f"head {numbers[index][head]}", fontsize=8, pad=3)
        draw_heading(figure, layout.height, fonts.replace_missing(title), fonts.replace_missing(caption))
        draw_color_bar(figure, layout.width, layout.height, gap=0.25, shading=shading)
        return save_figure(figure, target)


class _RowLayout:
    """The sizes of rows of heat maps, in inches."""

    def __init__(self, rows: list[PooledMap]) -> None:
        self._rows = rows
        heads = max(len(row.weights) for row in rows)
        side = min(max(min(WIDTH / heads, HEIGHT / len(rows)), SMALLEST_SIDE), LARGEST_SIDE)
        larger = max(max(row.weights.shape[1:]) for row in rows)
        self.cell = min(LARGEST_CELL, side / larger)  # one size, so that layers can be compared
        self.label_size = min(9.0, max(6.0, self.cell * 72 * 0.38))  # points
        widest = self.cell * max(len(row.keys) for row in rows)
        self._across = max(widest, 0.45) + ACROSS_GAP  # even a map of one key leaves room for the title "head 10"
        self._tops = [0.0]
        for index, row in enumerate(rows):
            labels = self._measure_key_labels(row) if self.has_keys_below(index) else 0.0
            self._tops.append(self._tops[-1] + self.cell * len(row.queries) + DOWN_GAP + labels)
        last = rows[-1]
        self.width = self._across * (heads - 1) + widest
        self.height = self._tops[-2] + self.cell * len(last.queries)

    def has_keys_below(self, index: int) -> bool:
        """Return whether a row is the last of those that have the same keys."""
        return index + 1 == len(self._rows) or self._rows[index].keys != self._rows[index + 1].keys

    def place_map(self, index: int, head: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of a map as shares of the figure."""
        row = self._rows[index]
        width, height = self.cell * len(row.keys), self.cell * len(row.queries)
        bottom = self.height - self._tops[index] - height
        return (
            self._across * head / self.width,
            bottom / self.height,
            width / self.width,
            height / self.height,
        )

    def _measure_key_labels(self, row: PooledMap) -> float:
        """Return the height of rotated key labels, and of the titles of the next row."""
        longest = min(max(count_cells(label) for label in row.keys), WIDEST_LABEL)
        return longest * self.label_size * 0.62 / 72 + 0.3
