"""jumok compare."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .command import Command


@click.command(
    cls=Command,
    short_help="The figures of several runs in one table.",
    epilog="""Examples:
  jumok compare runs/translate-1 runs/translate-2
  jumok compare runs/* --columns model,bleu,chrf
  jumok compare runs/* --json
""",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--columns", help="Only these figures, with commas between them.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def compare(runs: tuple[Path, ...], columns: str | None, as_json: bool) -> None:
    """The figures of finished training RUNS, one run a row: whatever their reports tell in numbers and short words."""
    from jumok.recipes.compare_runs import compare_runs as table
    from jumok.recipes.report import format_table_row

    rows = table(runs, None if columns is None else [one.strip() for one in columns.split(",")])
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    names = list(rows[0])
    for cells in (names, ["---"] * len(names), *([one[name] for name in names] for one in rows)):
        click.echo(format_table_row(cells))
