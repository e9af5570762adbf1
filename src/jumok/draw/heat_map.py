"""Write an attention pattern or a mask as a PNG or SVG image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .axis_names import AXIS_NAMES, AxisNames
from .checks import Pattern, check_image_path, check_labels, check_single_pattern
from .figure import create_figure, open_figure_style, save_figure
from .panel import CAPTION_INK, describe_first_key, draw_color_bar, draw_map, join_captions
from .pooling import pool_patterns
from .shading import Shading, choose_shading

MAP_VALUES_LIMIT = 24  # a single heat map shows values up to this many queries or keys
# Cells with values cannot shrink below a readable size; beyond this limit the image would be metres wide.
VALUES_LIMIT = 200
MAP_CELLS = 400  # rows and columns of a single map; larger maps are pooled, so that a cell has at least 3 pixels
SMALL_MAP = 4  # rows and columns up to which cells and values are larger
MAX_MASK_TITLE = 80  # characters; a longer expression would make the picture wider than its map


def save_heat_map(
    path: str | os.PathLike[str],
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    caption: str = "",
    values: bool | None = None,
    scale: str = "linear",
    skip_first: bool = False,
    axis_names: AxisNames = AXIS_NAMES["en"],
) -> Path:
    """Write a pattern as a heat map, a PNG or SVG image, and return its path. Equal input gives equal bytes.

    A map of more than 400 queries or keys is shrunk: each cell becomes the maximum of its weights, as the caption says.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        pattern: Weights ``[query, key]`` of one head, between 0 and 1.
        title: The title above the map; default: none.
        caption: A line below the map; default: none.
        values: Whether to write the weight into each cell; default: for maps of at most 24 by 24.
        scale: The colour scale: "linear", "sqrt" (small weights become visible) or "row" (the largest weight of each
            row is the darkest).
        skip_first: Whether to leave out the first key, which is often an attention sink; the colours then cover the
            weights of the other keys.
        axis_names: The words on the axes and the colour bar; default: English.

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
    shading = choose_shading([weights[None]], scale, skip_first)
    pooled = pool_patterns(weights, queries, keys, MAP_CELLS, first_apart=skip_first)
    left_out = describe_first_key(keys) if skip_first else ""
    return _draw_single_map(
        target,
        pooled.weights,
        pooled.queries,
        pooled.keys,
        title=title,
        caption=join_captions(caption, pooled.caption, left_out),
        values=values,
        shading=shading,
        axis_names=axis_names,
    )


def save_mask(path: str | os.PathLike[str], allowed: ArrayLike, *, title: str = "", caption: str = "") -> Path:
    """Write a mask as a PNG or SVG image, dark where a query may attend to a key, and return its path.

    Args:
        path: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
        allowed: True = may attend, ``[query, key]``.
        title: The title above the map, such as the expression of the mask; default: none.
        caption: A line below the map; default: none.

    Raises:
        DrawError: If the input has another shape, matplotlib is missing, or the file cannot be written.

    >>> save_mask("mask.png", [[True, False], [True, True]], title="causal")  # doctest: +SKIP
    PosixPath('mask.png')
    """
    target = check_image_path(path)
    weights = check_single_pattern(allowed)
    queries, keys = ([str(position) for position in range(count)] for count in weights.shape)
    pooled = pool_patterns(weights, queries, keys, MAP_CELLS)
    return _draw_single_map(
        target,
        pooled.weights,
        pooled.queries,
        pooled.keys,
        title=title if len(title) <= MAX_MASK_TITLE else f"{title[: MAX_MASK_TITLE - 3]}...",
        caption=join_captions("dark: the query may attend to the key", caption, pooled.caption),
        values=False,
        shading=None,
        axis_names=AXIS_NAMES["en"],
    )


def _draw_single_map(
    target: Path,
    weights: Pattern,
    queries: list[str],
    keys: list[str],
    *,
    title: str,
    caption: str,
    values: bool,
    shading: Shading | None,
    axis_names: AxisNames,
) -> Path:
    """Draw one map with a colour bar; without a shading it is a mask, whose two colours need no bar."""
    larger = max(weights.shape)
    # Inches: large cells for a sentence, smaller ones for long texts so that the image fits on a screen.
    cell = min(0.6, max(10 / larger, 0.34)) if values else min(0.6 if shading else 0.3, 8 / larger)
    if values and larger <= SMALL_MAP:
        cell = 0.8
    width, height = cell * len(keys), cell * len(queries)
    with open_figure_style([*queries, *keys, *axis_names, title, caption]) as fonts:
        figure = create_figure(width, height)
        axes = figure.add_axes((0, 0, 1, 1))
        draw_map(
            axes,
            weights,
            fonts.format_labels(queries),
            fonts.format_labels(keys),
            cell=cell,
            label_size=min(10.0, max(6.0, cell * 72 * 0.5)),
            value_size=min(12.0 if larger <= SMALL_MAP else 9.0, cell * 72 * 0.33) if values else None,
            keys_on_top=True,
            shading=shading or Shading(),
        )
        axes.set_xlabel(fonts.replace_missing(axis_names.key), fontsize=10, labelpad=6)
        axes.set_ylabel(fonts.replace_missing(axis_names.query), fontsize=10, labelpad=6)
        if title:
            axes.set_title(fonts.replace_missing(title), fontsize=12, pad=10)
        if caption:
            text = fonts.replace_missing(caption)
            figure.text(0, -0.12 / height, text, ha="left", va="top", fontsize=8, color=CAPTION_INK)
        if shading is not None:
            draw_color_bar(figure, width, height, gap=0.2, shading=shading, name=axis_names.weight)
        return save_figure(figure, target)
