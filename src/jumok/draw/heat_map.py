"""Write attention patterns as PNG or SVG images: one head, a mask, all heads of a layer, or all heads of a model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import count_cells
from .checks import Pattern, PatternsLike, check_labels, check_patterns, check_single_pattern, complete_labels
from .figure import CAPTION_INK, WIDEST_LABEL, open_canvas
from .panel import Shading, choose_shading, draw_color_bar, join_captions, paint_map
from .pooling import PooledMap, pool_patterns

# Rows and columns of a map; larger maps are pooled, so that a cell has at least 3 pixels.
MAP_CELLS, GRID_CELLS, MODEL_CELLS = 400, 135, 80
# Queries or keys up to which a single map, and the maps of a grid, show values.
MAP_VALUES_LIMIT, GRID_VALUES_LIMIT = 24, 8
# Cells with values cannot shrink below a readable size; beyond this limit the image would be metres wide.
VALUES_LIMIT = 200
PALE = 0.5  # grids whose weights are all smaller end their colours at the largest weight, or they would be nearly white
SMALL_MAP = 4  # rows and columns up to which cells and values are larger
MAX_MASK_TITLE = 80  # characters; a longer expression would make the picture wider than its map

SMALLEST_SIDE, LARGEST_SIDE = 0.9, 2.7  # inches of the longer side of a map of a model
WIDTH, HEIGHT = 12.0, 27.0  # inches that the maps of a model fill, unless the smallest side needs more
ACROSS_GAP, DOWN_GAP = 0.1, 0.16  # inches between two maps of a model
LARGEST_CELL = 0.32  # inches


class AxisNames(NamedTuple):
    """The words on the axes and the colour bar of a heat map, above the maps of several heads, and below a mask."""

    query: str = "query"
    key: str = "key"
    weight: str = "weight"
    allowed: str = "dark: the query may attend to the key"
    root: str = "weight (square-root scale)"
    share: str = "share of the row's largest weight"
    head: str = "head"
    layer: str = "layer"
    heads: str = "weights of {count} heads"
    directions: str = "rows are queries, columns are keys"
    without_first: str = "without the first key"

    def name_weight(self, scale: str) -> str:
        """Return what the colour bar of a scale shows."""
        return {"sqrt": self.root, "row": self.share}.get(scale, self.weight)


#: the words by language
AXIS_NAMES = {
    "en": AxisNames(),
    "ko": AxisNames(
        query="쿼리",
        key="키",
        weight="가중치",
        allowed="진한 칸: 쿼리가 볼 수 있는 키",
        root="가중치(제곱근 눈금)",
        share="행에서 가장 큰 가중치에 대한 비율",
        head="헤드",
        layer="층",
        heads="헤드 {count}개의 가중치",
        directions="행은 쿼리, 열은 키",
        without_first="첫 키는 제외",
    ),
}


class LayerMaps(NamedTuple):
    """The maps of one layer."""

    title: str
    weights: ArrayLike  # [head, query, key], between 0 and 1
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[int] | None = None  # the number of each head; None = from 0


def save_heat_map(
    path: str | os.PathLike[str],
    pattern: ArrayLike,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
    values: bool | None = None,
    scale: str = "linear",
    skip_first: bool = False,
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write a pattern as a heat map, and return the path of the image.

    A map of more than 400 queries or keys is shrunk: each cell becomes the maximum of its weights, as the caption says.

    Args:
        pattern: Weights ``[query, key]`` of one head, between 0 and 1.
        queries: A label for each row; default: the positions.
        keys: A label for each column; default: the positions.
        values: Whether to write the weight into each cell; default: for maps of at most 24 by 24.
        axis_names: The words on the axes and the colour bar; default: English.

    >>> save_heat_map("map.png", [[1, 0], [0.25, 0.75]], ["나는", "간다"], ["나는", "간다"])  # doctest: +SKIP
    PosixPath('map.png')
    """
    weights = check_single_pattern(pattern)
    queries, keys = complete_labels(weights, queries, keys)
    larger = max(weights.shape)
    if values is None:
        values = larger <= MAP_VALUES_LIMIT
    if values and larger > VALUES_LIMIT:
        raise DrawError(
            f"a map of {len(queries)} by {len(keys)} is too large for a value in each cell (at most {VALUES_LIMIT} by "
            f"{VALUES_LIMIT}); omit values=True or draw a slice of the pattern"
        )
    shading = choose_shading([weights[None]], scale, skip_first)
    maps = pool_patterns(weights, queries, keys, MAP_CELLS, first_apart=skip_first)
    caption = join_captions(caption, maps.caption, _describe_first_key(keys, skip_first))
    return _save_single_map(path, maps, title, caption, values, shading, axis_names)


