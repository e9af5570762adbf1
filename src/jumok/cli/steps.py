"""The command ``jumok steps``: attention step by step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from .command import Command, json_option

if TYPE_CHECKING:
    from jumok.lab.formula_steps import Example, Matrix, Step


@click.command(
    cls=Command,
    short_help="Print the attention formula step by step, with every number.",
    epilog="""Examples:
  jumok steps
  jumok steps causal
  jumok steps one-hot --json
""",
)
@click.argument("names", metavar="[EXAMPLE]...", nargs=-1)
@json_option
def steps(names: tuple[str, ...], as_json: bool) -> None:
    """Print the attention formula line by line, with shapes and numbers, for EXAMPLE (mixture, one-hot, causal, scores,
    sentence) or for all examples. Where a published text prints other numbers, they are shown beside ours."""
    from jumok.lab.formula_steps import EXAMPLES, build_example

    examples = {name: build_example(name) for name in names or EXAMPLES}
    if as_json:
        rows = {name: _to_json(example) for name, example in examples.items()}
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for name, example in examples.items():
        _print_example(name, example)


def _to_json(example: Example) -> dict[str, Any]:
    rows = []
    for step in example.steps:
        row: dict[str, Any] = {"formula": step.formula, "shape": step.shape, "numbers": _list_numbers(step.numbers)}
        if step.printed is not None:
            row |= {"printed": _list_numbers(step.printed), "differs": step.differs}
        rows.append(row)
    return {"title": example.title, "words": example.words, "steps": rows, "remark": example.remark}


def _list_numbers(numbers: Matrix) -> list[list[float | None]]:
    """Return a matrix as lists; a masked cell (-inf) becomes None, because JSON has no infinity."""
    return [[None if cell == float("-inf") else cell for cell in row] for row in numbers.tolist()]


def _print_example(name: str, example: Example) -> None:
    click.echo(f"{name}: {example.title}")
    if example.words:
        click.echo(f"  {' '.join(example.words)}")
    for step in example.steps:
        click.echo(f"  {step.formula}  {step.shape}")
        for index, row in enumerate(step.numbers.tolist()):
            numbers = " ".join(_format_cell(cell) for cell in row)
            click.echo(f"    {numbers}{_format_printed_row(step, index)}")
    if example.remark:
        click.echo(f"  {example.remark}")
    click.echo()


def _format_cell(number: float) -> str:
    return "       ." if number == float("-inf") else f"{number:8.3f}"


def _format_printed_row(step: Step, row: int) -> str:
    """Return the numbers that the article prints for a row if they differ by more than rounding, otherwise ""."""
    from jumok.lab.formula_steps import ROUNDING

    if step.printed is None or not step.differs:
        return ""
    printed = step.printed[row]
    if float((printed - step.numbers[row]).abs().max()) <= ROUNDING:
        return ""
    return "   <- printed as " + " ".join(f"{number:.2f}" for number in printed.tolist())
