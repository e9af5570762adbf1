"""What all commands print with: JSON, lines in two languages, and tables."""

from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from jumok.bilingual_text import Text
from jumok.cli.command_output import CommandOutput, format_table
from jumok.reporting import choose_language


def test_json_is_one_line_and_keeps_hangul(capsys: pytest.CaptureFixture[str]) -> None:
    CommandOutput(as_json=True).print_json({"이름": ["a\n", 1]})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"이름": ["a\n", 1]} and printed.count("\n") == 1 and "이름" in printed


def test_lines_are_in_the_language_of_the_reader(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    CommandOutput().print(Text("one", "하나"))
    choose_language("en")
    CommandOutput().print(Text("one", "하나"))
    choose_language(None)
    CommandOutput().print("as it is")
    CommandOutput().warn("attention")
    CommandOutput().warn("no Korean")
    printed = capsys.readouterr()
    assert printed.out == "하나\none\nas it is\n" and printed.err == "jumok: 어텐션\njumok: no Korean\n"


def test_columns_with_hangul_are_aligned_and_texts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["나는", "1.0", "[red]:smile:[/red]"], ["word " * 60, "10.25", "끝"]]
    CommandOutput().print_table("lrl", rows, ["token", "weight", "쿼리"], indent=2)
    header, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("   1.0  [red]:smile:[/red]") and second.endswith(" 10.25  끝")
    ends = {cell_len(line[: line.index(text)]) for line, text in ((header, "쿼리"), (first, "[red]"), (second, "끝"))}
    assert len(ends) == 1 and header.startswith("  token  ")
    assert format_table("l", []) == ""
