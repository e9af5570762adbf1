"""``jumok look --query``: one token's sources in every head, and how many heads prefer which key."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models.transformer import Transformer, TransformerConfig

TEXT = "the cat sat; the cat"


def run_text(*words: str) -> str:
    process = CliRunner().invoke(cli, ["look", *words], catch_exceptions=False)
    assert process.exit_code == 0, process.output
    return process.stdout


def run_json(*words: str) -> Any:
    return json.loads(run_text(*words, "--json"))


def test_a_special_token_is_no_word() -> None:
    with pytest.raises(ArgumentError, match="'</s>' is a token and not a word; select it without merging"):
        run_json("translator", "나는 간다", "--words", "--layer", "encoder.0", "--query", "</s>")


@pytest.mark.parametrize("skip_first", [False, True])
def test_sources_equal_the_rows_of_the_lens(skip_first: bool) -> None:
    shown = run_json(TEXT, "--query", "17", "--top", "4", *(["--skip-first"] if skip_first else []))
    with jumok.Lens(jumok.load("tiny")) as lens:
        capture = lens.run(TEXT)
    preferred: Counter[int] = Counter()
    for row in shown["heads"]:
        weights = capture.row(row["layer"], row["head"], 17).tolist()
        order = sorted(range(1 if skip_first else 0, 20), key=lambda key: -weights[key])
        assert [source["key"] for source in row["sources"]] == order[:4]
        assert [source["weight"] for source in row["sources"]] == pytest.approx([weights[key] for key in order[:4]])
        preferred[order[0]] += 1
    assert len(shown["heads"]) == 4
    assert {row["key"]: row["heads"] for row in shown["preferred"]} == preferred
    largest = [row["sources"][0]["weight"] for row in shown["heads"]]
    assert largest == sorted(largest, reverse=True)


def test_the_last_of_several_occurrences_is_taken_and_said() -> None:
    shown = run_json(TEXT, "--query", "c")
    assert shown["query"]["token"] == 17 and shown["query"]["occurrences"] == [4, 17]
    text = run_text(TEXT, "--query", "c")
    assert "c[17] in 4 heads" in text and "it occurs at 4, 17; this is the last one" in text
    assert run_json(TEXT, "--query", "4")["query"]["token"] == 4
    assert run_json(TEXT, "--query", "-3")["query"]["token"] == 17
    assert "it occurs" not in run_text(TEXT, "--query", "s"), "it occurs once"


def test_a_word_of_several_tokens_is_its_last_token() -> None:
    shown = run_json(TEXT, "--query", "the")
    assert shown["query"] | {"token": 15, "word": "the", "occurrences": [2, 15]} == shown["query"]
    assert "the has several tokens; this is the last of them" in run_text(TEXT, "--query", "the")
    words = run_json(TEXT, "--query", "the", "--words")
    assert words["query"] | {"token": 3, "label": "the", "word": None, "occurrences": [0, 3]} == words["query"]


def test_a_query_without_other_keys_says_so() -> None:
    text = run_text(TEXT, "--query", "0", "--skip-first")
    assert "4 heads  no key with any weight" in text and "without the first token" in text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("dog", r"there is no token 'dog'; choose a token or a position of: t\[0\]"),
        ("20", "tokens 0 to 19"),
        (" ", "there is no token ' '"),
    ],
)
def test_unknown_queries_raise(query: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run_text(TEXT, "--query", query)


def test_an_encoder_decoder_has_queries_on_both_sides(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=256, width=8, layers=1, heads=2, hidden=8)
    folder = jumok.save(Transformer(config), tmp_path / "model", tokenizer=Tokenizer.for_bytes())
    source = run_json(str(folder), "abc", "--limit", "3", "--query", "b", "--layer", "encoder.0.attention")
    assert source["query"]["side"] == "source" and len(source["heads"]) == 2
    target = run_json(str(folder), "abc", "--limit", "3", "--query", "0")
    assert target["query"]["side"] == "target" and {len(row["sources"]) for row in target["heads"]} <= {1, 3}
    sides = {source["side"] for row in target["heads"] for source in row["sources"]}
    assert sides == {"source", "target"} and len(target["heads"]) == 4, "self-attention and cross-attention"


def test_between_adds_up_the_weights_on_two_words_and_ablates_the_heads() -> None:
    text = "the cat sat; the cat sa"
    shown = run_json(text, "--query", "21", "--between", "cat,the")["between"]
    assert [word["positions"] for word in shown["words"]] == [[16, 17, 18, 19], [12, 13, 14, 15]]  # with the space
    with jumok.Lens(jumok.load("tiny")) as lens:
        capture = lens.run(text)
        clean = lens.run(text, logits=True).logits.log_softmax(-1)[0, -2, ord("a")]
        for row in shown["heads"]:
            weights = capture.row(row["layer"], row["head"], 21)
            sums = [float(weights[16:20].sum()), float(weights[12:16].sum())]
            assert row["weights"] == pytest.approx(sums, abs=1e-6)
            edit = jumok.Ablate(layer=row["layer"], head=row["head"])
            ablated = lens.run(text, edits=edit, logits=True).logits.log_softmax(-1)[0, -2, ord("a")]
            assert row["effect"] == pytest.approx(float(ablated - clean), abs=1e-4)
    for index in (0, 1):
        numbers = [(row["weights"][index], row["weights"][1 - index]) for row in shown["heads"]]
        assert shown["words"][index]["heads"] == sum(weight > other_weight for weight, other_weight in numbers)
        assert shown["words"][index]["sum"] == pytest.approx(sum(weight for weight, _ in numbers))
    assert max(abs(row["effect"]) for row in shown["heads"]) > 0.5

    printed = run_text(text, "--query", "21", "--between", "cat,the")
    assert "s[21] in 4 heads: cat or the?" in printed and "rank of 4" in printed
    assert "log-probability of a at the end" in printed and "these heads for cat" in printed


def test_between_takes_the_last_occurrence_that_is_not_after_the_query() -> None:
    words = run_json(TEXT, "--query", "14", "--between", "cat,the")["between"]["words"]
    assert [word["positions"] for word in words] == [[3, 4, 5, 6], [0, 1, 2]]


def test_between_without_a_following_token_or_a_language_model_measures_no_effects() -> None:
    at_end = run_json(TEXT, "--query", "t", "--between", "cat,the")["between"]
    assert at_end["predicted"] is None and {row["effect"] for row in at_end["heads"]} == {None}
    options = ("--layer", "decoder.0.cross", "--query", "student", "--between", "학생은,공원에서")
    translated = run_json("translator", "학생은 공원에서 달린다", *options)["between"]
    assert len(translated["heads"]) == 4 and translated["predicted"] is None
    assert sum(word["heads"] for word in translated["words"]) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--between", "a,b"], "give the token with --query"),
        (["--query", "c", "--between", "cat"], "needs two words, separated by a comma"),
        (["--query", "c", "--between", "cat,the", "--words"], "remove --words"),
    ],
)
def test_between_refuses_contradicting_options(options: list[str], message: str) -> None:
    process = CliRunner().invoke(cli, ["look", TEXT, *options])
    assert process.exit_code == 2 and message in process.output


def test_between_refuses_unknown_and_equal_words() -> None:
    with pytest.raises(ArgumentError, match="there is no token 'dog'"):
        run_text(TEXT, "--query", "c", "--between", "cat,dog")
    with pytest.raises(ArgumentError, match="are the same token"):
        run_text(TEXT, "--query", "c", "--between", "cat,6")
    with pytest.raises(ArgumentError, match=r"attends to several inputs .* choose one attention with --layer"):
        run_text("translator", "학생은 공원에서 달린다", "--query", "student", "--between", "학생은,공원에서")
