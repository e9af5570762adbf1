"""Patterns as PNG or SVG pictures: one map, or one for each head."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .checks import all_heads, check_labels, one_head, picture_path
from .panel import draw_color_bar, draw_map
from .sheet import new_figure, sheet_for, write

MAP_VALUES_LIMIT = 24
GRID_VALUES_LIMIT = 8
# A map with values cannot shrink below readable cells, so past this many it would be metres wide.
VALUES_LIMIT = 200


def heat_map(
    path: str | os.PathLike[str],
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    values: bool | None = None,
) -> Path:
    """Write a pattern as a PNG or SVG picture, by the path's suffix, and return the path.

    ``values`` puts the weight into each cell; left out, it is on for maps of at most 24 by 24. Equal input
    gives equal bytes.

    >>> heat_map("map.png", [[1, 0], [0.25, 0.75]], ["나는", "간다"], ["나는", "간다"])  # doctest: +SKIP
    PosixPath('map.png')
    """
    target = picture_path(path)
    weights = one_head(pattern)
    check_labels(weights, queries, keys)
    larger = max(weights.shape)
    if values is None:
        values = larger <= MAP_VALUES_LIMIT
    if values and larger > VALUES_LIMIT:
        raise DrawError(
            f"A map of {len(queries)} by {len(keys)} is too large for a value in each cell (at most {VALUES_LIMIT} by "
            f"{VALUES_LIMIT}); leave values off or draw a slice of it."
        )
    # Inches: roomy for a sentence, then shrinking so that the whole stays on a screen.
    cell = min(0.6, max(10 / larger, 0.34)) if values else min(0.6, 8 / larger)
    width, height = cell * len(keys), cell * len(queries)

    with sheet_for([*queries, *keys, title]) as sheet:
        figure = new_figure(width, height)
        axes = figure.add_axes((0, 0, 1, 1))
        draw_map(
            axes,
            weights,
            sheet.labels(queries),
            sheet.labels(keys),
            cell=cell,
            label_size=min(10.0, max(6.0, cell * 72 * 0.5)),
            value_size=min(9.0, cell * 72 * 0.33) if values else None,
            keys_on_top=True,
        )
        axes.set_xlabel("key", fontsize=10, labelpad=6)
        axes.set_ylabel("query", fontsize=10, labelpad=6)
        if title:
            axes.set_title(sheet.text(title), fontsize=12, pad=10)
        draw_color_bar(figure, width, height, gap=0.2)
        return write(figure, target)


def head_grid(
    path: str | os.PathLike[str],
    patterns: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
    title: str = "",
) -> Path:
    """Write one map for each head, side by side in a PNG or SVG picture, and return the path.

    The maps are titled "head 0", "head 1" and so on unless ``titles`` says otherwise. They share their labels
    and one colour bar. Equal input gives equal bytes.

    >>> head_grid("heads.png", [[[1, 0], [0.25, 0.75]]] * 8, ["I", "am"], ["I", "am"])  # doctest: +SKIP
    PosixPath('heads.png')
    """
    target = picture_path(path)
    weights = all_heads(patterns)
    check_labels(weights[0], queries, keys)
    heads = len(weights)
    if titles is None:
        titles = [f"head {head}" for head in range(heads)]
    if len(titles) != heads:
        raise DrawError(
            f"There are {len(titles)} titles but {heads} heads; give one title for each head, or none at all."
        )

    larger = max(weights.shape[1:])
    values = larger <= GRID_VALUES_LIMIT
    cell = max(0.34, min(0.5, 1.6 / larger)) if values else 2.7 / larger
    rows = math.ceil(heads / (4 if heads <= 16 else 8))
    columns = math.ceil(heads / rows)  # 6 heads become 3 and 3, not 4 and 2
    map_width, map_height = cell * len(keys), cell * len(queries)
    across = max(map_width, 0.6) + 0.2  # a map of one key still leaves room for "head 10" above it
    down = map_height + 0.4
    width, height = across * (columns - 1) + map_width, down * (rows - 1) + map_height

    with sheet_for([*queries, *keys, *titles, title]) as sheet:
        query_labels, key_labels = sheet.labels(queries), sheet.labels(keys)
        figure = new_figure(width, height)
        for head in range(heads):
            row, column = divmod(head, columns)
            left, bottom = across * column / width, 1 - (down * row + map_height) / height
            axes = figure.add_axes((left, bottom, map_width / width, map_height / height))
            # The maps share their labels: queries at the left, keys below the lowest map of a column.
            first, lowest = column == 0, head + columns >= heads
            draw_map(
                axes,
                weights[head],
                query_labels if first else None,
                key_labels if lowest else None,
                cell=cell,
                label_size=8.0 if values else 6.5,
                value_size=7.0 if values else None,
                keys_on_top=False,
            )
            axes.set_title(sheet.text(titles[head]), fontsize=9, pad=4)
            if first:
                axes.set_ylabel("query", fontsize=8)
            if lowest:
                axes.set_xlabel("key", fontsize=8)
        if title:
            figure.text(0.5, 1 + 0.32 / height, sheet.text(title), ha="center", va="bottom", fontsize=12)
        draw_color_bar(figure, width, height, gap=0.25)
        return write(figure, target)
