"""What all commands share: help that keeps its examples, and one sentence for a person's mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import click


class Command(click.Command):
    """Keeps the lines of the examples in the help as they are written."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write("\n" + self.epilog.rstrip() + "\n")


class Group(Command, click.Group):
    command_class = Command


def is_ours(mistake: Exception) -> bool:
    from jumok.errors import JumokError

    return isinstance(mistake, JumokError | OSError)


def stop(sentence: str, code: int) -> NoReturn:
    click.echo(f"jumok: {' '.join(sentence.split())}", err=True)
    sys.exit(code)


@contextmanager
def waiting(what: str, quiet: bool) -> Iterator[None]:
    """A sign that something is under way, where somebody looks, while it cannot be said how far it is."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of what is done, of all, where somebody looks; for a program there is none."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("", total=None)
        yield lambda done, of: bar.update(row, completed=done, total=of)


def column(texts: Sequence[str], title: str) -> list[str]:
    """A title and texts, filled to one width; a Hangul letter takes two places on a terminal."""
    from rich.cells import cell_len

    width = max(map(cell_len, [title, *texts]))
    return [text + " " * (width - cell_len(text)) for text in [title, *texts]]
