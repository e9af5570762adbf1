"""Hostile tokenizer.json files are refused with one sentence, quickly, in little memory; unusual ones load.

``make test`` reads the small ones, ``make faults`` all of them.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pytest
import tokenizers

import jumok
from hostile_files import folders as hostile
from hostile_files.tokenizer_files import (
    GOOD,
    GOOD_TABLE,
    QUICK,
    QUICK_PATTERNS,
    SLOW,
    SLOW_PATTERNS,
    build_table,
    split,
    tabulate,
    write_json,
)
from jumok.cli import main
from jumok.data.tokenizers import limited_process
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, CheckpointError

ALL = int(os.environ.get("JUMOK_FAULTS", "0")) > 50
CASES = {**QUICK, **(SLOW if ALL else {})}

pytestmark = pytest.mark.xdist_group("hostile tokenizers")


@pytest.mark.parametrize("name", CASES)
def test_hostile_tokenizer_is_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build, words = CASES[name]
    (tmp_path / "tokenizer.json").write_text(build(), encoding="utf-8")
    start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArgumentError) as refused:
        Tokenizer.load(tmp_path)
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500 * 1024
    message = str(refused.value)
    assert words in message and str(tmp_path) in message, message
    assert len(message) < 700 and "\n" not in message and "panic" not in message
    assert capfd.readouterr().err == ""  # the library prints its panics to stderr


@pytest.mark.parametrize("name", SLOW_PATTERNS if ALL else QUICK_PATTERNS)
def test_slow_pattern_is_stopped(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_process, "MIN_SECONDS", 0.2)
    monkeypatch.setattr(limited_process, "CHARACTERS_PER_SECOND", 1_000_000)
    pattern, text = SLOW_PATTERNS[name]
    (tmp_path / "tokenizer.json").write_text(split(pattern), encoding="utf-8")
    start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(ArgumentError) as refused:
        tokenizer.encode(text)
    ids = tokenizers.Tokenizer.from_str(split(pattern)).encode("ab").ids
    assert tokenizer.encode("ab") == ids  # another child has loaded the tokenizer
    assert tokenizer.with_special_tokens(["<s>"]).encode("<s>ab") == [4, *ids]
    assert time.process_time() - start < 2  # of this process
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 * 1024
    message = str(refused.value)
    assert message.startswith("this text cannot be encoded: ") and len(message) < 400, message
    assert "runs longer than" in message or "retry-limit" in message, message
    assert capfd.readouterr().err == ""


def test_commands_exit_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limited_process, "MIN_SECONDS", 0.2)
    pattern, text = SLOW_PATTERNS["the slow pattern [ad]*[ad]*[bc]"]
    hostile.write_good_folder(tmp_path / "good")
    (tmp_path / "good" / "tokenizer.json").write_text(split(pattern), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["jumok", "look", str(tmp_path / "good"), text])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "a regular expression of this tokenizer runs longer than" in message and "Traceback" not in message


def test_known_patterns_need_no_child(tmp_path: Path) -> None:
    for name in ("Llama 3's pattern", "GPT-2's pattern", "Qwen2's pattern", "cl100k's pattern", "GPT-4o's pattern"):
        (tmp_path / "tokenizer.json").write_text(GOOD[name](), encoding="utf-8")
        assert isinstance(Tokenizer.load(tmp_path)._inner, tokenizers.Tokenizer), name


@pytest.mark.parametrize("name", GOOD)
def test_unusual_tokenizer_loads(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer.json").write_text(GOOD[name](), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    for text in ("", "ab a", "a" * 1000, " \n  가나 123456 'll ABC"):
        ids = tokenizer.encode(text)
        assert len(ids) <= 4 * len(text.encode()) + 2
        tokenizer.decode([token_id for token_id in ids if token_id < tokenizer.vocabulary])
    assert capfd.readouterr().err == ""


def test_the_table_of_characters_works(tmp_path: Path) -> None:
    """The table that the hostile ones are made of replaces A by a."""
    (tmp_path / "tokenizer.json").write_text(tabulate(build_table(GOOD_TABLE, b"a\0")))
    assert Tokenizer.load(tmp_path).encode("aAb") == [0, 2]


@pytest.mark.parametrize("token_id", [1023, 2**31 - 1])
def test_vocabulary_far_above_the_models_is_refused(tmp_path: Path, token_id: int) -> None:
    hostile.write_good_folder(tmp_path / "good")
    model = {"type": "BPE", "unk_token": "a", "vocab": {"a": 0, "b": token_id}, "merges": []}
    (tmp_path / "good" / "tokenizer.json").write_text(write_json(model=model))
    with pytest.raises(CheckpointError, match=f"ids up to {token_id:,}, but the model has 11 tokens; it belongs to"):
        jumok.load(tmp_path / "good")


def test_a_few_tokens_more_than_the_model_has_are_allowed(tmp_path: Path) -> None:
    hostile.write_good_folder(tmp_path / "good")
    model = {"type": "BPE", "unk_token": "a", "vocab": {"a": 0, "b": 100}, "merges": []}
    (tmp_path / "good" / "tokenizer.json").write_text(write_json(model=model))
    assert jumok.load(tmp_path / "good").tokenizer.vocabulary == 101


def test_there_are_at_least_20_cases() -> None:
    assert len(QUICK) + len(SLOW) >= 20 and len(SLOW_PATTERNS) >= 20
