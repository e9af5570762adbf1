"""Render an attention pattern as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import center, count_cells, format_weight, is_dark, make_visible, pad, truncate
from .checks import check_labels, check_single_pattern

# Shades from small to large weights. The 256-colour palette instead of 24-bit colour, which macOS's Terminal did not
# support for years; the exact number is in the cell anyway.
SHADES = (189, 153, 117, 111, 75, 69, 33, 27, 26, 25, 18)

DEFAULT_WIDTH = 80
NARROWEST_COLUMN = 4  # as wide as "0.47"
WIDEST_COLUMN = 12
WIDEST_ROW_LABEL = 16


def render_terminal_heat_map(
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    color: bool = True,
    width: int | None = None,
) -> str:
    """Render a pattern as text: a row for each query, a column for each key, the weight in each cell.

    A weight of exactly zero is shown as a faint dot; with ``color``, the others have a background shade, as ANSI codes.
    A map that is wider than ``width`` columns omits its last keys, and a note below says how many.

    >>> text = render_terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75
    """
    weights = check_single_pattern(pattern)
    query_labels = [make_visible(label) for label in queries]
    key_labels = [make_visible(label) for label in keys]
    check_labels(weights, query_labels, key_labels)

    row_width = min(max(count_cells(label) for label in query_labels), WIDEST_ROW_LABEL)
    label_width = row_width + 1  # a plain space, so that the first shade does not touch the label
    column, shown = _fit_columns(key_labels, label_width, width)

    lines = []
    if title:
        lines.append(make_visible(title) if width is None else truncate(make_visible(title), width))
    header = "".join(" " + center(truncate(label, column), column) for label in key_labels[:shown])
    lines.append(" " * label_width + header)
    for label, row in zip(query_labels, weights, strict=True):
        cells = "".join(_render_cell(float(weight), column, color=color) for weight in row[:shown])
        lines.append(pad(truncate(label, row_width), label_width) + cells)
    if hidden := len(key_labels) - shown:
        lines.append(f"… {hidden} more {'key' if hidden == 1 else 'keys'} not shown")
    return "\n".join(lines)


def _fit_columns(key_labels: list[str], label_width: int, width: int | None) -> tuple[int, int]:
    """Return the width of a column in terminal cells, and how many of them fit beside the row labels."""
    room = (DEFAULT_WIDTH if width is None else width) - label_width
    # Without a width no key is omitted, and each column has enough cells for a few letters of its label.
    narrowest = 6 if width is None else NARROWEST_COLUMN
    widest = min(max(room // len(key_labels) - 1, narrowest), WIDEST_COLUMN)
    column = max(NARROWEST_COLUMN, min(max(count_cells(label) for label in key_labels), widest))
    if width is None:
        return column, len(key_labels)
    shown = min(len(key_labels), room // (column + 1))
    if shown < 1:
        raise DrawError(
            f"a width of {width} columns is too narrow for even one key of this map; "
            f"give a width of at least {label_width + column + 1}"
        )
    return column, shown


def _render_cell(weight: float, column: int, *, color: bool) -> str:
    """Render one weight: a space, then ``column`` terminal cells."""
    text = " " + center(format_weight(weight), column)
    if not color:
        return text

    from rich.color import Color, ColorSystem
    from rich.style import Style

    if weight == 0:
        style = Style(dim=True)
    else:
        background = Color.from_ansi(SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)])
        red, green, blue = background.get_truecolor()
        # 16 and 231 are the palette's fixed black and white; terminal themes change 0 and 15.
        ink = 231 if is_dark(red / 255, green / 255, blue / 255) else 16
        style = Style(color=Color.from_ansi(ink), bgcolor=background)
    return style.render(text, color_system=ColorSystem.EIGHT_BIT)
