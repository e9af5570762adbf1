"""The worked examples: the numbers that follow from the formula, beside those that published texts print."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from jumok import attend
from jumok.attention import mask
from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.lab.steps.document_examples import EXAMPLES, build_example
from jumok.lab.steps.formula_steps import compute_steps
from jumok.lab.steps.input_steps import draw_head_projections

ENGLISH = {"LC_ALL": "en_US.UTF-8"}


def read_json(*arguments: str) -> dict[str, Any]:
    process = CliRunner().invoke(cli, ["steps", *arguments, "--json"], env=ENGLISH, catch_exceptions=False)
    fields: dict[str, Any] = json.loads(process.stdout)
    return fields


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
    assert weights.differing_rows == [2] and torch.equal(weights.numbers.sum(-1), torch.ones(4))
    output = CliRunner().invoke(cli, ["steps", "causal"], env=ENGLISH).stdout
    marked = [line for line in output.splitlines() if "<- printed as" in line]
    assert len(marked) == 1 and "0.118" in marked[0] and "0.10 0.30 0.60" in marked[0]


def test_the_scores_of_the_lecture_do_not_give_its_weights() -> None:
    weights = build_example("scores").steps[-1]
    assert weights.differs and weights.numbers[0].tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    assert (weights.rows, weights.columns) == (["it"], ["The", "animal", "street"])


def test_the_steps_agree_with_attend() -> None:
    generator = torch.Generator().manual_seed(3)
    query, key, values = (torch.randn(5, 3, generator=generator) for _ in range(3))
    steps = compute_steps(query, key, values, mask=mask.causal)
    output, weights = attend(query[None, None], key[None, None], values[None, None], mask=mask.causal, weights=True)
    assert torch.allclose(steps[-1].numbers, output[0, 0]) and torch.allclose(steps[-2].numbers, weights[0, 0])
    assert [step.shape for step in steps] == [[5, 3]] * 3 + [[5, 5]] * 4 + [[5, 3]]


def test_multihead_splits_concatenates_and_projects() -> None:
    example = build_example("multi-head")
    steps = {step.formula: step for step in example.steps}
    shapes = {name: step.shape for name, step in steps.items() if step.printed_shape is not None}
    heads = [f"head {head}: output" for head in range(4)]
    assert shapes == {
        "X": [1, 3, 64],
        **{head: [1, 3, 16] for head in heads},
        "concatenation of the heads": [1, 3, 64],
        "concatenation W_O": [1, 3, 64],
    }
    assert not any(step.differs for step in example.steps)

    # an independent computation with torch's own function
    projections = draw_head_projections(4, 64, seed=0)
    hidden = steps["X"].numbers
    outputs = []
    for head in range(4):
        query, key, values = (hidden @ projection for projection in projections[3 * head : 3 * head + 3])
        outputs.append(torch.nn.functional.scaled_dot_product_attention(query, key, values))
        assert torch.allclose(steps[heads[head]].numbers, outputs[-1], atol=1e-5)
    assert torch.allclose(steps["concatenation W_O"].numbers, torch.cat(outputs, -1) @ projections[-1], atol=1e-5)


def test_json_holds_all_examples_and_what_the_documents_print() -> None:
    examples = read_json()
    assert set(examples) == set(EXAMPLES)
    assert examples["causal"]["steps"][1]["numbers"][0] == [pytest.approx(2.1), None, None, None]
    sentence = examples["sentence"]
    assert len(sentence["words"]) == 11 == sentence["steps"][0]["shape"][0]
    weights_of_it = sentence["steps"][-2]["numbers"][sentence["words"].index("it")]
    assert min(weights_of_it) > 0  # the lecture's encoder reads "was too tired" too
    assert all("printed" in step for example in examples.values() for step in example["steps"])

    weights = examples["causal"]["steps"][-1]
    assert weights["printed"] == [None, None, [pytest.approx(part) for part in (0.1, 0.3, 0.6, 0.0)], None]
    assert weights["differing_rows"] == [2] and weights["differs"]
    lecture = examples["scores"]["steps"][-1]
    assert lecture["printed"] == [[pytest.approx(part) for part in (0.01, 0.88, 0.03)]] and lecture["differs"]
    printed_sum = examples["mixture"]["steps"][-1]
    assert printed_sum["printed"] == [[81.5, 81.5]] and not printed_sum["differs"]
    one_hot = next(step for step in examples["one-hot"]["steps"] if step["formula"].startswith("softmax"))
    assert one_hot["printed"] is None  # the article shows its code, not its output
    assert one_hot["numbers"][0][0] == pytest.approx(math.e / (math.e + 2))


def test_headings_are_in_the_language_of_the_reader_and_formulas_in_english() -> None:
    output = CliRunner().invoke(cli, ["steps", "--language", "ko"], env=ENGLISH).stdout
    headings = [line for line in output.splitlines() if re.match(r"  \S.*  \[\d+(, \d+)+\]", line)]
    assert len(headings) == sum(len(build_example(name).steps) for name in EXAMPLES)
    names = re.compile(r"\b(?:[QKVXYT]|W_[QKVO]|sqrt|tanh|x|causal)\b")  # what formulas and masks are made of
    assert [line for line in headings if re.search("[a-zA-Z]", names.sub("", line))] == []
    steps = build_example("mixture").steps
    assert [step.formula for step in steps] == ["weights", "V", "each weight times its value", "their sum"]
    assert [step["formula"] for step in read_json()["mixture"]["steps"]] == [step.formula for step in steps]


def test_unknown_names_raise() -> None:
    with pytest.raises(ArgumentError, match="unknown example 'two-hot'; choose one of mixture, one-hot"):
        build_example("two-hot")
