"""Masks as SVG, for notebooks: one square per cell. It needs no drawing library."""

from __future__ import annotations

from html import escape

from .base import Mask
from .notation import MAX_DRAWING_SIZE, evaluate_cells

CELL, GAP = 14, 2  # pixels
LEFT, TOP, BOTTOM = (
    28,
    44,
    20,
)  # pixels for the numbers of the queries, the title with the numbers of the keys, the note
ALLOWED, FORBIDDEN, INK = "#08306b", "#e3edf7", "#444444"
CHARACTER_WIDTH = 7.3  # pixels of a character of the title
MAX_TITLE = 120  # characters


def render_svg(mask: Mask) -> str:
    """Return a drawing of a mask for batch row 0 and head 0: dark cells may attend."""
    cells = evaluate_cells(mask)
    columns = len(cells[0]) if cells else 0
    expression = repr(mask)
    title = expression if len(expression) <= MAX_TITLE else expression[: MAX_TITLE - 1] + "…"
    step = CELL + GAP
    bottom = TOP + step * len(cells)
    note = "query down, key across; dark: may attend"
    if mask.drawing_size > MAX_DRAWING_SIZE:
        note += f"; the first {MAX_DRAWING_SIZE} of {mask.drawing_size:,} positions"
    width = round(max(LEFT + step * columns, CHARACTER_WIDTH * len(title), 5.4 * len(note)) + 8)

    texts = [_write(4, 16, escape(title), 12, "start"), _write(4, bottom + 14, note, 9, "start")]
    every = 1 if columns <= 10 else 4  # numbers of two digits need more room than a cell
    texts += [_write(LEFT + step * key + CELL / 2, TOP - 6, str(key), 9, "middle") for key in range(0, columns, every)]
    texts += [_write(LEFT - 6, TOP + step * query + 11, str(query), 9, "end") for query in range(0, len(cells), every)]
    squares = [
        f'<rect x="{LEFT + step * key}" y="{TOP + step * query}" width="{CELL}" height="{CELL}" '
        f'fill="{ALLOWED if allowed else FORBIDDEN}"/>'
        for query, row in enumerate(cells)
        for key, allowed in enumerate(row)
    ]
    size = f'width="{width}" height="{bottom + BOTTOM}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(squares + texts)}</svg>'


def _write(x: int | float, y: int | float, text: str, size: int, anchor: str) -> str:
    """Return a line of text."""
    font = f'font-family="sans-serif" font-size="{size}" fill="{INK}"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {font}>{text}</text>'
