"""jumok run and jumok models, as a person uses them, on small models of our own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import jumok
from jumok.data.tokenizer import Tokenizer
from jumok.models import GPT, BERTConfig, GPTConfig, Numeric, NumericConfig
from jumok.models.bert import BERT


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, encoding="utf-8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = Tokenizer.of_bytes()
    size = tokenizer.vocabulary
    gpt = GPT(GPTConfig(vocabulary=size, length=64, width=16, layers=1, heads=2, hidden=16))
    jumok.save(gpt, root / "gpt", tokenizer=tokenizer)
    jumok.save(gpt, root / "mute")
    bert = BERT(BERTConfig.from_json({"vocabulary": size, "width": 16, "layers": 1, "heads": 2, "hidden": 16}))
    jumok.save(bert, root / "bert", tokenizer=tokenizer)
    jumok.save(Numeric(NumericConfig()), root / "numeric")
    return root


def test_text_is_continued_from_arguments_files_and_standard_input(folders: Path, tmp_path: Path) -> None:
    plain = run("run", str(folders / "gpt"), "나는 학교에", "--limit", "8", "--json")
    assert plain.returncode == 0, plain.stderr
    told = json.loads(plain.stdout)
    assert told["input"] == "나는 학교에"
    (tmp_path / "text.txt").write_text("나는 학교에\n", encoding="utf-8")
    for again in (
        run("run", str(folders / "gpt"), str(tmp_path / "text.txt"), "--limit", "8", "--json"),
        run("run", str(folders / "gpt"), "-", "--limit", "8", "--json", given="나는 학교에\n"),
    ):
        assert json.loads(again.stdout) == told
    for _ in range(2):  # a module of that name exists too, once it is imported
        assert jumok.run(folders / "gpt", "나는 학교에", limit=8) == told["output"]


def test_an_encoder_gives_vectors(folders: Path) -> None:
    done = run("run", str(folders / "bert"), "one text", "another", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["input"] for row in rows] == ["one text", "another"] and len(rows[0]["embed"]) == 16
    assert abs(sum(number**2 for number in rows[0]["embed"]) - 1) < 1e-4


def test_the_families_are_listed() -> None:
    told = json.loads(run("models", "--json").stdout)
    assert {row["family"]: row["parameters"] for row in told}["gpt"] == 124_439_808
    assert len(told) == 11 and all(row["what"] for row in told)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpt", ""], "the text is empty"),
        (["gpt", "x" * 70], "70 tokens and this model reads at most 64; shorten"),
        (["gpt", "x", "--beams", "2", "--temperature", "1"], "beam search takes the likeliest"),
        (["gpt", "x", "--chat"], "chat"),
        (["gpt", "x", "--stop", ""], "stop string is empty"),
        (["bert", "x", "--stop", "a"], "stop cannot be set"),
        (["mute", "x"], "without a tokenizer"),
        (["numeric", "x"], "does not know what a numeric model is for"),
        (["bert", "x", "--temperature", "1"], "cannot be set for a model that does not generate"),
        (["nowhere", "x"], "there is no folder"),
    ],
)
def test_a_mistake_is_one_sentence(folders: Path, arguments: list[str], says: str) -> None:
    done = run("run", str(folders / arguments[0]), *arguments[1:])
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("jumok: ")


def test_nothing_on_standard_input(folders: Path) -> None:
    done = run("run", str(folders / "gpt"))
    assert done.returncode == 2 and "standard input is empty" in done.stderr
