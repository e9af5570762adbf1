"""jumok compare."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import parse_layer
from .command import (
    Command,
    add_picture_options,
    add_shading_options,
    check_picture_paths,
    json_option,
    language_option,
)
from .command_output import CommandOutput


@click.command(
    cls=Command,
    short_help="Compare several runs: their settings, reports and attention maps.",
    epilog="""Examples:
  jumok compare runs/translate-1 runs/translate-2
  jumok compare runs/* --columns model,bleu,chrf
  jumok compare runs/* --json
  jumok compare runs/sort-1 runs/sort-2 --text "120202=" --png maps.png
  jumok compare runs/sort-1 runs/sort-2 --text "120202=" --layer 0 --head 1 --png maps.png
""",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--columns", help="Names of the columns, separated by commas.  [default: all]")
@click.option("--text", help="Let every run read this text, for --png, --svg and --json.")
@click.option("--layer", help="With --text: this layer, by its number or name.  [default: the last]")
@click.option("--head", type=int, help="With --text: this head.  [default: the mean of all heads]")
@add_picture_options("the attention maps of all runs on --text, side by side,")
@add_shading_options
@language_option
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
    language: str | None,
    as_json: bool,
) -> None:
    """Compare finished training RUNS, one per row: the settings that differ, such as heads or width, and the numbers
    and short texts of their reports. With --text, draw their attention maps side by side."""
    from jumok.recipes.report import compare_runs, format_table_row

    output = CommandOutput(as_json, language)
    paths = check_picture_paths(png, svg)
    if text is None and (paths or layer is not None or head is not None):
        raise click.UsageError("attention maps need an input that every run reads; give it with --text")
    if text is not None and not paths and not as_json:
        raise click.UsageError("--text is for attention maps; give --png, --svg or --json")
    selected = None if columns is None else [name.strip() for name in columns.split(",")]
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
    output.print(format_table_row(names))
    output.print(format_table_row(["---"] * len(names)))
    for row in rows:
        output.print(format_table_row([row[name] for name in names]))
    output.print_written(paths)
