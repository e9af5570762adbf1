"""The recipes text and text-fast at a small size, from the user's files to ``jumok.run``."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

import jumok
from jumok.errors import ArgumentError, DataError
from jumok.models.bert import BERT, BERTConfig
from jumok.recipes import resume_run
from jumok.training.metrics_log import read_metrics
from recipe_runs import SHORT, SMALL, assert_same_run, load_report, train, write_book
from toys import StopAt, skip_plots

pytestmark = pytest.mark.xdist_group("recipes_text")

GPT_CHANGES = {**SHORT, **SMALL, "length": 16}
CASES: dict[str, dict[str, Any]] = {
    "text": GPT_CHANGES,
    "text-fast": {**GPT_CHANGES, "tokens": "learned", "vocabulary": 300},
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_book(tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="module")
def gpt_run(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "gpt"
    train("text", folder, book, **GPT_CHANGES, tokens="learned", vocabulary=290)
    return folder


@pytest.mark.parametrize("recipe", CASES)
def test_resumed_run_equals_uninterrupted_run(recipe: str, tmp_path: Path, book: Path) -> None:
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    assert train(recipe, finished, book, **CASES[recipe]).progress.finished
    files = {path.name for path in finished.iterdir()}
    assert {"run.json", "metrics.jsonl", "report.json", "report.md", "tokenizer", "tokens", "best.json"} <= files
    assert train(recipe, interrupted, book, StopAt(3), **CASES[recipe]).signal == signal.SIGTERM
    with skip_plots():
        assert resume_run(interrupted, display=StopAt(5)).signal == signal.SIGTERM
        assert resume_run(interrupted).progress.finished
    assert_same_run(interrupted, finished)
    assert all(number == number for row in read_metrics(finished) for number in row.values())  # no NaN


def test_resumed_run_does_not_read_the_data_again(tmp_path: Path, book: Path) -> None:
    """The tokens are in the run's folder, so that a changed file cannot change the run."""
    copy = tmp_path / "copy.txt"
    copy.write_text((book / "a.txt").read_text(encoding="utf-8"), encoding="utf-8")
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("text", finished, book / "a.txt", **GPT_CHANGES)
    train("text", interrupted, copy, StopAt(3), **GPT_CHANGES)
    copy.write_text("another text\n" * 50, encoding="utf-8")
    with skip_plots():
        resume_run(interrupted)
    assert_same_run(interrupted, finished)


def test_trained_gpt_continues_a_text(gpt_run: Path) -> None:
    loaded = jumok.load(gpt_run)
    assert loaded.config.vocabulary == loaded.tokenizer.vocabulary == 290
    continuation = jumok.run(gpt_run, "In year", limit=6)
    assert isinstance(continuation, str) and continuation
    report = load_report(gpt_run)
    assert report["recipe"] == "text" and report["unknown_rate"] == 0.0 and report["sample"]
    assert "over the whole last tenth of the text" in report["what"]


def test_vocabulary_shrinks_to_the_learned_tokens(tmp_path: Path) -> None:
    """A model must not have tokens that its tokenizer cannot decode."""
    (tmp_path / "a.txt").write_text("ab\n" * 300, encoding="utf-8")
    train("text", tmp_path / "run", tmp_path / "a.txt", **GPT_CHANGES, tokens="learned", vocabulary=2000)
    loaded = jumok.load(tmp_path / "run")
    assert loaded.config.vocabulary == loaded.tokenizer.vocabulary < 300


