"""``jumok steps`` on a person's own input: sentences, scores, matrices, and a head of a model."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.cli import cli
from jumok.errors import ArgumentError, JumokError
from jumok.lab.steps.input_steps import build_sentence_steps, parse_matrix
from jumok.lab.steps.sentence_attention import attend_sentence
from jumok.lens import Lens

ENGLISH, KOREAN = {"LC_ALL": "en_US.UTF-8"}, {"LC_ALL": "", "LC_MESSAGES": "", "LANG": "ko_KR.UTF-8"}
HANGUL = re.compile("[가-힣]")


def read_steps(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return the steps of the only example of ``jumok steps``, by formula."""
    process = CliRunner().invoke(cli, ["steps", *arguments, "--json"], env=ENGLISH, catch_exceptions=False)
    (example,) = json.loads(process.stdout).values()
    return {step["formula"]: step for step in example["steps"]}


def read_error(*arguments: str) -> str:
    process = CliRunner().invoke(cli, ["steps", *arguments], env=ENGLISH)
    if isinstance(process.exception, JumokError):
        return str(process.exception)
    assert process.exit_code == 2, process.output
    return process.output


def softmax(*scores: float) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def test_a_sentence_labels_rows_and_columns_with_its_words() -> None:
    steps = read_steps("나는 오늘 학교에 간다", "--causal", "--width", "3")
    words = ["나는", "오늘", "학교에", "간다"]
    weights = steps["softmax, row by row"]
    assert weights["rows"] == words == weights["columns"] and weights["shape"] == [4, 4]
    hidden, to_query = (torch.tensor(steps[name]["numbers"]) for name in ("X", "W_Q"))
    assert torch.allclose(hidden @ to_query, torch.tensor(steps["Q"]["numbers"]), atol=1e-5)
    assert [row[index + 1 :] for index, row in enumerate(weights["numbers"])] == [[0, 0, 0], [0, 0], [0], []]
    assert steps["masked: causal"]["numbers"][0][1:] == [None] * 3


