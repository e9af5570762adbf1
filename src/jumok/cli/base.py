"""What all commands share: help that keeps its examples, and one sentence for a person's mistake."""

from __future__ import annotations

import sys
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
    from jumok.draw import DrawError
    from jumok.errors import JumokError

    return isinstance(mistake, JumokError | DrawError | OSError)


def stop(sentence: str, code: int) -> NoReturn:
    click.echo(f"jumok: {' '.join(sentence.split())}", err=True)
    sys.exit(code)