def test_text_uses_the_gpt2_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "like-gpt2"
    folder.mkdir()
    vocabulary = {chr(letter): letter - 33 for letter in range(33, 127)}
    vocabulary |= {"Ġ": 94, "Ċ": 95, "th": 96, "<|endoftext|>": 97}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nt h\n", encoding="utf-8")
    monkeypatch.setattr("jumok.data.catalogue.download_entry", lambda name, report=None: folder)
    text = "the other thing\n" * 40
    (tmp_path / "data").mkdir()
    for name in "ab":
        (tmp_path / "data" / f"{name}.txt").write_text(text, encoding="utf-8")
    train("text-fast", tmp_path / "run", tmp_path / "data", **GPT_CHANGES, tokens="gpt2")
    loaded = jumok.load(tmp_path / "run")
    assert loaded.config.vocabulary == 98 and loaded.tokenizer.end == 97
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data_facts"]
    assert facts["tokens"] == 2 * (len(loaded.tokenizer.encode(text)) + 1)  # an end token after each file


def test_text_continues_a_trained_gpt(tmp_path: Path, book: Path, gpt_run: Path) -> None:
    """The run uses the loaded model and tokenizer, and can be resumed when the start is gone."""
    start = tmp_path / "start"
    jumok.save(jumok.load(gpt_run), start)
    changes = {**SHORT, "window": 8}
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("text", finished, book, start=start, **changes)
    train("text", interrupted, book, StopAt(4), start=start, **changes)
    for file in start.iterdir():
        file.unlink()
    with skip_plots():
        resume_run(interrupted)
    assert_same_run(interrupted, finished)

    train("text", tmp_path / "scratch", book, **{**GPT_CHANGES, "steps": 1}, tokens="learned", vocabulary=290)
    assert read_metrics(finished)[0]["loss"] < read_metrics(tmp_path / "scratch")[0]["loss"]
    settings = json.loads((finished / "run.json").read_text())["settings"]
    assert settings["learning_rate"] == 1e-4 and settings["optimizer"] == "adamw"


@pytest.mark.parametrize("recipe", ["text", "text-fast"])
def test_window_longer_than_the_model_is_refused(recipe: str, tmp_path: Path, book: Path, gpt_run: Path) -> None:
    with pytest.raises(ArgumentError, match=r"window of the .* recipe must be from 2 to 16, not 17"):
        train(recipe, tmp_path / "run", book, start=gpt_run, **SHORT, window=17)
    assert not (tmp_path / "run").exists()


def test_evaluated_limits_the_held_out_tokens(tmp_path: Path, book: Path) -> None:
    train("text", tmp_path / "all", book, **GPT_CHANGES, tokens="bytes")
    train("text", tmp_path / "sample", book, **GPT_CHANGES, tokens="bytes", evaluated=40)
    report = load_report(tmp_path / "sample")
    assert report["what"].endswith("the beginning of the last tenth of the text (40 tokens)")
    assert report["loss"] != load_report(tmp_path / "all")["loss"]
    assert report["bits_per_byte"] == pytest.approx(report["loss"] / math.log(2))


def test_text_refuses_short_and_invalid_texts(tmp_path: Path, book: Path) -> None:
    (tmp_path / "short.txt").write_text("short\n")
    with pytest.raises(ArgumentError, match=r"the text has 6 tokens, .*--set length="):
        train("text", tmp_path / "run", tmp_path / "short.txt")
    with pytest.raises(ArgumentError, match="tokens=learned only"):
        train("text", tmp_path / "run", book, vocabulary=400)
    (tmp_path / "bad.txt").write_bytes(b"fine\n" * 300 + b"caf\xe9\n" + b"fine\n" * 300)
    for tokens in ("characters", "learned"):
        with pytest.raises(DataError, match=r"bad\.txt:301: character 4 is byte E9"):
            train("text", tmp_path / "run", tmp_path / "bad.txt", **GPT_CHANGES, tokens=tokens)
    assert not (tmp_path / "run").exists()
    train("text", tmp_path / "run", tmp_path / "bad.txt", **GPT_CHANGES, skip_bad=True)


def test_text_refuses_a_model_of_another_family(tmp_path: Path, book: Path) -> None:
    bert = BERT(BERTConfig(vocabulary=20, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(bert, tmp_path / "bert")
    with pytest.raises(ArgumentError, match="can start only from a gpt model with a tokenizer"):
        train("text", tmp_path / "run", book, start=tmp_path / "bert")
