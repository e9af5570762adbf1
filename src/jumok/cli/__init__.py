"""The command line: parse, call, print. torch is imported by the commands that need it, not before."""

from __future__ import annotations

import io
import sys

import click

from jumok import __version__

from .attention import attend, demo, mask
from .command import Group, exit_with_message, is_user_error
from .compare import compare
from .data import data
from .effect import effect
from .look import look
from .models import models, run
from .steps import steps
from .train import train


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Examples:
  jumok demo
  jumok steps causal
  jumok attend "the cat sat on the mat" --mask causal
  jumok mask "causal & (window(4) | global_at([0]))"
  jumok data get smollm2
  jumok run smollm2 "The capital of Korea is"
  jumok look "the cat sat; the cat"
  jumok effect "the cat sat; the cat" --over edges
""",
)
@click.version_option(__version__, message="jumok %(version)s")
def cli() -> None:
    """Jumok (주목): a workbench for Transformers. Every attention passes one door."""


for command in (demo, steps, attend, mask, data, models, run, train, compare, look, effect):
    cli.add_command(command)


def main() -> None:
    """Run the command line; a person's mistake is one sentence and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot write Hangul shows escapes, not a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as nothing:
        click.echo(nothing.format_message())
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        exit_with_message("stopped", 130)
    except click.ClickException as mistake:
        context = getattr(mistake, "ctx", None)
        hint = f" (see: {context.command_path} --help)" if context is not None else ""
        if isinstance(mistake, click.NoSuchOption) and mistake.option_name[1:2].isdigit():
            hint = "; a negative number goes behind two dashes: jumok run MODEL -- -5,3"
        exit_with_message(mistake.format_message().removesuffix(".") + hint, 2)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as wrong:
        exit_with_message(f"{wrong.filename or 'a file'}: {wrong.strerror or wrong}", 2)
    except Exception as mistake:
        if not is_user_error(mistake):
            raise
        exit_with_message(str(mistake), 2)
