"""Parts that all commands share: help with examples, error exits, progress, table columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from jumok.defaults import LANGUAGES
from jumok.errors import get_reader_language

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


class Command(click.Command):
    """A command whose help keeps the line breaks of its examples."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        if self.epilog:
            formatter.write("\n" + self.epilog.rstrip() + "\n")


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


def is_user_error(error: Exception) -> bool:
    """Return True for errors that the user can correct: they are printed as one sentence, without a traceback."""
    from jumok.errors import JumokError

    return isinstance(error, JumokError | OSError)


def exit_with_message(message: str, code: int) -> NoReturn:
    """Print one line to standard error and exit.

    Args:
        message: The line; line breaks and control characters become spaces, and the middle of a long line is left out.
    """
    from jumok.errors import shorten_message

    # names from files may contain escape sequences, which a terminal would obey
    printable = "".join(letter if letter.isprintable() or "\ud800" <= letter <= "\udfff" else " " for letter in message)
    click.echo(f"jumok: {shorten_message(' '.join(printable.split()))}", err=True)
    sys.exit(code)


def collect_given_options(context: click.Context, *names: str) -> dict[str, Any]:
    """Return the named options that were given on the command line, without those that have their default value."""
    commandline = click.core.ParameterSource.COMMANDLINE
    return {name: context.params[name] for name in names if context.get_parameter_source(name) is commandline}


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
    return get_reader_language() if language is None else language


@contextmanager
def show_status(message: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a message while the block runs, if standard error is a terminal.

    Yields a function that changes the message.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console

    with Console(stderr=True).status(message) as status:
        yield status.update


@contextmanager
def show_progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar while the block runs, if standard error is a terminal.

    Yields a function that takes the finished and the total number of steps; None if there is no bar.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("", total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def align_column(texts: Sequence[str], title: str) -> list[str]:
    """Return a title and texts, padded to one width on a terminal, where a Hangul letter is two cells wide."""
    from rich.cells import cell_len

    width = max(map(cell_len, [title, *texts]))
    return [text + " " * (width - cell_len(text)) for text in [title, *texts]]
