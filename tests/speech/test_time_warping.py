"""Tests of dynamic time warping: cases solved by hand, and a plain dynamic programme in Python's floats."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jumok.tasks.speech.word_times import find_row_starts


def search_every_cell(rewards: list[list[float]]) -> list[int]:
    """Return the first column of each row on the best path, by the recursion over all cells."""
    rows, columns = len(rewards), len(rewards[0])
    best: dict[tuple[int, int], tuple[float, tuple[int, int] | None]] = {}
    for row in range(rows):
        for column in range(columns):
            before = [(row, column - 1), (row - 1, column), (row - 1, column - 1)]
            reached = [(best[cell][0], cell) for cell in before if cell in best]
            total, previous = max(reached) if reached else (0.0, None)
            best[row, column] = (total + rewards[row][column], previous)
    starts = [0] * rows
    cell: tuple[int, int] | None = (rows - 1, columns - 1)
    while cell is not None:
        starts[cell[0]] = cell[1]
        cell = best[cell][1]
    return starts


@pytest.mark.parametrize(("rows", "columns"), [(7, 23), (11, 5), (1, 13), (17, 1), (2, 2), (29, 101)])
@pytest.mark.parametrize("shift", [0.0, -0.5, -2.0])
def test_the_path_equals_a_plain_dynamic_programme(rows: int, columns: int, shift: float) -> None:
    rewards = torch.rand(rows, columns, dtype=torch.float64) + shift  # negative cells make diagonal steps worthwhile
    assert find_row_starts(rewards) == search_every_cell(rewards.tolist())


def test_columns_go_to_the_rows_where_they_are_largest() -> None:
    rewards = torch.tensor(
        [
            [9.0, 9.0, 9.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0],
        ]
    )
    assert find_row_starts(rewards) == [0, 3, 4]


def test_a_path_does_not_go_back_for_a_large_cell() -> None:
    rewards = torch.tensor([[1.0, 1.0, 1.0, 9.0], [9.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    # Row 1 may be entered at column 0 for 9, or at column 3 after the 9 of row 0, but not both.
    assert find_row_starts(rewards) == [0, 3, 3]


def test_more_rows_than_columns_share_columns() -> None:
    starts = find_row_starts(torch.ones(5, 2))
    assert starts[0] == 0 and starts == sorted(starts) and starts[-1] <= 1


def test_float16_is_summed_exactly_enough() -> None:
    rewards: Tensor = torch.rand(5, 1499).half()
    assert find_row_starts(rewards) == search_every_cell(rewards.double().tolist())
