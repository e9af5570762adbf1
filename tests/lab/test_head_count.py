"""The experiment ``heads``: equal costs for every number of heads, and a task on which several heads help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.head_count import (
    TaskQuality,
    compute_label_accuracy,
    compute_label_loss,
    create_look_up_rows,
    describe_head_counts,
    measure_head_counts,
)
from jumok.lab.experiments.setups.toy_training import IGNORED
from jumok.lab.result import Result
from jumok.models.gpt import GPT, GPTConfig


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_head_counts([1, 4], runs=1, steps=160, kinds=3)


def test_heads_cost_nothing_but_kept_weights(outcome: Result) -> None:
    single, four = outcome.numbers["rows"]
    assert single.parameters == four.parameters == 1_050_624
    # four projections of 512 x 512, and scores and mixture of 128 x 128 cells
    assert single.operations == four.operations == 2 * 128 * 4 * 512**2 + 4 * 128**2 * 512
    assert (single.weight_bytes, four.weight_bytes) == (4 * 128**2, 4 * 4 * 128**2)
    assert single.milliseconds > 0 and four.milliseconds > 0


def test_four_heads_learn_four_look_ups_better_than_one_and_one_look_up_equally(outcome: Result) -> None:
    single, four = outcome.numbers["rows"]
    assert four.four_look_ups.loss < single.four_look_ups.loss - 0.25
    assert four.four_look_ups.right[0] > single.four_look_ups.right[0] + 0.1
    assert single.single_look_up.right[0] > 0.99 and four.single_look_up.right[0] > 0.99


def test_heads_are_drawn(outcome: Result, tmp_path: Path) -> None:
    assert {count: len(tables) for count, tables in outcome.numbers["maps"].items()} == {1: 1, 4: 4}
    assert torch.tensor(outcome.numbers["maps"][4]).sum(-1).allclose(torch.ones(4, 12), atol=1e-2)
    assert len(outcome.numbers["tokens"]) == 12 and set(outcome.numbers["tokens"]) <= set("012")
    assert outcome.save_picture(tmp_path / "heads.png", "ko").read_bytes().startswith(b"\x89PNG")


def test_results_that_contradict_the_lesson_are_reported(outcome: Result) -> None:
    single, four = (replace(row, milliseconds=1.0) for row in outcome.numbers["rows"])

    def list_sentences(*rows: object) -> list[str]:
        return [text.english for text in describe_head_counts(**{**outcome.numbers, "rows": rows}).exceptions]

    assert list_sentences(single, four) == []
    slow = replace(four, milliseconds=2.0)
    assert list_sentences(single, slow) == ["4 heads took 2.00 times as long as 1, with equal operations."]
    varied = replace(four, four_look_ups=TaskQuality((0.1, single.four_look_ups.losses[0]), (1.0, 0.5)))
    assert list_sentences(single, varied) == ["4 look-ups: 4 heads are not better than 1 with every seed."]
    narrower = replace(four, heads=8, four_look_ups=TaskQuality((single.four_look_ups.losses[0] - 0.01,), (0.5,)))
    assert list_sentences(single, four, narrower)[0].startswith("4 look-ups: more heads are not always better: 8 heads")
    mixed = replace(narrower, four_look_ups=TaskQuality((0.0, 9.0), (1.0, 0.1)))
    assert "the ranges of 8 and 4 heads overlap" in list_sentences(single, four, mixed)[2]
    unable = replace(four, single_look_up=TaskQuality((0.5,), (0.8,)))
    assert "labels of 4 and 1 heads differ" in list_sentences(single, unable)[0]


def test_labels_are_the_earlier_digits_and_rows_are_held_out() -> None:
    train, held_out = create_look_up_rows(4, 5, seed=3)
    assert (len(train), len(held_out)) == (20_000, 500)
    digits, labels = train[:, :12], train[:, 12:]
    assert (labels[:, :4] == IGNORED).all()
    for position in (4, 7, 11):
        number = sum(5**power * digits[:, position - 4 + power] for power in range(4))  # the nearest digit counts most
        assert torch.equal(labels[:, position], number)
    assert not {tuple(row) for row in digits.tolist()} & {tuple(row) for row in held_out[:, :12].tolist()}
    before = create_look_up_rows(1, 3, seed=0)[0]
    assert torch.equal(before[:, 13:], before[:, :11])
    with pytest.raises(ArgumentError, match="from 1 to 11, not 12"):
        create_look_up_rows(12, 5, seed=0)
    with pytest.raises(ArgumentError, match="kinds must be from 3 to 8, not 2"):
        create_look_up_rows(4, 2, seed=0)


def test_only_labels_count_in_loss_and_accuracy() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=5, length=12, width=8, layers=1, heads=2, hidden=8, tied=False)).eval()
    rows = create_look_up_rows(1, 5, seed=0)[1][:7]
    with torch.no_grad():
        logits = model(rows[:, :12]).logits[:, 1:]
        loss = compute_label_loss(model, rows)
    labels = rows[:, :11]
    assert loss == pytest.approx(float(-logits.log_softmax(-1).gather(-1, labels[..., None]).mean()), rel=1e-5)
    assert compute_label_accuracy(model, rows) == pytest.approx(float((logits.argmax(-1) == labels).double().mean()))


def test_the_same_seed_gives_the_same_quality_and_bad_numbers_are_refused() -> None:
    first, again, other = (measure_head_counts([2], runs=1, steps=3, seed=seed) for seed in (0, 0, 1))
    assert (
        first.numbers["rows"][0].four_look_ups
        == again.numbers["rows"][0].four_look_ups
        != other.numbers["rows"][0].four_look_ups
        and first.numbers["maps"] == again.numbers["maps"]
    )
    with pytest.raises(ArgumentError, match="heads must divide 64"):
        measure_head_counts([3])
