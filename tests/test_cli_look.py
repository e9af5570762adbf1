"""jumok look and jumok effect as a person uses them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import JumokError
from jumok.lens import classify_heads
from jumok.lens.describe.word_weights import merge_into_words
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig

TEXT = "the cat sat; the cat"
KOREAN = "주목은 주의다. 주목은"


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def told(*words: str) -> Any:
    return json.loads(said(*words, "--json"))


def test_what_is_printed_is_what_the_lens_sees() -> None:
    tiny = jumok.load("tiny")
    with jumok.Lens(tiny) as lens:
        run = lens.run(TEXT)
    found = told("look", TEXT, "--top", "2")
    assert found["source"] == list(TEXT.replace(" ", "␣"))
    names = {(one.site, one.head): one.name for one in classify_heads(run, list(TEXT.encode()))}
    for row in found["heads"]:
        assert row["kind"] == names[f"blocks.{row['layer']}.attention", row["head"]]
        assert row["future"] == 0 and row["sums"] < 1e-6
    for one in found["tokens"]:
        sources = run.top(one["token"], 2)
        assert [(source["key"], source["head"]) for source in one["sources"]] == [(s.key, s.head) for s in sources]
        for source, wanted in zip(one["sources"], sources, strict=True):
            assert source["weight"] == pytest.approx(wanted.weight, abs=1e-6)


def test_the_default_model_is_tiny_and_its_induction_head_is_named() -> None:
    found = said("look", TEXT)
    assert found == said("look", "tiny", TEXT)
    assert any(line.split()[:3] == ["1", "0", "induction"] for line in found.splitlines())
    assert any(line.strip().startswith("t[19] <- ␣[7] 0.90 (1.0)") for line in found.splitlines()), (
        "behind 'cat' stands a space"
    )


def test_words_of_korean() -> None:
    found = told("look", KOREAN, "--words", "--layer", "1", "--head", "0")
    assert [one["label"] for one in found["tokens"]] == ["주목은", "주의다.", "주목은"]
    with jumok.Lens(jumok.load("tiny")) as lens:
        weights = lens.run(KOREAN).weights(1, 0)
    places = [range(9), range(9, 20), range(20, 30)]
    wanted = merge_into_words(weights, places, places)[2]
    for source in found["tokens"][2]["sources"]:
        assert source["weight"] == pytest.approx(float(wanted[source["key"]]), abs=1e-5)
    letters = told("look", KOREAN)["source"]
    assert letters[:4] == ["주₁", "주₂", "주₃", "목₁"]


def test_pictures_of_one_head_and_of_all(tmp_path: Path) -> None:
    one, grid, drawing = tmp_path / "one.png", tmp_path / "grid.png", tmp_path / "one.svg"
    said("look", KOREAN, "--layer", "1", "--head", "0", "--words", "--png", str(one), "--svg", str(drawing))
    assert told("look", TEXT, "--png", str(grid))["pictures"] == [str(grid)]
    assert 300 < width(one) < width(grid)
    assert "<svg" in drawing.read_text(encoding="utf-8")


def width(path: Path) -> int:
    with Image.open(path) as picture:
        return picture.width


def test_heads_and_edges_in_a_table() -> None:
    heads = said("effect", TEXT, "--token", " ")
    assert "log-probability of token '␣' at position -1" in heads
    rows = [line.split() for line in heads.splitlines() if line.strip()[:1].isdigit()]
    assert len(rows) == 4 and [row[0] for row in rows] == ["1", "2", "3", "4"]
    edges = said("effect", TEXT, "--over", "edges", "--rows", "3")
    assert "t[19] <- ␣[7]" in edges and "1 of 21" in edges
    assert "large weight, but no effect" in edges and "Pearson" in edges
    found = told("effect", TEXT, "--over", "edges", "--verify", "0")
    assert len(found["rows"]) == 4 * 20 * 21 // 2 and found["agreement"] == found["agreement_of_chosen"]


@pytest.mark.parametrize(
    ("words", "metric"),
    [
        (("--right", "b", "--wrong", "a"), "logit of token 98 minus that of token 97"),
        (("--metric", "loss"), "loss over 20 tokens"),
        (("--metric", "kl"), "KL(clean || edited)"),
        (("--token", "x", "--position", "3"), "log-probability of token 120 at position 3"),
        ((), "log-probability of token 32 at position -1"),
    ],
)
def test_metrics_have_words(words: tuple[str, ...], metric: str) -> None:
    assert told("effect", TEXT, *words)["metric"].startswith(metric)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("look", "tiny", "a", "b"), "put the text in quotes"),
        (("look", "no-such-model", "a"), "no folder or .gguf file 'no-such-model'"),
        (("look", ""), "the text is empty"),
        (("look", TEXT, "--layer", "9"), "there are 2 layers"),
        (("look", TEXT, "--head", "9", "--png", "x.png"), "has 2 heads, counted from 0; 9 is none"),
        (("look", "a" * 600), "reads at most"),
        (("effect", TEXT, "--right", "a"), "needs two tokens"),
        (("effect", TEXT, "--metric", "class"), "needs --label"),
        (("effect", TEXT, "--token", "a", "--metric", "loss"), "--token and --metric loss exclude each other"),
        (("effect", TEXT, "--token", "a", "--label", "1"), "--token and --label exclude each other"),
        (("effect", "no-such-model", TEXT, "--right", "a"), "needs two tokens"),  # told before a model is looked for
        (("effect", TEXT, "--token", "주"), "is 3 tokens (주₁ 주₂ 주₃)"),
        (("look", "tiny"), 'tiny is a model; give it something to read: tiny "a text"'),
        (("effect", "smollm2"), "smollm2 is a model"),
        (("look", TEXT, "tiny"), "the model comes first"),
        (("effect", TEXT, "--label", "1"), "gives no classes"),
        (("effect", TEXT, "--position", "2"), "--position needs a metric"),
        (("effect", TEXT, "--metric", "loss", "--position", "2"), "has no position"),
        (("effect", TEXT, "--metric", "value"), "gives logits, which Value cannot measure"),
        (("look", "nothere.txt"), "put a space in front of it"),
        (("look", "nothere.png"), "there is no file nothere.png"),
        (("look", TEXT, "--head", "9"), "has 2 heads, counted from 0; 9 is none"),
    ],
)
def test_a_mistake_is_a_sentence(words: tuple[str, ...], sentence: str) -> None:
    done = CliRunner().invoke(cli, list(words))
    assert isinstance(done.exception, JumokError) and sentence in str(done.exception), done.exception


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("look", TEXT, "--png", "x.jpg"), "--png writes PNG; x.jpg must end in .png"),
        (("look", TEXT, "--svg", "x.png"), "--svg writes SVG; x.png must end in .svg"),
        (("look", TEXT, "--png", "no/where/x.png"), "there is no folder no/where"),
        (("effect", TEXT, "--over", "edges", "--by", "mean"), "--by is for --over heads"),
        (("effect", TEXT, "--verify", "3"), "--verify is for --over edges"),
        (("effect", TEXT, "--controls", "3"), "--controls is for --over edges"),
        (("effect", TEXT, "--verify", "-3"), "-3 is not in the range x>=0"),
    ],
)
def test_an_option_that_cannot_be_is_told_before_anything_is_loaded(words: tuple[str, ...], sentence: str) -> None:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code != 0 and sentence in str(done.exception) + done.output


def test_a_measure_without_a_place_looks_from_nowhere() -> None:
    assert "looks most at" not in said("effect", TEXT, "--metric", "loss")
    assert "too few edges" in said("effect", "a", "--over", "edges")


def test_standard_input_is_read() -> None:
    done = CliRunner().invoke(cli, ["look", "-", "--json"], input=TEXT + "\n", catch_exceptions=False)
    assert json.loads(done.stdout) == told("look", TEXT)
    broken = CliRunner().invoke(cli, ["look", "-"], input=b"\xff\xfe hello")
    assert isinstance(broken.exception, JumokError) and "standard input is not UTF-8" in str(broken.exception)
    empty = CliRunner().invoke(cli, ["effect", "tiny", "-"], input="\n")
    assert isinstance(empty.exception, JumokError) and "standard input is empty" in str(empty.exception)


def test_a_cut_answer_and_unknown_letters_are_said(tmp_path: Path) -> None:
    letters = Tokenizer.for_characters("abcdefgh")
    torch.manual_seed(1)
    model = RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=9, embedding_width=8, width=8, start=0, end=8))
    jumok.save(model, tmp_path / "toy", tokenizer=letters)
    found = told("look", str(tmp_path / "toy"), "abc?d", "--limit", "4")
    assert len(found["target"]) == 5 and found["unfinished"] and found["unknown"] == 1
    shown = said("look", str(tmp_path / "toy"), "abc?d", "--limit", "4").splitlines()[0]
    assert "5 positions (1 of them unknown to its tokenizer); answer: " in shown and shown.endswith(
        "4 tokens: --limit)"
    )
    assert "--limit" in said("effect", str(tmp_path / "toy"), "abc?d", "--limit", "4").splitlines()[0]
    assert told("effect", str(tmp_path / "toy"), "abcd")["unknown"] == 0
    answered = CliRunner().invoke(cli, ["run", str(tmp_path / "toy"), "abc?d"])
    assert "1 of 5 tokens are unknown to this model's tokenizer" in answered.stderr
    assert "unknown" not in CliRunner().invoke(cli, ["run", str(tmp_path / "toy"), "abcd"]).stderr
    wrong = CliRunner().invoke(cli, ["effect", str(tmp_path / "toy"), "abcd", "--token", "?"])
    assert "'?' is unknown to this model's tokenizer" in str(wrong.exception)
    assert found["target"][0] == "<start>" and "".join(found["target"][1:]) == found["answer"]
    # what is measured of an answer: how likely each of its tokens was where the decoder said it
    source, answer = letters.encode("abc?d"), letters.encode(found["answer"])
    with torch.no_grad():
        logits = model.eval()(torch.tensor([source]), torch.tensor([[0, *answer]])).logits[0]
    for place, token in enumerate(answer):
        one = told("effect", str(tmp_path / "toy"), "abc?d", "--limit", "4", "--position", str(place))
        assert one["metric"] == f"log-probability of token {token} at position {place}"
        assert one["clean"] == pytest.approx(float(logits[place].log_softmax(-1)[token]), abs=1e-5)
        assert int(logits[place].argmax()) == token


def test_columns_of_hangul_stand_under_each_other() -> None:
    from rich.cells import cell_len

    found = said("effect", KOREAN, "--over", "edges", "--rows", "6").splitlines()
    head = next(place for place, line in enumerate(found) if "gradient estimate" in line)
    assert {cell_len(line[: line.index(" of 21")]) for line in found[head + 1 : head + 7]} == {
        cell_len(found[head][: found[head].index("rank")]) + 1
    }


def test_a_person_sees_a_bar_and_a_program_does_not() -> None:
    command = [sys.executable, "-m", "jumok", "effect", TEXT, "--over", "edges"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
    parent, child = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child) as process:
        os.close(child)
        shown = b""
        try:
            while piece := os.read(parent, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None and b"effect" in process.stdout.read()
    os.close(parent)
    assert process.returncode == 0 and b"cutting" in shown and b"loading tiny" in shown


def test_the_copy_is_destroyed_without_the_head() -> None:
    """What tiny is shipped for: its induction head is known, and without it nothing is repeated."""
    tiny = jumok.load("tiny")
    text = "qzv kxw pmf qzv kx"
    with jumok.Lens(tiny) as lens, torch.no_grad():
        clean = lens.run(text, logits=True).logits[0, -1]
        cut = lens.run(text, logits=True, edits=jumok.Ablate(layer=1, head=0)).logits[0, -1]
    assert int(clean.argmax()) == ord("w") and int(cut.argmax()) != ord("w")
    assert float(cut.softmax(-1)[ord("w")]) < 0.2 * float(clean.softmax(-1)[ord("w")])
