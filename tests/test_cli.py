"""The command line as a person uses it: real processes, their output, their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, encoding="utf-8")


def test_attend_in_json(tmp_path: Path) -> None:
    done = run(
        "attend",
        "나는 오늘 학교에 갔다",
        "--mask",
        "causal",
        "--heads",
        "3",
        "--width",
        "12",
        "--json",
        "--picture",
        str(tmp_path / "map.png"),
        "--grid",
        str(tmp_path / "heads.svg"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["tokens"] == ["나는", "오늘", "학교에", "갔다"]
    assert told["future"] == [0.0, 0.0, 0.0, 0.0]
    assert len(told["weights"]) == 3 and told["weights"][0][0] == [1.0, 0.0, 0.0, 0.0]
    assert told["row_error"] < 1e-6 and told["parameters"] == 4 * (12 * 12 + 12)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "heads.svg").read_text()


def test_attend_for_a_person() -> None:
    done = run("attend", "a b c d", "--mask", "causal & window(2)", "--backend", "blocked", "--score", "additive")
    assert done.returncode == 0, done.stderr
    assert "nobody sees the future" in done.stdout and "0.000000  c" in done.stdout
    assert "largest difference from the explicit formula" in done.stdout
    without = run("attend", "a b c d", "--bias", "alibi", "--projection", "single")
    assert "the future is seen" in without.stdout


def test_cross_attention() -> None:
    done = run("attend", "la maison bleue", "--source", "the blue house today", "--json")
    told = json.loads(done.stdout)
    assert told["source"] == ["the", "blue", "house", "today"]
    assert [len(row) for row in told["weights"][0]] == [4, 4, 4]


def test_alone_it_shows_its_help() -> None:
    done = run()
    assert done.returncode == 0 and done.stdout.startswith("Usage: ") and "Examples:" in done.stdout


def test_mask_is_drawn() -> None:
    done = run("mask", "causal & window(2)", "--queries", "3", "--keys", "4")
    assert done.stdout == "causal & window(2)\n■ · · ·\n■ ■ · ·\n· ■ ■ ·\n"
    told = json.loads(run("mask", "prefix(1)", "--queries", "2", "--keys", "2", "--json").stdout)
    assert told == {"mask": "prefix(1)", "allowed": [[True, False], [True, False]]}


def test_demo_makes_its_pictures(tmp_path: Path) -> None:
    done = run("demo", "--out", "made", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "그 동물은" in done.stdout and done.stdout.count("nobody sees the future") == 2
    made = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert made == ["english-heads.png", "english.png", "korean-heads.png", "korean.png"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["attend"], "Missing argument 'TEXT'"),
        (["attend", "  "], "the text is empty"),
        (["attend", "a " * 70], "70 words; give at most 64"),
        (["attend", "a b", "--heads", "5"], "does not divide into 5 heads"),
        (["attend", "a b", "--heads", "x"], "not a valid integer"),
        (["attend", "a b", "--head", "2"], "heads 0 to 1"),
        (["attend", "a b", "--mask", "window(2.5)"], "whole numbers, not 2.5"),
        (["attend", "a b", "--score", "magic"], "choose one of scaled_dot"),
        (["attend", "a b", "--bias", "magic"], "choose one of none, alibi, t5"),
        (["attend", "a b", "--backend", "magic"], "unknown backend 'magic'"),
        (["attend", "a b", "--backend", "linear"], "linear computes score.Kernel"),
        (["attend", "a b", "--picture", "x.gif"], ".png or .svg"),
        (["attend", "a b", "--picture", "no/such/folder/x.png"], "no/such/folder"),
        (["attend", "a b", "--seed", "9" * 30], "range"),
        (["mask", "window(-1)"], "at least 1, not -1"),
        (["mask", "__import__('os').system('true')"], "is not a mask"),
        (["mask", "causal", "--keys", "0"], "range"),
        (["nothing"], "No such command 'nothing'"),
        (["demo", "--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_two(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and done.stderr.startswith("jumok: ")
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
