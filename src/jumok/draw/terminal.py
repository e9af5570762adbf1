"""A pattern as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from jumok.errors import DrawError

from .cell_text import cells, centered, cut, is_dark, padded, value, visible
from .checks import check_labels, one_head

# Shades from a small weight to a large one. The 256-colour palette is used and not 24-bit colour because
# macOS's Terminal did not know the latter for years, and the number is in the cell anyway.
SHADES = (189, 153, 117, 111, 75, 69, 33, 27, 26, 25, 18)

USUAL_WIDTH = 80
NARROWEST_COLUMN = 4  # as wide as "0.47"
WIDEST_COLUMN = 12
WIDEST_ROW_LABEL = 16


def terminal_heat_map(
    pattern: ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    color: bool = True,
    width: int | None = None,
) -> str:
    """Draw a pattern as text: a row for each query, a column for each key, the weight in each cell.

    A weight of exactly zero is shown as a faint dot. With ``color`` each cell has a background shade in ANSI
    codes. A map wider than ``width`` columns loses its last keys, and a note under it says how many.

    >>> text = terminal_heat_map([[1, 0], [0.25, 0.75]], ["I", "am"], ["I", "am"], color=False)
    >>> print(text)  # doctest: +NORMALIZE_WHITESPACE
         I    am
    I   1.00   ·
    am  0.25 0.75
    """
    weights = one_head(pattern)
    query_labels = [visible(label) for label in queries]
    key_labels = [visible(label) for label in keys]
    check_labels(weights, query_labels, key_labels)

    row_width = min(max(cells(label) for label in query_labels), WIDEST_ROW_LABEL)
    left = row_width + 1  # a plain space, so that the first shade does not touch the label
    room = (USUAL_WIDTH if width is None else width) - left
    # Without a width nothing is cut, and a column keeps enough cells for a few letters of its label.
    narrowest = 6 if width is None else NARROWEST_COLUMN
    widest = min(max(room // len(key_labels) - 1, narrowest), WIDEST_COLUMN)
    column = max(NARROWEST_COLUMN, min(max(cells(label) for label in key_labels), widest))
    shown = len(key_labels)
    if width is not None:
        shown = min(shown, room // (column + 1))
        if shown < 1:
            raise DrawError(
                f"A width of {width} columns is too narrow for even one key of this map; "
                f"give a width of at least {left + column + 1}."
            )

    lines = []
    if title:
        lines.append(visible(title) if width is None else cut(visible(title), width))
    header = "".join(" " + centered(cut(label, column), column) for label in key_labels[:shown])
    lines.append(" " * left + header)
    for label, row in zip(query_labels, weights, strict=True):
        drawn = "".join(_cell(float(weight), column, color=color) for weight in row[:shown])
        lines.append(padded(cut(label, row_width), left) + drawn)
    if hidden := len(key_labels) - shown:
        lines.append(f"… {hidden} more {'key' if hidden == 1 else 'keys'} not shown")
    return "\n".join(lines)


def _cell(weight: float, column: int, *, color: bool) -> str:
    """One cell of the map: a space, and then ``column`` cells."""
    text = " " + centered(value(weight), column)
    if not color:
        return text

    from rich.color import Color, ColorSystem
    from rich.style import Style

    if weight == 0:
        style = Style(dim=True)
    else:
        background = Color.from_ansi(SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)])
        red, green, blue = background.get_truecolor()
        # 16 and 231 are the palette's fixed black and white; 0 and 15 are repainted by terminal themes.
        ink = 231 if is_dark(red / 255, green / 255, blue / 255) else 16
        style = Style(color=Color.from_ansi(ink), bgcolor=background)
    return style.render(text, color_system=ColorSystem.EIGHT_BIT)
