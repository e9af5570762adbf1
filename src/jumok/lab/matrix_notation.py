"""Read matrices that a person types: numbers separated by spaces or commas, rows separated by semicolons."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError

MAX_NUMBER = 10_000  # the softmax of larger products is all or nothing
MAX_SIZE = 64  # rows and columns; more cannot be read on a screen


def parse_matrix(text: str, name: str) -> Float[Tensor, "row column"]:
    """Parse a matrix such as ``"2.1 1.5; 1.3 2.5"``.

    Args:
        text: The numbers of each row, separated by spaces or commas; rows are separated by semicolons or line breaks.
        name: What the matrix is, for error messages.

    Raises:
        ArgumentError: If a number cannot be read, rows differ in length, or the matrix is empty or too large.

    >>> parse_matrix("2.1 1.5; 1.3 2.5", "scores").tolist()
    [[2.1, 1.5], [1.3, 2.5]]
    """
    lines = [line.replace(",", " ").split() for line in text.replace("\n", ";").split(";")]
    while lines and not lines[-1]:  # a semicolon at the end
        lines.pop()
    if not lines:
        raise ArgumentError(f'{name} is empty; write numbers row by row, for example "2.1 1.5; 1.3 2.5"')
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            raise ArgumentError(f"row {number} of {name} is empty; remove one of the semicolons")
        rows.append([_parse_number(word, number, name) for word in line])
        if len(line) != len(lines[0]):
            raise ArgumentError(
                f"row {number} of {name} has {len(line)} numbers and row 1 has {len(lines[0])}; give every row the "
                "same number of numbers"
            )
    if max(len(rows), len(rows[0])) > MAX_SIZE:
        raise ArgumentError(f"{name} is {len(rows)} x {len(rows[0])}; give at most {MAX_SIZE} rows and columns")
    return torch.tensor(rows, dtype=torch.float64)  # products of large numbers stay exact


def _parse_number(word: str, row: int, name: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise ArgumentError(f"{word!r} in row {row} of {name} is not a number; write numbers such as 1.5") from None
    if not abs(number) <= MAX_NUMBER:  # also for NaN
        raise ArgumentError(
            f"{word} in row {row} of {name} is not usable; write numbers between -{MAX_NUMBER:,} and {MAX_NUMBER:,}"
        )
    return number
