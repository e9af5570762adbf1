"""The command ``jumok experiment``: show a lesson with numbers."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jumok.cli.command import (
    Command,
    add_picture_options,
    check_picture_paths,
    json_option,
    language_option,
    select_language,
    show_progress,
)
from jumok.cli.page_hint import EXAMPLE, EXPERIMENT_HINTS, print_page_hint
from jumok.lab.experiments import EXPERIMENTS, run_experiment

from .result_output import print_outcome

HEADINGS = {"en": "Where it did not come out:", "ko": "결과가 다르게 나온 경우:"}


@click.command(
    cls=Command,
    short_help="Show a lesson about Transformers with numbers.",
    epilog="""Examples:
  jumok experiment
  jumok experiment scale --quick
  jumok experiment scale --seed 1 --png scale.png --language ko
  jumok experiment scale --json
""",
)
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Use smaller settings: about a minute at most, instead of up to 20.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Seed of all random numbers."
)
@add_picture_options("the numbers")
@language_option
@json_option
def experiment(
    name: str | None,
    quick: bool,
    seed: int,
    png: Path | None,
    svg: Path | None,
    language: str | None,
    as_json: bool,
) -> None:
    """Run the experiment NAME: print its numbers, what they show, and where the lesson did not come out.

    Without NAME, list the experiments. The same seed gives the same numbers, except for measured times and memory."""
    selected = select_language(language)
    paths = check_picture_paths(png, svg)
    if name is None:
        _print_list(selected, as_json)
        return

    summary = EXPERIMENTS[name].summary.select(selected) if name in EXPERIMENTS else name
    with show_progress(summary, as_json) as progress:
        outcome = run_experiment(name, quick=quick, seed=seed, progress=progress)
    pictures = [str(outcome.save_picture(path, selected)) for path in paths]
    if as_json:
        fields = {"experiment": name, "quick": quick, **outcome.to_json(selected), "pictures": pictures}
        click.echo(json.dumps(fields, ensure_ascii=False))
        return
    click.echo(f"{name}: {summary}\n")
    print_outcome(outcome, selected, HEADINGS[selected])
    for picture in pictures:
        click.echo(f"wrote {picture}")
    if name in EXPERIMENT_HINTS:
        print_page_hint(EXAMPLE, EXPERIMENT_HINTS[name], selected)


def _print_list(language: str, as_json: bool) -> None:
    if as_json:
        rows = [{"experiment": name, "summary": entry.summary.select(language)} for name, entry in EXPERIMENTS.items()]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, entry in EXPERIMENTS.items():
        click.echo(f"{name:<10} {entry.summary.select(language)}")
