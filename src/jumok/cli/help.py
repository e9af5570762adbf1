"""The classes of all commands: each has --language, and its help in two languages in ``help.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import click

from jumok import defaults
from jumok.bilingual_text import Texts
from jumok.reporting import choose_language, get_reader_language

HELP = Texts(__file__)
TYPES = re.compile(" (INTEGER|FLOAT|TEXT|FILE|PATH|DIRECTORY)(?: RANGE)?$")
WIDE_LETTER = re.compile("[\u1100-\u115f\u3000-\u303f\u3130-\u318f\uac00-\ud7a3]")
FILLER = "\0"  # follows a wide letter, so that click counts the terminal cells of a line


class HelpFormatter(click.HelpFormatter):
    """Write the words of click in the reader's language, and lines of Hangul no longer than others."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how the command is called."""
        for english, name in (("OPTIONS", "option_list"), ("COMMAND", "command"), ("ARGS", "arguments")):
            args = re.sub(rf"\b{english}\b", select_help(f"words.{name}"), args)
        super().write_usage(prog, _widen(args), f"{select_help('words.usage')}: " if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """Write "Options:" or "Commands:"."""
        super().write_heading(select_help(f"words.{heading.lower()}"))

    def write_text(self, text: str) -> None:
        """Write the description."""
        super().write_text(_widen(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write what each option or command does."""
        marks = {"[default: ": f"[{select_help('words.default')}: ", "[required]": f"[{select_help('words.required')}]"}
        texts = []
        for name, text in rows:
            for english, mark in marks.items():
                text = text.replace(english, mark)
            texts.append((_widen(_translate_type(name)), _widen(text)))
        super().write_dl(texts, col_max, col_spacing)

    def getvalue(self) -> str:
        """Return what was written."""
        return super().getvalue().replace(FILLER, "")


class Context(click.Context):
    """The context of a command, with this formatter."""

    formatter_class = HelpFormatter


class Command(click.Command):
    """A command with the option --language, whose help is read from ``help.toml`` when it is shown."""

    context_class = Context

    def __init__(self, name: str | None, *, context_settings: dict[str, Any] | None = None, **settings: Any) -> None:
        shared = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        super().__init__(name, context_settings={**shared, **(context_settings or {})}, **settings)
        language = click.Option(["--language"], type=click.Choice(defaults.LANGUAGES), expose_value=False)
        self.params.append(language)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Choose the language before anything is parsed: errors and the help are written in it."""
        if ctx.parent is None:
            choose_language(_find_language(args))
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option --help."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = select_help("shared.help")
        return option

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return what the command does, for the list of commands."""
        return select_help(f"{self.name}.short")

    def read_help(self, context: click.Context) -> None:
        """Read the help of the command and of its options in the reader's language."""
        self.help = select_help(f"{self.name}.help")
        examples = select_help(f"{self.name}.examples").rstrip().replace("\n", "\n  ")
        self.epilog = f"{select_help('words.examples')}:\n  {examples}"
        for option in self.get_params(context):
            if isinstance(option, click.Option):
                special, shared = f"{self.name}.options.{option.name}", f"shared.{option.name}"
                with suppress(KeyError):
                    option.help = select_help(shared)
                with suppress(KeyError):
                    option.help = select_help(special)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help."""
        self.read_help(ctx)
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        formatter.write(f"\n{self.epilog}\n")


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command


def _find_language(arguments: Sequence[str]) -> Literal["en", "ko"] | None:
    """Return the language that the arguments choose; click refuses an unknown one later."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    match = re.search(r"(?:^|\0)--language[=\0](en|ko)(?:\0|$)", "\0".join(words))
    if match is None:
        return None
    return "ko" if match[1] == "ko" else "en"


def select_help(name: str, **values: object) -> str:
    """Return a text of ``help.toml`` in the reader's language."""
    return HELP(name, **vars(defaults), **values).select(get_reader_language())


def _translate_type(option: str) -> str:
    """Return the names of an option with the type of its value, as click writes it, in the reader's language."""
    return TYPES.sub(lambda match: f" {select_help(f'types.{match[1].lower()}')}", option)


def _widen(text: str) -> str:
    return WIDE_LETTER.sub(rf"\g<0>{FILLER}", text)
