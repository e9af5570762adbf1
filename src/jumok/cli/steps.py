"""jumok steps: attention line by line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .command import Command

if TYPE_CHECKING:
    from jumok.lab.formula_steps import Example, Matrix, Step


@click.command(
    cls=Command,
    short_help="Attention step by step, with every number.",
    epilog="""Examples:
  jumok steps
  jumok steps causal
  jumok steps one-hot --json
""",
)
@click.argument("names", metavar="[EXAMPLE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def steps(names: tuple[str, ...], as_json: bool) -> None:
    """The formula line by line, with shapes and numbers, on EXAMPLE: mixture, one-hot, causal, scores, sentence; or on
    all of them. Where a text prints other numbers they stand beside, marked."""
    from jumok.lab.formula_steps import EXAMPLES, build_example

    chosen = {name: build_example(name) for name in names or EXAMPLES}
    if as_json:
        click.echo(json.dumps({name: _plain(one) for name, one in chosen.items()}, ensure_ascii=False))
        return
    for name, one in chosen.items():
        _print(name, one)


def _plain(one: Example) -> dict[str, Any]:
    rows = [
        {
            "formula": step.formula,
            "shape": step.shape,
            "numbers": _listed(step.numbers),
            **({} if step.printed is None else {"printed": _listed(step.printed), "differs": step.differs}),
        }
        for step in one.steps
    ]
    return {"title": one.title, "words": one.words, "steps": rows, "remark": one.remark}


def _listed(numbers: Matrix) -> list[list[float | None]]:
    """JSON has no infinity: what is forbidden is null."""
    return [[None if cell == float("-inf") else cell for cell in row] for row in numbers.tolist()]


def _print(name: str, one: Example) -> None:
    click.echo(f"{name}: {one.title}")
    if one.words:
        click.echo(f"  {' '.join(one.words)}")
    for step in one.steps:
        click.echo(f"  {step.formula}  {step.shape}")
        for place, row in enumerate(step.numbers.tolist()):
            click.echo("    " + " ".join(_cell(cell) for cell in row) + _beside(step, place))
    if one.remark:
        click.echo(f"  {one.remark}")
    click.echo()


def _cell(number: float) -> str:
    return "       ." if number == float("-inf") else f"{number:8.3f}"


def _beside(step: Step, place: int) -> str:
    """What a text prints for this row, where it is another."""
    if step.printed is None or not step.differs:
        return ""
    printed = step.printed[place]
    if float((printed - step.numbers[place]).abs().max()) <= 0.0051:
        return ""
    return "   <- printed as " + " ".join(f"{number:.2f}" for number in printed.tolist())
