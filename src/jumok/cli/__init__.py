"""The command line: parse options, call the package, print. Only the commands that need torch import it."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO, cast

import click

from jumok import __version__, defaults
from jumok.files import LossyStream
from jumok.translation import translate

from .ask import ask
from .attention import attend, mask
from .command import exit_with_message, is_user_error
from .compare import compare
from .data import data
from .demo import demo
from .diagnosis import doctor
from .effect import effect
from .help import Group, select_help
from .index import index
from .lessons import check, cost, experiment
from .look import look
from .models import export, models
from .run_model import run
from .steps import steps
from .train import train


@click.group(name="jumok", cls=Group)
@click.version_option(__version__, message="jumok %(version)s")
def cli() -> None:
    """The command ``jumok``."""


commands = (
    *(demo, steps, attend, mask, data, models, run, train, compare, export, look, effect),
    *(index, ask, experiment, cost, check, doctor),
)
for command in commands:
    cli.add_command(command)


def main() -> None:
    """Run the command line. A user's mistake prints one line and exits with code 2, without a traceback."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # terminals without Hangul show escapes, not a traceback
    stdout, stderr = sys.stdout, sys.stderr
    sys.stderr = cast("TextIO", LossyStream(stderr))  # messages that cannot be written never stop a command
    try:
        _run_command()
        sys.stdout.flush()  # raise BrokenPipeError here rather than when Python exits
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        _discard_output(stdout)
    except SystemExit:
        # click answers a closed pipe with exit code 1, and replaces the stream so that the flush at exit is silent
        if sys.stdout is stdout:
            raise
    finally:
        sys.stderr = stderr
        try:
            stderr.flush()
        except OSError:
            _discard_output(stderr)


def _discard_output(stream: Any) -> None:
    """Connect a stream whose reader has gone away to the null device: Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_closed_streams() -> None:
    """Connect standard streams that are closed (``<&-``, ``>&-``) to the null device.

    Otherwise the next file that is opened would get the number of the stream, and output would be written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _run_command() -> None:
    try:
        cli.main(["look", "--open"] if _opens_page() else None, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except (click.exceptions.Abort, KeyboardInterrupt):
        exit_with_message("interrupted", 130)
    except click.ClickException as error:
        exit_with_message(_describe_usage_error(error), 2)
    except OSError as error:
        exit_with_message(f"{error.filename or 'the system reports'}: {error.strerror or error}", 2)
    except Exception as error:
        if not is_user_error(error):
            raise
        exit_with_message(str(error), 2)


def _opens_page() -> bool:
    """Return True for plain ``jumok`` in a terminal beside a display: it opens the page, if that is installed."""
    if len(sys.argv) > 1 or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    from .page_options import find_missing_packages

    if find_missing_packages():
        return False
    from jumok.web.server.open_browser import has_display

    return has_display()


def _describe_usage_error(error: click.ClickException) -> str:
    """Return click's message with a hint on how to correct the command."""
    message = error.format_message().removesuffix(".")
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdigit():
        return f"{message}; write a negative number after two dashes: jumok run MODEL -- -5,3"
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.command.name == "train":
        name = error.option_name.lstrip("-").replace("-", "_")
        field = defaults.FIELD_SYNONYMS.get(name, name)
        if field != name:  # click's suggestions are options with similar letters
            message = f"there is no option {error.option_name}"
        return f"{message}; a field is changed with --set {field}=VALUE (jumok train --list RECIPE lists the fields)"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{translate(message)} ({select_help('words.see', command=error.ctx.command_path)})"
    return message
