"""The commands ``jumok models`` and ``jumok export``."""

from __future__ import annotations

from typing import Any

import click

from jumok import defaults
from jumok.bilingual_text import Texts
from jumok.translation import translate

from .command import json_option, show_status
from .command_output import CommandOutput
from .help import Command

TEXTS = Texts(__file__)


@click.command(cls=Command)
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@json_option
def models(names: tuple[str, ...], as_json: bool) -> None:
    """The command ``jumok models``."""
    output = CommandOutput(as_json)
    if names:
        _print_support_levels(names, output)
        return
    from jumok.models.registry import describe_families

    rows = describe_families()
    if as_json:
        output.print_json(rows)
        return
    cells = [(row["family"], TEXTS("parameters", count=row["parameters"]), translate(str(row["what"]))) for row in rows]
    output.print_table("lrl", cells)


def _print_support_levels(names: tuple[str, ...], output: CommandOutput) -> None:
    from jumok.checkpoint.resolve import resolve_model_path
    from jumok.checkpoint.transformers_folder import open_model
    from jumok.errors import JumokError
    from jumok.lens.huggingface.router import REFUSED, Support
    from jumok.lens.support_level import find_support_level

    rows: list[dict[str, Any]] = []
    for name in names:
        resolve_model_path(name)  # a name that does not exist is an error, not a level
        notes: list[str] = []
        with show_status(f"opening {name}", output.as_json):
            try:
                support = find_support_level(open_model(name, notes.append))
            except JumokError as error:
                support = Support(REFUSED, str(error))
        rows.append({"model": name, "level": support.level, "reason": support.reason, "notes": notes})
    if output.as_json:
        output.print_json(rows)
        return
    for row in rows:
        output.print(f"{row['model']}: {translate(row['level'])} ({translate(row['reason'])})")
        for note in row["notes"]:
            output.print(f"  {translate(note)}")


@click.command(cls=Command)
@click.argument("model", metavar="RUN")
@click.argument("folder")
@click.option(
    "--format", "file_format", default=defaults.EXPORT_FORMAT, show_default=True, type=click.Choice(defaults.FORMATS)
)
@json_option
def export(model: str, folder: str, file_format: str, as_json: bool) -> None:
    """The command ``jumok export``."""
    from jumok.checkpoint import load, save
    from jumok.checkpoint.save import list_restrictions
    from jumok.checkpoint.tensor_files import read_json

    loaded = load(model)
    target = save(loaded, folder, format=file_format)
    restrictions = list_restrictions(loaded.model, file_format)
    architectures = read_json(target, "config.json").get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) else None
    output = CommandOutput(as_json)
    if as_json:
        row = {
            "folder": folder,
            "format": file_format,
            "family": loaded.family,
            "architecture": architecture,
            "files": sorted(path.name for path in target.iterdir()),
            "restrictions": restrictions,
        }
        output.print_json(row)
        return
    for message in restrictions:
        output.warn(message)
    if architecture is None:
        output.print(TEXTS("load", folder=folder, family=loaded.family))
    else:
        output.print(TEXTS("load_transformers", folder=folder, architecture=architecture))
