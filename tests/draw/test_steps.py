"""The worked examples: the numbers that follow from the formula, beside those that published texts print."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from jumok import attend
from jumok.attention import mask
from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.lab.formula_steps import EXAMPLES, build_example, compute_steps


def test_the_mixture_is_a_weighted_sum_of_values() -> None:
    parts, total = (step.numbers.tolist() for step in build_example("mixture").steps[2:])
    assert parts == [pytest.approx([1, 1]), pytest.approx([80, 80]), pytest.approx([0.5, 0.5])]
    assert total == [pytest.approx([81.5, 81.5])]


def test_one_hot_words_attend_most_to_themselves() -> None:
    rows = [step.numbers for step in build_example("one-hot").steps if step.formula.startswith("softmax")]
    assert [round(float(weights[0, 0]), 3) for weights in rows] == [0.576, 0.471]


def test_the_causal_example_marks_the_row_that_was_printed_wrong() -> None:
    *_, masked, weights = build_example("causal").steps
    assert masked.numbers.isinf().tolist() == torch.ones(4, 4).triu(1).bool().tolist()
    assert weights.numbers[2].tolist() == pytest.approx([0.118, 0.354, 0.528, 0], abs=5e-4)
    assert weights.differs and torch.equal(weights.numbers.sum(-1), torch.ones(4))
    output = CliRunner().invoke(cli, ["steps", "causal"]).stdout
    marked = [line for line in output.splitlines() if "<- printed as" in line]
    assert len(marked) == 1 and "0.118" in marked[0] and "0.10 0.30 0.60" in marked[0]


def test_the_scores_of_the_lecture_do_not_give_its_weights() -> None:
    weights = build_example("scores").steps[-1]
    assert weights.differs and weights.numbers[0].tolist() == pytest.approx([0, 1, 0], abs=1e-6)


def test_the_steps_agree_with_attend() -> None:
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(5, 3, generator=generator) for _ in range(3))
    steps = compute_steps(query, key, value, mask=mask.causal)
    output, weights = attend(query[None, None], key[None, None], value[None, None], mask=mask.causal, weights=True)
    assert torch.allclose(steps[-1].numbers, output[0, 0]) and torch.allclose(steps[-2].numbers, weights[0, 0])
    assert [step.shape for step in steps] == [[5, 3]] * 3 + [[5, 5]] * 4 + [[5, 3]]


def test_json_holds_all_examples_and_unknown_names_raise() -> None:
    examples = json.loads(CliRunner().invoke(cli, ["steps", "--json"]).stdout)
    assert set(examples) == set(EXAMPLES)
    assert examples["causal"]["steps"][1]["numbers"][0] == [pytest.approx(2.1), None, None, None]
    assert len(examples["sentence"]["words"]) == 11 == examples["sentence"]["steps"][0]["shape"][0]
    with pytest.raises(ArgumentError, match="unknown example 'two-hot'; choose one of mixture, one-hot"):
        build_example("two-hot")
