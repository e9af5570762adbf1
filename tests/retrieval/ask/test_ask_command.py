"""The command jumok ask: what it prints, and its sentences for wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import GPT, GPTConfig

NOTES = {
    "boat.txt": "The ferry Halla leaves Jeju for Mokpo at 13:40 every day except Monday.\n",
    "tower.txt": "The old tower has 214 steps. A blue lamp burns in its highest window.\n",
    "배.txt": "한라호는 매일 오후 제주에서 목포로 떠난다. 월요일에는 쉰다.\n",
}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def reader(tmp_path: Path) -> str:
    """The folder of a random language model that reads bytes."""
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocabulary=256, length=2048, width=16, layers=1, heads=2, positions="rotary"))
    jumok.save(model, tmp_path / "reader", tokenizer=Tokenizer.for_bytes(), format="jumok")
    return str(tmp_path / "reader")


def ask(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["ask", *map(str, arguments)], input=text)


def test_search_only_prints_file_and_line(notes: Path) -> None:
    printed = ask(notes, "When does the ferry leave?", "--search-only", "--method", "bm25", "--passages", "1")
    assert printed.exit_code == 0, printed.output
    assert f"{notes}/boat.txt:1  (BM25 " in printed.output
    assert "The ferry Halla leaves Jeju" in printed.output


def test_without_the_embedding_model_a_note_says_so(notes: Path) -> None:
    printed = ask(notes, "When does the ferry leave?", "--search-only")
    assert printed.exit_code == 0
    assert "searched by words only: e5-multilingual is not on this machine yet" in printed.stderr  # a Korean note
    assert "jumok data get e5-multilingual" in printed.stderr


def test_json_has_one_line_for_each_question(notes: Path, reader: str) -> None:
    lines = ask(
        notes, "When does the ferry leave?", "How many steps has the tower?",
        "--method", "bm25", "--reader", reader, "--limit", "4", "--why", "--json",
    ).stdout.splitlines()  # fmt: skip
    answers = [json.loads(line) for line in lines]
    assert [answer["passages"][0]["location"] for answer in answers] == ["boat.txt:1", "tower.txt:1"]
    for answer in answers:
        assert answer["verdict"] in ("supported", "not supported")
        assert isinstance(answer["passages"][0]["change"], float)
        assert 0 < answer["passages"][0]["attention"] < 1


def test_the_table_of_why_lists_every_passage(notes: Path, reader: str) -> None:
    printed = ask(
        notes, "How many steps has the tower?", "--method", "bm25", "--reader", reader, "--limit", "4", "--why"
    )
    assert printed.exit_code == 0, printed.output
    assert "change if cut" in printed.output and " nats" in printed.output
    assert f"{notes}/tower.txt:1" in printed.output


def test_questions_are_read_from_standard_input(notes: Path) -> None:
    questions = ["When does the ferry leave?", "How many steps has the tower?"]
    lines = ask(
        notes, "--search-only", "--method", "bm25", "--passages", "1", "--json", text="\n\n".join(questions)
    ).stdout.splitlines()  # fmt: skip
    assert [json.loads(line)["question"] for line in lines] == questions


def test_several_answers_are_told_apart_by_their_questions(notes: Path) -> None:
    questions = ["When does the ferry leave?", "How many steps has the tower?"]
    options = ("--search-only", "--method", "bm25", "--passages", "1")
    for printed in (ask(notes, *questions, *options), ask(notes, *options, text="\n".join(questions))):
        assert [line for line in printed.output.splitlines() if line.startswith(">")] == [f"> {q}" for q in questions]
    assert ">" not in ask(notes, questions[0], *options).stdout


def test_korean_is_searched_by_pairs_of_characters_and_not_read(notes: Path, reader: str) -> None:
    printed = ask(notes, "한라호는 언제 떠나나요?", "--method", "bm25", "--reader", reader, "--passages", "1")
    assert f"{notes}/배.txt:1" in printed.output
    assert "was not trained on the language of the question" in printed.stderr


def test_nothing_fits(notes: Path, reader: str) -> None:
    printed = ask(notes, "Which volcano erupted in Iceland?", "--method", "bm25", "--reader", reader)
    assert printed.exit_code == 0
    assert f"Nothing in {notes} fits this question." in printed.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "Who?", "--search-only"], "there is no folder missing"),
        (["{notes}", ""], "the question is empty"),
        (["{notes}", "Who?", "--why", "--search-only"], "choose one of them"),
        (["{notes}", "Who?", "--passages", "0"], "--passages"),
        (["{notes}", "Who?", "--method", "magic"], "magic"),
    ],
)
def test_wrong_input_gets_a_sentence_and_no_traceback(notes: Path, arguments: list[str], message: str) -> None:
    words = [argument.format(notes=notes) for argument in arguments]
    process = subprocess.run(
        [sys.executable, "-m", "jumok", "ask", *words], capture_output=True, text=True, check=False, cwd=notes.parent
    )
    assert process.returncode == 2
    assert message in process.stderr and "Traceback" not in process.stderr
