"""Print tables of experiments in a terminal, and choose the language of their texts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from jumok.lab.experiments import LANGUAGES

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # in the order in which POSIX reads them

language_option = click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    help="The language of texts and pictures.  [default: ko in a Korean locale, else en]",
)


def select_language(language: str | None) -> str:
    """Return the chosen language, or the one of the locale.

    Args:
        language: The value of ``--language``; None if it was not given.
    """
    if language is not None:
        return language
    locale = next((os.environ[name] for name in LOCALE_VARIABLES if os.environ.get(name)), "")
    return "ko" if locale.startswith("ko") else "en"


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
