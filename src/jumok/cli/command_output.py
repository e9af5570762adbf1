"""How every command prints: JSON or text in the reader's language, tables, messages, and the files that it wrote."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Text
from jumok.reporting import get_reader_language
from jumok.translation import translate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


WRITTEN = Text("wrote {path}", "저장함: {path}")


class CommandOutput:
    """The output of one command.

    Args:
        as_json: Whether the user asked for JSON; the command then calls ``print_json`` and nothing else but ``warn``.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.language = get_reader_language()

    def select(self, text: object) -> str:
        """Return a text in the reader's language; anything else as it is written."""
        return text.select(self.language) if isinstance(text, Text) else str(text)

    def print_json(self, fields: Any) -> None:
        """Print a value as one line of JSON."""
        click.echo(json.dumps(fields, ensure_ascii=False))

    def print(self, text: str | Text = "") -> None:
        """Print a line; of a text in two languages, the one of the reader."""
        click.echo(self.select(text))

    def print_table(
        self,
        columns: str,
        rows: Iterable[Iterable[object]],
        headings: Iterable[object] = (),
        indent: int = 0,
        gap: int = 2,
    ) -> None:
        """Print a table; cells and headings may be texts in two languages.

        Args:
            columns: The alignment of each column, "l" or "r".
            headings: The first line; none by default.
            indent: Spaces before each line.
            gap: Spaces between two columns.
        """
        cells = [[self.select(cell) for cell in row] for row in rows]
        table = format_table(columns, cells, [self.select(heading) for heading in headings], gap)
        if table:
            click.echo(textwrap.indent(table, " " * indent))

    def print_heat_map(self, weights: ArrayLike, queries: list[str], keys: list[str], title: str = "") -> None:
        """Print a heat map of ``weights`` [query, key]: in a terminal with colours and as wide as it."""
        from jumok.draw import render_terminal_heat_map

        is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        width = shutil.get_terminal_size().columns if is_terminal else None
        click.echo(render_terminal_heat_map(weights, queries, keys, title=title, color=is_terminal, width=width))

    def print_written(self, paths: Iterable[str | Path]) -> None:
        """Print which files were written."""
        for path in paths:
            self.print(WRITTEN.fill(path=path))

    def warn(self, message: str) -> None:
        """Print a message of the package to standard error."""
        click.echo(f"jumok: {translate(message)}", err=True)


def format_table(columns: str, rows: Iterable[Sequence[object]], headings: Sequence[str] = (), gap: int = 2) -> str:
    """Return a table as lines of text, as wide as its cells need. A Hangul letter is two terminal cells wide.

    Args:
        columns: The alignment of each column, "l" or "r".
        headings: The first line; none by default.

    >>> print(format_table("lr", [["a", "1,000"]], ["쿼리", "값"]))
    쿼리     값
    a     1,000
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=bool(headings))
    for index, alignment in enumerate(columns):
        heading = headings[index] if headings else ""
        table.add_column(heading, justify="right" if alignment == "r" else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    # texts are printed as they are, and never cut to the width of a terminal
    console = Console(width=1_000_000, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))
