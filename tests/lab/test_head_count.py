"""The experiment ``heads``: equal parameters and operations for every number of heads, and honest ranges of quality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.head_count import HeadCountResult, create_reverse_examples, measure_head_counts


@pytest.fixture(scope="module")
def outcome() -> HeadCountResult:
    return measure_head_counts([1, 4], runs=1, steps=60)


def test_heads_cost_nothing_but_kept_weights(outcome: HeadCountResult) -> None:
    single, four = outcome.rows
    assert single.parameters == four.parameters == 1_050_624
    # four projections of 512 x 512, and scores and mixture of 128 x 128 cells
    assert single.operations == four.operations == 2 * 128 * 4 * 512**2 + 4 * 128**2 * 512
    assert (single.weight_bytes, four.weight_bytes) == (4 * 128**2, 4 * 4 * 128**2)
    assert single.milliseconds > 0 and four.milliseconds > 0


def test_models_learn_the_task_and_are_drawn(outcome: HeadCountResult, tmp_path: Path) -> None:
    assert all(row.losses[0] < 2 and row.right[0] >= 0 for row in outcome.rows)
    assert {count: len(tables) for count, tables in outcome.maps.items()} == {1: 1, 4: 4}
    assert torch.tensor(outcome.maps[4]).sum(-1).allclose(torch.ones(4, 12), atol=1e-2)
    assert len(outcome.tokens) == 12 and outcome.tokens[6] == "="
    assert outcome.save_picture(tmp_path / "heads.png", "ko").read_bytes().startswith(b"\x89PNG")


def test_unclear_results_are_reported(outcome: HeadCountResult) -> None:
    single, four = outcome.rows
    slow = replace(four, milliseconds=2 * single.milliseconds, losses=(0.3, 0.5))
    fast = replace(single, losses=(0.2, 0.4))
    sentences = [text.english for text in replace(outcome, rows=(fast, slow)).list_exceptions()]
    assert sentences[0] == "4 heads took 2.00 times as long as 1, with equal operations."
    assert sentences[1].startswith("The ranges of 4 and 1 heads overlap")
    clear = replace(four, milliseconds=single.milliseconds, losses=(0.5, 0.6))
    assert replace(outcome, rows=(fast, clear)).list_exceptions() == []


def test_examples_are_reversed_and_held_out() -> None:
    train, held_out = create_reverse_examples(3)
    assert (len(train), len(held_out)) == (4000, 300)
    assert torch.equal(train[:, :6].flip(1), train[:, 7:]) and (train[:, 6] == 10).all()
    assert not {tuple(row) for row in train.tolist()} & {tuple(row) for row in held_out.tolist()}


def test_the_same_seed_gives_the_same_quality_and_bad_numbers_are_refused(outcome: HeadCountResult) -> None:
    again = measure_head_counts([1], runs=1, steps=60)
    assert again.rows[0].losses == outcome.rows[0].losses and again.maps[1] == outcome.maps[1]
    with pytest.raises(ArgumentError, match="heads must divide 32"):
        measure_head_counts([3])
