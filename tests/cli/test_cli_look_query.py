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
