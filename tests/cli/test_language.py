"""The option --language of all commands: help, output and errors in Korean, and JSON that does not depend on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jumok.cli import cli
from jumok.cli.help import Command
from jumok.reporting import choose_language

HANGUL = re.compile("[가-힣]")
ENGLISH_SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")
# axes of tensors, commands, and names of packages, papers and licences
NOT_SENTENCES = re.compile(
    r"\[[\d, ]+\]  batch[ a-z_]+|jumok( [a-z-]+)*|pip install \S+|\([^()]*\d{4}[^()]*\)|\w+\.\w+"
)


def list_commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from list_commands(child, click.Context(child, info_name=name, parent=context))


COMMANDS = [*list_commands(cli, click.Context(cli, info_name="jumok"))]


@pytest.fixture(autouse=True)
def restore_language() -> Iterator[None]:
    yield
    choose_language(None)


def run(*arguments: str) -> str:
    finished = CliRunner().invoke(cli, [*arguments], catch_exceptions=False)
    assert finished.exit_code == 0, finished.output
    return finished.output


@pytest.mark.parametrize(("command", "context"), COMMANDS, ids=[context.command_path for _, context in COMMANDS])
def test_help_is_korean_and_english(command: click.Command, context: click.Context) -> None:
    path = context.command_path.split()[1:]
    assert isinstance(command, Command)
    for language, is_korean in (("ko", True), ("en", False)):
        shown = run(*path, "--help", "--language", language)
        command.read_help(context)
        texts = [command.help or "", command.get_short_help_str() if path else "주목" * is_korean]
        for option in command.get_params(context):
            if isinstance(option, click.Option):
                record = option.get_help_record(context)
                assert record is not None
                texts.append(record[1])
        assert all(texts) or not is_korean
        texts = [text.replace("(주목)", "") for text in texts]
        assert all(bool(HANGUL.search(text)) == is_korean for text in texts), texts
        assert ("사용법: " in shown and "옵션:" in shown and "예:" in shown) == is_korean
        assert ("Usage: " in shown and "[default: " in shown and "Examples:" in shown) != is_korean
        assert not (is_korean and re.search(r"\[(default|required)", shown))


def test_lines_of_korean_help_fit_into_a_terminal() -> None:
    from rich.cells import cell_len

    lines = run("look", "--help", "--language", "ko").partition("예:")[0].splitlines()
    assert max(map(cell_len, lines)) <= 80 and sum(cell_len(line) > 70 for line in lines) > 10


@pytest.mark.parametrize(
    "arguments",
    [
        ["attend", "a b c", "--mask", "causal"],
        ["attend", "a b", "--source", "c d", "--backend", "blocked"],
        ["mask", "causal & window(2)"],
        ["data"],
        ["data", "list"],
        ["data", "remove", "cifar10"],
        ["models"],
        ["models", "tiny"],
        ["run", "translator", "나는 잔다"],
        ["run", "tiny", "the cat; the", "--limit", "2"],
        ["look", "the cat sat; the cat"],
        ["look", "the cat sat; the cat", "--scores"],
        ["look", "the cat sat; the cat", "--query", "c", "--between", "t,s"],
        ["look", "translator", "나는 잔다"],
        ["effect", "the cat; the cat"],
        ["effect", "the cat; the cat", "--over", "edges", "--verify", "4", "--controls", "4"],
        ["cost", "tiny"],
        ["experiment"],
        ["check", "d3-4"],
        ["steps", "causal"],
        ["steps", "a b"],
        ["index", "--list"],
        ["doctor"],
        ["train", "--list"],
        ["train", "--list", "text"],
        ["train", "--list", "translate"],
    ],
    ids=" ".join,
)
def test_output_is_korean(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    english, korean = run(*arguments), run(*arguments, "--language", "ko")
    text = NOT_SENTENCES.sub("", korean)
    assert not ENGLISH_SENTENCE.search(text), ENGLISH_SENTENCE.findall(text)
    is_picture = arguments[0] == "mask" or arguments[0] == "run"
    assert bool(HANGUL.search(korean)) != is_picture
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    if arguments[0] not in ("doctor", "cost"):  # they print the load and the free memory
        assert run(*arguments) == korean and run(*arguments, "--language", "en") == english


@pytest.mark.parametrize(
    "arguments",
    [
        ["look", "the cat; the"],
        ["effect", "the cat; the"],
        ["attend", "a b"],
        ["steps", "causal"],
        ["check", "d4-1", "81.5", "81.5"],
        ["check"],
        ["experiment"],
        ["data"],
        ["models"],
        ["train", "--list", "text"],
        ["run", "translator", "나는 잔다"],
    ],
    ids=" ".join,
)
def test_json_does_not_depend_on_the_language(arguments: list[str]) -> None:
    outputs = []
    for language in ("en", "ko"):
        finished = CliRunner().invoke(cli, [*arguments, "--json", "--language", language], catch_exceptions=False)
        outputs.append(json.loads(finished.stdout))
    assert outputs[0] == outputs[1]


def test_files_of_a_folder_are_indexed_in_korean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("The boat leaves at nine.")
    (folder / "b.md").write_bytes(b"\x00\x01")
    command = ["index", str(folder), "--language", "ko"]
    pages = [run(*command, "--no-vectors"), run(*command, "--no-vectors"), run(*command, "--status")]
    pages += [run("index", "--list", "--language", "ko"), run(*command, "--remove"), run(*command, "--remove")]
    pages.append(run("ask", str(folder), "boat", "--search-only", "--method", "bm25", "--language", "ko"))
    for page in pages:
        text = NOT_SENTENCES.sub("", page.replace(str(tmp_path), "").replace("The boat leaves at nine.", ""))
        assert not ENGLISH_SENTENCE.search(text), text
    assert "색인했습니다" in pages[0] and "바이너리: b.md" in pages[0] and "최신 상태" in pages[1]


def test_the_words_of_a_picture_of_effects_are_in_the_language(tmp_path: Path) -> None:
    for language, words in (("ko", {"층", "헤드", "효과"}), ("en", {"layer", "head", "effect"})):
        path = tmp_path / f"{language}.svg"
        CliRunner().invoke(cli, ["effect", "tiny", "sky", "--svg", str(path), "--language", language])
        assert words < set(re.findall("<!-- (.*?) -->", path.read_text("utf-8")))
