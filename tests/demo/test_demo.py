"""Run ``jumok demo --quick`` in both languages, without a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jumok.cli import cli


def run_demo(out: Path, *options: str, **environment: str) -> str:
    finished = CliRunner(env=environment).invoke(cli, ["demo", "--quick", "--out", str(out), *options])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


def read_page_index(page: Path) -> dict[str, Any]:
    """Return what a saved page says about its model, its input and its maps."""
    match = re.search(r'<script type="application/json" id="jumok-index">(.*?)</script>', page.read_text("utf-8"))
    assert match is not None
    return json.loads(match[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locale", "options", "language", "expected"),
    [
        ("ko_KR.UTF-8", [], "ko", ["어디를 볼까요?", "GPT가 쓴 문장: 어머니는", "다음으로 해 볼 명령:"]),
        ("ko_KR.UTF-8", ["--language", "en"], "en", ["Where the translator looks", "It writes: My mother", "Next:"]),
    ],
)
def test_demo_translates_trains_and_draws(
    locale: str, options: list[str], language: str, expected: list[str], tmp_path: Path
) -> None:
    shown = run_demo(tmp_path / "demo", *options, LC_ALL=locale)
    for text in ["나는 매일 학교에 간다\n    → I go to school every day", *expected]:
        assert text in shown
    commands = [line for line in shown.splitlines() if line.startswith("  jumok ")]
    assert [command.split()[1] for command in commands] == ["run", "look", "train"]
    pictures = sorted((tmp_path / "demo").glob("*.png"))
    assert [picture.name for picture in pictures] == ["gpt-effects.png", "gpt-heads.png", "translator.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)

    page = tmp_path / "demo" / "attention.html"
    assert sum(str(page) in line for line in shown.splitlines()) == 1
    index = read_page_index(page)
    hello, run = index["hello"], index["run"]
    assert (hello["model"], hello["text"], hello["language"]) == ("translator", "나는 매일 학교에 간다", language)
    # the map that was printed is shown first
    assert "decoder.1.cross" in run["sites"][hello["selection"]["site"]].values()


@pytest.mark.slow
def test_demo_prints_json_and_keeps_an_earlier_model(tmp_path: Path) -> None:
    (tmp_path / "gpt-1").mkdir()
    fields = json.loads(run_demo(tmp_path, "--json", LC_ALL="", LC_MESSAGES="", LANG="en_US.UTF-8"))
    assert fields["gpt"]["line"].startswith("My mother") and fields["gpt"]["folder"] == str(tmp_path / "gpt-2")
    assert Path(fields["page"]).read_text("utf-8").startswith("<!doctype html>")
    assert fields["translations"]["나는 매일 학교에 간다"] == "I go to school every day"
    assert len(fields["attention"]["weights"]) == len(fields["attention"]["written"]) == 7
    # the word "school" is written while the model looks at "학교"
    row = fields["attention"]["weights"][fields["attention"]["written"].index("school")]
    assert fields["attention"]["read"][row.index(max(row))] == "학교"
