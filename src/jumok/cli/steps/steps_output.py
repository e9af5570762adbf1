"""Print the steps of an example as text or JSON, and draw its weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from jumok.lab.formula_steps import Example, Matrix, Step

SHOWN_COLUMNS = 12  # a row with more numbers is printed with its middle left out
EDGE_COLUMNS = 6  # numbers printed at each end of such a row
CELL = 8  # terminal cells of a number
MAX_LABEL = 12  # terminal cells of a label


def describe_as_json(example: Example, language: str) -> dict[str, Any]:
    """Return an example as JSON fields.

    Args:
        language: "en" or "ko".
    """
    return {
        "title": example.title.select(language),
        "language": language,
        "words": example.words,
        "source": example.source,
        "steps": [_describe_step(step, language) for step in example.steps],
        "remark": example.remark.select(language),
    }


def print_example(name: str, example: Example, language: str) -> None:
    """Print an example: for each step its formula, shape, explanation and numbers.

    Args:
        language: "en" or "ko".
    """
    click.echo(f"{name}: {example.title.select(language)}")
    if example.words:
        arrow = f"  ->  {' '.join(example.source)}" if example.source else ""
        click.echo(f"  {' '.join(example.words)}{arrow}")
    for step in example.steps:
        click.echo(f"  {step.formula}  {step.shape}{_mark_shape(step, language)}")
        click.echo(f"    {step.explanation.select(language)}")
        _print_table(step, language)
    if example.remark.select(language):
        click.echo(f"  {example.remark.select(language)}")
    click.echo()


def draw_weights(example: Example, path: Path, language: str) -> str:
    """Draw the weights of an example as one map, or as a grid if it has several, and return the path.

    Args:
        path: Where to write the picture.
        language: The language of the texts, "en" or "ko".
    """
    from jumok import draw

    steps = [step for step in example.steps if step.is_weights]
    title = example.title.select(language)
    axis_names = draw.AXIS_NAMES[language]
    labels = list(steps[0].rows), list(steps[0].columns)
    if len(steps) == 1:
        return str(draw.save_heat_map(path, steps[0].matrix, *labels, title=title, axis_names=axis_names))
    titles = [_name_weights(example, step) for step in steps]
    patterns = [step.matrix.tolist() for step in steps]
    return str(draw.save_head_grid(path, patterns, *labels, titles=titles, title=title, axis_names=axis_names))


def _name_weights(example: Example, weights: Step) -> str:
    """Return the head of a map, or the line before the softmax."""
    head, is_head, _ = weights.formula.partition(":")
    return head if is_head else example.steps[example.steps.index(weights) - 1].formula  # compared by identity


def _describe_step(step: Step, language: str) -> dict[str, Any]:
    return {
        "formula": step.formula,
        "explanation": step.explanation.select(language),
        "shape": step.shape,
        "rows": list(step.rows),
        "columns": list(step.columns),
        "numbers": _replace_missing(step.numbers.tolist()),
        "printed": _list_printed(step),
        "printed_shape": None if step.printed_shape is None else list(step.printed_shape),
        "differs": step.differs,
        "differing_rows": step.differing_rows,
    }


def _list_printed(step: Step) -> list[list[float | None] | None] | None:
    """Return the printed numbers; None for a row, or for a whole step, of which the text prints nothing."""
    if step.printed is None:
        return None
    rows: list[list[float | None]] = _replace_missing(step.printed.tolist())
    return [row if any(cell is not None for cell in row) else None for row in rows]


def _replace_missing(numbers: Any) -> Any:
    """Replace -inf and NaN in nested lists by None, because JSON has neither."""
    if isinstance(numbers, list):
        return [_replace_missing(part) for part in numbers]
    return numbers if math.isfinite(numbers) else None


def _print_table(step: Step, language: str) -> None:
    from jumok.draw.cell_text import count_cells, make_visible, pad, truncate

    matrix = step.matrix
    rows = [truncate(make_visible(label), MAX_LABEL) for label in step.rows] or [""] * len(matrix)
    columns = [truncate(make_visible(label), MAX_LABEL) for label in step.columns]
    label_width = max(map(count_cells, rows))
    widths = [max(CELL, count_cells(label)) for label in columns] or [CELL] * matrix.shape[1]
    if columns:
        header = [" " * (width - count_cells(label)) + label for label, width in zip(columns, widths, strict=True)]
        click.echo(f"    {' ' * label_width} {_join_cells(header)}")
    for index, numbers in enumerate(matrix.tolist()):
        cells = [_format_number(number).rjust(width) for number, width in zip(numbers, widths, strict=True)]
        label = f"{pad(rows[index], label_width)} " if label_width else ""
        click.echo(f"    {label}{_join_cells(cells)}{_mark_row(step, index, language)}".rstrip())


def _join_cells(cells: list[str]) -> str:
    """Join the cells of a line; the middle of a long line is left out."""
    if len(cells) > SHOWN_COLUMNS:
        cells = [*cells[:EDGE_COLUMNS], "…", *cells[-EDGE_COLUMNS:]]
    return " ".join(cells)


def _format_number(number: float) -> str:
    if number == float("-inf"):
        return "."
    return f"{number:.3f}" if abs(number) < 1000 else f"{number:.3g}"


def _mark_row(step: Step, row: int, language: str) -> str:
    """Return the numbers that a text prints for a row if they differ by more than rounding, otherwise ""."""
    if step.printed is None or row not in step.differing_rows:
        return ""
    return f"   <- {_name_printed(language)} {_format_printed(step.printed, row)}"


def _mark_shape(step: Step, language: str) -> str:
    if step.printed_shape in (None, tuple(step.shape)):
        return ""
    return f"   <- {_name_printed(language)} {list(step.printed_shape or ())}"


def _name_printed(language: str) -> str:
    return "글에 실린 숫자:" if language == "ko" else "printed as"


def _format_printed(printed: Matrix, row: int) -> str:
    return " ".join("-" if math.isnan(number) else f"{number:.2f}" for number in printed[row].tolist())
