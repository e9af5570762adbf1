"""Print tables of experiments in a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(lines: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column left-aligned, the others right-aligned.

    Args:
        lines: The headings, then the rows.
    """
    from rich.cells import cell_len  # a Hangul letter is two cells wide

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for line in lines:
        cells = [
            cell + padding if index == 0 else padding + cell
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            for padding in [" " * (width - cell_len(cell))]
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)