def save_mask(
    path: str | os.PathLike[str],
    allowed: ArrayLike,
    *,
    title: str = "",
    caption: str = "",
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write a mask, dark where a query may attend to a key, and return the path of the image.

    Args:
        allowed: True = may attend, ``[query, key]``.
        title: For example the expression of the mask.
        axis_names: The words on the axes and in the caption; default: English.

    >>> save_mask("mask.png", [[True, False], [True, True]], title="causal")  # doctest: +SKIP
    PosixPath('mask.png')
    """
    weights = check_single_pattern(allowed)
    queries, keys = ([str(position) for position in range(count)] for count in weights.shape)
    maps = pool_patterns(weights, queries, keys, MAP_CELLS)
    if len(title) > MAX_MASK_TITLE:
        title = f"{title[: MAX_MASK_TITLE - 3]}..."
    caption = join_captions(axis_names.allowed, caption, maps.caption)
    return _save_single_map(path, maps, title, caption, False, None, axis_names)


def _save_single_map(
    path: str | os.PathLike[str],
    pooled: PooledMap,
    title: str,
    caption: str,
    values: bool,
    shading: Shading | None,
    axis_names: AxisNames,
) -> Path:
    """Draw one map with a colour bar; without a shading it is a mask, whose two colours need no bar."""
    weights = pooled.weights
    larger = max(weights.shape)
    # Inches: large cells for a sentence, smaller ones for long texts so that the image fits on a screen.
    cell = min(0.6, max(10 / larger, 0.34)) if values else min(0.6 if shading else 0.3, 8 / larger)
    if values and larger <= SMALL_MAP:
        cell = 0.8
    width, height = cell * len(pooled.keys), cell * len(pooled.queries)
    with open_canvas(path, [*pooled.queries, *pooled.keys, *axis_names, title, caption]) as canvas:
        canvas.resize(width, height)
        axes = canvas.add_axes(0.0, 0.0, width, height)
        paint_map(
            axes,
            weights,
            canvas.format_labels(pooled.queries),
            canvas.format_labels(pooled.keys),
            cell=cell,
            label_size=min(10.0, max(6.0, cell * 72 * 0.5)),
            value_size=min(12.0 if larger <= SMALL_MAP else 9.0, cell * 72 * 0.33) if values else None,
            keys_on_top=True,
            shading=shading or Shading(),
        )
        axes.set_xlabel(canvas.replace_missing(axis_names.key), fontsize=10, labelpad=6)
        axes.set_ylabel(canvas.replace_missing(axis_names.query), fontsize=10, labelpad=6)
        if title:
            axes.set_title(canvas.replace_missing(title), fontsize=12, pad=10)
        if caption:
            canvas.write(0.0, height + 0.12, caption, ha="left", va="top", fontsize=8, color=CAPTION_INK)
        if shading is not None:
            draw_color_bar(canvas, shading, name=axis_names.name_weight(shading.scale))
    return canvas.path


def save_head_grid(
    path: str | os.PathLike[str],
    patterns: PatternsLike,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
    caption: str = "",
    scale: str = "linear",
    skip_first: bool = False,
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write one heat map for each head, side by side with shared labels, and return the path of the image.

    Maps of more than 135 queries or keys are shrunk: each cell becomes the maximum of its weights. The colours end
    at 1, or at the largest weight if all are below 0.5, as the colour bar shows.

    Args:
        patterns: Weights ``[head, query, key]``, between 0 and 1; or what ``MultiHead`` returns: ``[1, head, query,
            key]``, or the pair (output, weights).
        queries: A label for each row; default: the positions.
        keys: A label for each column; default: the positions.
        titles: A title for each head; default: "head 0", "head 1" and so on.
        axis_names: The words on the axes and the colour bar; default: English.

    >>> save_head_grid("heads.png", [[[1, 0], [0.25, 0.75]]] * 8, ["I", "am"], ["I", "am"])  # doctest: +SKIP
    PosixPath('heads.png')
    """
    weights = check_patterns(patterns)
    queries, keys = complete_labels(weights[0], queries, keys)
    heads = len(weights)
    if titles is None:
        titles = [f"{axis_names.head} {head}" for head in range(heads)]
    if len(titles) != heads:
        raise DrawError(
            f"there are {len(titles)} titles but {heads} heads; give one title for each head, or omit titles"
        )
    largest = float(weights.max())
    shading = choose_shading([weights], scale, skip_first, largest if 0 < largest < PALE else 1.0)
    maps = pool_patterns(weights, queries, keys, GRID_CELLS, first_apart=skip_first)

    larger = max(len(maps.queries), len(maps.keys))
    has_values = larger <= GRID_VALUES_LIMIT
    cell = max(0.34, min(0.5, 1.6 / larger)) if has_values else 2.7 / larger
    rows = math.ceil(heads / (4 if heads <= 16 else 8))
    columns = math.ceil(heads / rows)  # 6 heads become 3 and 3, not 4 and 2
    across = max(cell * len(maps.keys), 0.6) + 0.2  # even a map of one key leaves room for the title "head 10"
    down = cell * len(maps.queries) + 0.4
    placed = []
    for head in range(heads):
        row, column = divmod(head, columns)
        is_leftmost, is_lowest = column == 0, head + columns >= heads
        placed.append(
            _PlacedMap(
                across * column,
                down * row,
                maps.weights[head],
                titles[head],
                maps.queries if is_leftmost else None,
                maps.keys if is_lowest else None,
                axis_names.query if is_leftmost else "",
                axis_names.key if is_lowest else "",
            )
        )
    return _save_maps(
        path,
        placed,
        cell=cell,
        label_size=8.0 if has_values else 6.5,
        value_size=7.0 if has_values else None,
        title_size=9,
        title=title,
        caption=join_captions(caption, maps.caption, _describe_first_key(keys, skip_first)),
        shading=shading,
        weight_name=axis_names.name_weight(scale),
    )


def save_model_grid(
    path: str | os.PathLike[str],
    layers: Sequence[LayerMaps],
    *,
    title: str = "",
    caption: str = "",
    scale: str = "linear",
    skip_first: bool = False,
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write the heads of several layers, one row of heat maps for each layer, and return the path of the image.

    Layers may have different labels and numbers of heads, as those of an encoder and a decoder. Maps of more than 80
    queries or keys are shrunk: each cell becomes the maximum of its weights, as the caption says.

    >>> save_model_grid("model.png", [LayerMaps("layer 0", [[[1, 0], [0.5, 0.5]]], "ab", "ab")])  # doctest: +SKIP
    PosixPath('model.png')
    """
    if not layers:
        raise DrawError("there are no layers to draw; give at least one")
    checked = [check_patterns(layer.weights) for layer in layers]
    for weights, layer in zip(checked, layers, strict=True):
        check_labels(weights[0], layer.queries, layer.keys)
    shading = choose_shading(checked, scale, skip_first)
    rows = [
        pool_patterns(weights, layer.queries, layer.keys, MODEL_CELLS, first_apart=skip_first)
        for weights, layer in zip(checked, layers, strict=True)
    ]

    most_heads = max(len(row.weights) for row in rows)
    side = min(max(min(WIDTH / most_heads, HEIGHT / len(rows)), SMALLEST_SIDE), LARGEST_SIDE)
    # one size, so that layers can be compared
    cell = min(LARGEST_CELL, side / max(max(row.weights.shape[1:]) for row in rows))
    label_size = min(9.0, max(6.0, cell * 72 * 0.38))  # points
    widest = cell * max(len(row.keys) for row in rows)
    across = max(widest, 0.45) + ACROSS_GAP  # even a map of one key leaves room for the title "head 10"
    placed = []
    top, has_titles = 0.0, True
    for index, (row, layer) in enumerate(zip(rows, layers, strict=True)):
        # keys are labelled below the last of the layers that share them, and the next layer has titles again
        has_keys = index + 1 == len(rows) or row.keys != rows[index + 1].keys
        for head, weights in enumerate(row.weights):
            number = head if layer.heads is None else layer.heads[head]
            placed.append(
                _PlacedMap(
                    across * head,
                    top,
                    weights,
                    f"{axis_names.head} {number}" if has_titles else "",
                    row.queries if head == 0 else None,
                    row.keys if has_keys else None,
                    layer.title if head == 0 else "",
                )
            )
        top += cell * len(row.queries) + DOWN_GAP
        if has_keys:
            longest = min(max(count_cells(label) for label in row.keys), WIDEST_LABEL)
            top += longest * label_size * 0.62 / 72 + 0.3  # rotated labels, and the titles of the next row
        has_titles = has_keys
    pooling = next((row.caption for row in rows if row.caption), "")
    return _save_maps(
        path,
        placed,
        cell=cell,
        label_size=label_size,
        value_size=None,
        title_size=8,
        title=title,
        caption=join_captions(caption, pooling, axis_names.without_first if skip_first else ""),
        shading=shading,
        weight_name=axis_names.name_weight(scale),
    )


class _PlacedMap(NamedTuple):
    """A map of a figure with several: its position in inches, what stands above it, and its labels or None."""

    left: float
    top: float
    weights: Pattern
    title: str
    queries: list[str] | None
    keys: list[str] | None
    query_name: str = ""
    key_name: str = ""


def _save_maps(
    path: str | os.PathLike[str],
    maps: list[_PlacedMap],
    *,
    cell: float,
    label_size: float,
    value_size: float | None,
    title_size: int,
    title: str,
    caption: str,
    shading: Shading,
    weight_name: str,
) -> Path:
    """Draw several maps with one colour bar, and a heading above them."""
    texts = [title, caption, weight_name]
    for placed in maps:
        texts += [placed.title, placed.query_name, placed.key_name, *(placed.queries or ()), *(placed.keys or ())]
    with open_canvas(path, texts) as canvas:
        canvas.resize(
            max(placed.left + cell * placed.weights.shape[1] for placed in maps),
            max(placed.top + cell * placed.weights.shape[0] for placed in maps),
        )
        for placed in maps:
            rows, columns = placed.weights.shape
            axes = canvas.add_axes(placed.left, placed.top, cell * columns, cell * rows)
            paint_map(
                axes,
                placed.weights,
                None if placed.queries is None else canvas.format_labels(placed.queries),
                None if placed.keys is None else canvas.format_labels(placed.keys),
                cell=cell,
                label_size=label_size,
                value_size=value_size,
                shading=shading,
            )
            axes.set_title(canvas.replace_missing(placed.title), fontsize=title_size, pad=title_size - 5)
            axes.set_ylabel(canvas.replace_missing(placed.query_name), fontsize=8)
            axes.set_xlabel(canvas.replace_missing(placed.key_name), fontsize=8)
        canvas.write_heading(title, caption)
        draw_color_bar(canvas, shading, gap=0.25, name=weight_name)
    return canvas.path


def _describe_first_key(keys: Sequence[str], skip_first: bool) -> str:
    return f"without the first key, {keys[0]!r}" if skip_first else ""
