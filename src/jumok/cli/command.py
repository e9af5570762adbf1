"""Parts that commands share: help with examples, error exits, options, progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from jumok.defaults import LANGUAGES

SCALES = ("linear", "sqrt", "row")  # those of jumok.draw, which only commands that draw import

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

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


def list_given_options(context: click.Context) -> dict[str, str]:
    """Return the options that the user wrote, by the names of their parameters."""
    commandline = click.core.ParameterSource.COMMANDLINE
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and parameter.name is not None
        and context.get_parameter_source(parameter.name) is commandline
    }


language_option = click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    help="The language of texts and pictures.  [default: ko in a Korean locale, else en]",
)


def add_picture_options(subject: str) -> Decorator:
    """Return a decorator that adds the options --png and --svg to a command.

    Args:
        subject: What the command draws, for the help.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        path = click.Path(path_type=Path, dir_okay=False)
        function = click.option("--svg", type=path, help="The same as SVG.")(function)
        return click.option("--png", type=path, help=f"Draw {subject} as PNG.")(function)

    return decorate


def add_shading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --scale and --skip-first to a command."""
    skip_first = click.option(
        "--skip-first", is_flag=True, help="Leave the first key, often an attention sink, out of pictures."
    )
    scale = click.option(
        "--scale",
        type=click.Choice(SCALES),
        default="linear",
        show_default=True,
        help="The colours of pictures: by weight, by its square root (small weights become visible), or relative to "
        "the largest weight of each row.",
    )
    return scale(skip_first(function))


def check_picture_paths(png: Path | None, svg: Path | None) -> list[Path]:
    """Return the pictures to write. A path that cannot be written is an error before a model is loaded."""
    paths = []
    for path, suffix in ((png, ".png"), (svg, ".svg")):
        if path is None:
            continue
        if path.suffix.lower() != suffix:
            raise click.UsageError(f"--{suffix[1:]} writes {suffix[1:].upper()}; {path} must end in {suffix}")
        if not path.parent.is_dir():
            raise click.UsageError(f"cannot write {path.name}: there is no folder {path.parent}")
        paths.append(path)
    return paths


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
