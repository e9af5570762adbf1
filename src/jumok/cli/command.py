"""Parts that commands share: error exits, options, progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from jumok.translation import translate

SCALES = ("linear", "sqrt", "row")  # those of jumok.draw, which only commands that draw import

json_option = click.option("--json", "as_json", is_flag=True)


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
    click.echo(f"jumok: {shorten_message(translate(' '.join(printable.split())))}", err=True)
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


def add_picture_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --png and --svg to a command."""
    path = click.Path(path_type=Path, dir_okay=False)
    return click.option("--png", type=path)(click.option("--svg", type=path)(function))


def add_shading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --scale and --skip-first to a command."""
    skip_first = click.option("--skip-first", is_flag=True)
    scale = click.option("--scale", type=click.Choice(SCALES), default="linear", show_default=True)
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

    with Console(stderr=True).status(translate(message)) as status:
        yield lambda message: status.update(translate(message))


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

    columns = (TextColumn(translate(title)), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("", total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)
