"""Commands about attention end with the command that shows the same in the browser, in a terminal only."""

from __future__ import annotations

import os
import pty
import re
from contextlib import redirect_stdout
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from jumok.bilingual_text import Text
from jumok.cli import cli, page_hint

PAGE = Path(__file__).parents[2] / "page" / "src"
TEXT = "the cat sat; the cat"


def run_in_terminal(*arguments: str) -> list[str]:
    """Run a command in this process with a terminal as its standard output, and return the lines of the terminal."""
    parent, child = pty.openpty()
    pieces: list[bytes] = []

    def read_terminal() -> None:
        try:
            while piece := os.read(parent, 4096):
                pieces.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = Thread(target=read_terminal)
    reader.start()
    with open(child, "w", encoding="utf-8") as terminal, redirect_stdout(terminal):
        cli.main(list(arguments), standalone_mode=False)
    reader.join()
    os.close(parent)
    return b"".join(pieces).decode().splitlines()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("look", TEXT), f"In the browser, where it can be edited: jumok look '{TEXT}' --open"),
        (
            ("look", "tiny", TEXT, "--query", "5", "--language", "ko"),
            f"브라우저에서 보고 편집하기: jumok look tiny '{TEXT}' --open",
        ),
        (("effect", "tiny", TEXT), f"In the browser (tab “Does it matter?”): jumok look tiny '{TEXT}' --open"),
        (
            ("steps", "--model", "tiny", "나는 간다", "--language", "ko"),
            "브라우저에서 보기(“계산 과정” 탭): jumok look tiny '나는 간다' --open",
        ),
        (
            ("steps", "a cat sat", "--language", "en"),
            "The same steps of a trained model in the browser (tab “Computation”): jumok look tiny 'a cat sat' --open",
        ),
        (
            ("steps", "sentence", "--language", "en"),
            f"The same steps of a trained model in the browser (tab “Computation”): jumok look tiny '{TEXT}' --open",
        ),
        (
            ("experiment", "scale", "--quick", "--language", "en"),
            f"Try it in the browser (“Remove the 1/√d”): jumok look tiny '{TEXT}' --open",
        ),
    ],
    ids=lambda case: " ".join(case[:2]) if isinstance(case, tuple) else "",
)
def test_the_last_line_in_a_terminal_names_the_command(
    arguments: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert run_in_terminal(*arguments)[-1] == expected
    assert "--open" not in CliRunner().invoke(cli, list(arguments)).stdout  # scripts read the same output as before


def test_json_in_a_terminal_has_no_hint() -> None:
    assert "--open" not in run_in_terminal("effect", TEXT, "--json")[-1]


def test_a_long_text_is_not_repeated_and_standard_input_has_no_hint() -> None:
    assert run_in_terminal("look", "tiny", "the cat " * 12)[-1].endswith(': jumok look tiny "..." --open')

    parent, child = pty.openpty()
    with open(child, "w", encoding="utf-8") as terminal, redirect_stdout(terminal):
        page_hint.print_page_hint(("tiny", "-"), page_hint.LOOK)
        terminal.write("end\n")
        terminal.flush()
        assert os.read(parent, 4096) == b"end\r\n"
    os.close(parent)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_hints_use_the_words_of_the_page(language: str) -> None:
    words = (PAGE / f"words.{language}.ts").read_text(encoding="utf-8")
    hints = [*page_hint.EXPERIMENT_HINTS.values(), page_hint.EFFECT, page_hint.STEPS, page_hint.TRAINED_STEPS]
    for hint in hints:
        assert isinstance(hint, Text)
        for name in re.findall("“(.*?)”", hint.select(language)):
            assert f'"{name}"' in words, name