def test_the_seed_changes_the_numbers_and_is_stated_as_random() -> None:
    first, again, other = (build_sentence_steps("the cat sat", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.steps[-1].numbers, again.steps[-1].numbers)
    assert not torch.equal(first.steps[-1].numbers, other.steps[-1].numbers)
    assert "random" in first.title.english and "무작위" in first.title.korean and "no meaning" in first.remark.english


def test_cross_attention_has_one_row_per_word_and_one_column_per_source_word() -> None:
    weights = read_steps("la maison bleue", "--source", "the big blue old house")["softmax, row by row"]
    assert weights["rows"] == ["la", "maison", "bleue"]
    assert weights["columns"] == ["the", "big", "blue", "old", "house"] and weights["shape"] == [3, 5]
    assert [sum(row) for row in weights["numbers"]] == pytest.approx([1, 1, 1], abs=1e-5)


def test_heads_divide_a_sentence_of_any_length() -> None:
    steps = read_steps("a b c d e", "--heads", "3", "--source", "x y")
    assert steps["head 2: softmax, row by row"]["shape"] == [1, 5, 2]
    assert steps["head 2: output"]["shape"] == [1, 5, 16] and steps["concatenation W_O"]["shape"] == [1, 5, 48]


def test_scores_become_weights_and_mix_values() -> None:
    steps = read_steps("cat mat", "--scores", "-2.1 1.5; 1.3, 2.5", "--value", "1 0; 0 10")
    weights = steps["softmax, row by row"]
    assert weights["numbers"] == [pytest.approx(softmax(-2.1, 1.5)), pytest.approx(softmax(1.3, 2.5))]
    assert weights["rows"] == ["cat", "mat"] == weights["columns"]
    (first, second) = weights["numbers"][0]
    assert steps["weights V"]["numbers"][0] == pytest.approx([first, 10 * second])
    causal = read_steps("--scores", "2.1 1.5; 1.3 2.5", "--causal")["softmax, row by row"]
    assert causal["numbers"] == [[1, 0], pytest.approx(softmax(1.3, 2.5))] and causal["columns"] == ["k0", "k1"]


def test_matrices_follow_the_formula() -> None:
    matrices = ["--query", "1 0; 0 2", "--key", "1 0; 1 1; 0 3", "--value", "1; 2; 4"]
    steps = read_steps("cat mat", "--source", "a b c", *matrices)
    assert steps["Q K^T"]["numbers"] == [[1, 1, 0], [0, 2, 6]] and steps["Q K^T"]["columns"] == ["a", "b", "c"]
    rows = [softmax(*(score / math.sqrt(2) for score in row)) for row in ([1, 1, 0], [0, 2, 6])]
    assert steps["softmax, row by row"]["numbers"] == [pytest.approx(row) for row in rows]
    assert steps["weights V"]["numbers"][1] == [pytest.approx(rows[1][0] + 2 * rows[1][1] + 4 * rows[1][2])]
    unscaled = read_steps(*matrices, "--unscaled")["softmax, row by row"]
    assert unscaled["numbers"][1] == pytest.approx(softmax(0, 2, 6))


def test_a_head_of_a_model_has_the_weights_of_the_lens() -> None:
    steps = read_steps("--model", "tiny", "--layer", "1", "--head", "0", "cat; cat")
    loaded = jumok.load("tiny")
    with Lens(loaded) as lens:
        capture = lens.run(torch.tensor([loaded.require_tokenizer().encode("cat; cat")]), keep="output")
    weights = torch.tensor(steps["softmax, row by row"]["numbers"])
    assert torch.allclose(weights, capture.weights(1, 0), atol=1e-5)
    masked = torch.tensor(
        [[-torch.inf if cell is None else cell for cell in row] for row in steps["masked"]["numbers"]]
    )
    assert torch.allclose(masked.softmax(-1), weights, atol=1e-4), "the steps before the softmax lead to it"
    mixed = weights @ torch.tensor(steps["V"]["numbers"])
    assert torch.allclose(mixed, capture.activations["blocks.1.attention.output"][0, 0], atol=1e-4)
    assert steps["Q K^T"]["rows"] == list("cat;␣cat")


def test_explanations_follow_the_language_and_the_locale() -> None:
    def run(*arguments: str, env: dict[str, str]) -> str:
        return CliRunner().invoke(cli, ["steps", "causal", *arguments], env=env, catch_exceptions=False).stdout

    english, korean = run(env=ENGLISH), run(env=KOREAN)
    assert not HANGUL.search(english) and "합이 1인 양수 가중치" in korean
    assert run("--language", "ko", env=ENGLISH) == korean and run("--language", "en", env=KOREAN) == english
    assert run("--json", "--language", "ko", env=ENGLISH) == run("--json", "--language", "en", env=KOREAN)
    for example in json.loads(run("--json", env=KOREAN)).values():
        assert all(step["explanation"] and not HANGUL.search(step["explanation"]) for step in example["steps"])


def test_wide_tables_leave_out_the_middle() -> None:
    output = CliRunner().invoke(cli, ["steps", "a b c", "--heads", "1"], env=ENGLISH, catch_exceptions=False).stdout
    rows = [line for line in output.splitlines() if line.startswith("    a ")]
    assert len(rows[0].split()) == 1 + 6 + 1 + 6 and "…" in rows[0]


@pytest.mark.parametrize("arguments", [["one-hot"], ["a b c", "--heads", "2"], ["--scores", "1 2; 3 4"]], ids=" ".join)
def test_png_draws_the_weights(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "weights.png"
    process = CliRunner().invoke(cli, ["steps", *arguments, "--png", str(path)], env=ENGLISH, catch_exceptions=False)
    assert f"wrote {path}" in process.stdout
    with Image.open(path) as picture:
        assert min(picture.size) > 50 and len(picture.convert("RGB").getcolors(maxcolors=10**6) or []) > 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two-hot"], "unknown example 'two-hot'; choose one of mixture"),
        (["the", "cat", "sat"], "give a sentence in quotes"),
        (["--scores", "1 2; 3"], "row 2 of --scores has 1 numbers and row 1 has 2"),
        (["--scores", "1 b"], "'b' in row 1 of --scores is not a number"),
        (["--scores", "1 inf"], "inf in row 1 of --scores is not usable; write numbers between"),
        (["--scores", ";"], "--scores is empty"),
        (["--scores", "1 2;; 3 4"], "row 2 of --scores is empty"),
        (["--scores", "1 2", "--causal"], "as many queries as keys, not 1 and 2"),
        (["--scores", "1 2; 3 4", "--value", "1"], "the scores have 2 columns and the values 1 rows"),
        (["a b c", "--scores", "1 2; 3 4"], "there are 3 words for 2 queries"),
        (["--query", "1 0"], "--key is missing"),
        (["--query", "1 0", "--key", "1", "--value", "1"], "the query has 2 columns and the key 1"),
        (["--query", "1", "--key", "1; 2", "--value", "1"], "the key has 2 rows and the value 1"),
        (["a b", "--source", "c d", "--causal"], "a causal mask compares positions in one sentence"),
        (["a b", "--heads", "3", "--width", "4"], "3 heads do not divide the width 4"),
        (["causal", "--causal"], "--causal does not apply to an example"),
        (["a b", "--head", "1"], "--head does not apply to a sentence; it applies to --model"),
        (["--png", "x.png"], "a picture shows one example"),
        (["--model", "tiny", "--head", "7", "cat"], "there is no head 7; blocks.0.attention has heads 0 to 1"),
        (["--model", "tiny", "--layer", "9", "cat"], "9"),
        (["--model", "tiny", "x" * 65], "this input has 65 tokens; give at most 64"),
        (["--model", "tiny"], "--model reads one text, not 0"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_mistakes_are_one_sentence(arguments: list[str], message: str) -> None:
    assert message in read_error(*arguments)


def test_matrices_are_limited() -> None:
    with pytest.raises(ArgumentError, match="at most 64 rows and columns"):
        parse_matrix("1 " * 65, "scores")
    assert parse_matrix("1,2\n3,4;", "scores").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("site", ["encoder.1.attention", "decoder.0.cross"])
def test_the_steps_of_a_model_with_a_bias_lead_to_its_weights(site: str) -> None:
    from jumok.lab.steps.model_steps import KEPT, build_model_steps
    from jumok.models.t5 import T5, T5Config

    torch.manual_seed(0)
    model = T5(T5Config(vocabulary=11, width=12, layers=2, heads=3, head_width=5, hidden=7)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    with Lens(model) as lens:
        capture = lens.run(torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6, 7, 8]]), keep=KEPT)
    (site,) = capture.sites.find_matches(site)
    steps = {step.formula: step for step in build_model_steps(capture, site, -1, [], []).steps}
    names = list(steps)
    scores = steps[names[names.index("softmax, row by row") - 1]].numbers
    assert torch.allclose(scores.softmax(-1), capture.weights(site, 2), atol=1e-5)
    assert ("+ bias" in steps) == ("cross" not in site)
    mixed = steps["softmax, row by row"].numbers @ steps["V"].numbers
    assert torch.allclose(mixed, steps["weights V"].numbers, atol=1e-4)


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_all_projections_of_a_sentence_give_the_same_weights(score: str) -> None:
    sizes = {"heads": 4, "groups": 2, "width": 12, "head_width": 5, "value_width": 7, "seed": 3}
    fused, batched, single = (
        attend_sentence("the cat sat", projection=layout, score=score, **sizes)
        for layout in ("fused", "batched", "single")
    )
    torch.testing.assert_close(batched.weights, fused.weights)
    torch.testing.assert_close(single.weights, fused.weights)
    assert fused.parameters == batched.parameters == single.parameters
