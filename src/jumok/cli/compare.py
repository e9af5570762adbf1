"""jumok compare."""

from __future__ import annotations

from pathlib import Path

import click

from jumok.translation import translate_name

from .arguments import parse_layer
from .command import add_picture_options, add_shading_options, check_picture_paths, json_option
from .command_output import CommandOutput
from .help import Command


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--columns")
@click.option("--text")
@click.option("--layer")
@click.option("--head", type=int)
@add_picture_options
@add_shading_options
@json_option
def compare(
    runs: tuple[Path, ...],
    columns: str | None,
    text: str | None,
    layer: str | None,
    head: int | None,
    png: Path | None,
    svg: Path | None,
    scale: str,
    skip_first: bool,
    as_json: bool,
) -> None:
    """The command ``jumok compare``."""
    from jumok.recipes.report import compare_runs, format_table_row

    output = CommandOutput(as_json)
    paths = check_picture_paths(png, svg)
    if text is None and (paths or layer is not None or head is not None):
        raise click.UsageError("attention maps need an input that every run reads; give it with --text")
    if text is not None and not paths and not as_json:
        raise click.UsageError("--text is for attention maps; give --png, --svg or --json")
    selected = None
    if columns is not None:
        shown = {translate_name(name): name for name in compare_runs(runs)[0]}  # the headings of this table work too
        selected = [shown.get(name.strip(), name.strip()) for name in columns.split(",")]
    rows = compare_runs(runs, selected)
    maps = []
    if text is not None:
        from jumok.draw import AXIS_NAMES
        from jumok.lab.run_maps import read_run_maps, save_run_maps

        site = -1 if layer is None else parse_layer(layer)
        maps = read_run_maps(runs, text, layer=site, head=head)
        axis_names = AXIS_NAMES[output.language]
        for path in paths:
            save_run_maps(path, maps, scale=scale, skip_first=skip_first, axis_names=axis_names)
    if as_json:
        joined = [{**row, "map": run_map.to_json()} for row, run_map in zip(rows, maps, strict=True)] if maps else rows
        output.print_json(joined)
        return
    names = list(rows[0])
    output.print(format_table_row([translate_name(name) for name in names]))
    output.print(format_table_row(["---"] * len(names)))
    for row in rows:
        output.print(format_table_row([row[name] for name in names]))
    output.print_written(paths)
