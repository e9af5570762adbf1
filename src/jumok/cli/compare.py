"""jumok compare."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .command import Command


@click.command(
    cls=Command,
    short_help="Compare the reports of several runs in one table.",
    epilog="""Examples:
  jumok compare runs/translate-1 runs/translate-2
  jumok compare runs/* --columns model,bleu,chrf
  jumok compare runs/* --json
""",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--columns", help="Names of the columns, separated by commas.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def compare(runs: tuple[Path, ...], columns: str | None, as_json: bool) -> None:
    """Compare finished training RUNS, one per row: the numbers and short texts of their reports."""
    from jumok.recipes.compare_runs import compare_runs
    from jumok.recipes.report import format_table_row

    selected = None if columns is None else [name.strip() for name in columns.split(",")]
    rows = compare_runs(runs, selected)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return

    names = list(rows[0])
    click.echo(format_table_row(names))
    click.echo(format_table_row(["---"] * len(names)))
    for row in rows:
        click.echo(format_table_row([row[name] for name in names]))
