"""Messages in Korean: every template is one that the package writes, and users' mistakes are explained in Korean."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import jumok
from jumok.cli import _describe_usage_error, cli
from jumok.errors import JumokError
from jumok.lens.effects.metrics import Metric
from jumok.models.registry import describe_families
from jumok.recipes import TrainingRequest, describe_fields, describe_recipes
from jumok.reporting import choose_language
from jumok.translation import NAMES, PLACEHOLDER, _read_groups, read_templates, translate

HANGUL = re.compile("[가-힣]")


def list_texts(folder: Path) -> Iterator[str]:
    """Yield every text of the code below a folder; what it inserts is replaced by {}."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"\{\w*(![rs])?\}", "{}", node.value)


def test_the_package_writes_every_message_that_is_translated() -> None:
    written = "\n".join({*list_texts(Path(jumok.__file__).parent), *list_texts(Path(click.__file__).parent)})
    unwritten = []
    for template in read_templates():
        parts = re.split(r"\.? (?=Did|\()", "\0".join(PLACEHOLDER.split(template)[::2]))
        if not all(word.strip() in written for part in parts for word in part.split("\0")):
            unwritten.append(template)
    assert not unwritten


def test_the_package_writes_every_name_that_is_translated() -> None:
    folder = Path(jumok.__file__).parent
    written = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    for template in _read_groups()[NAMES]:
        assert all(word in written for part in PLACEHOLDER.split(template)[::2] for word in re.split(r"\W|_", part))


def test_translations_are_korean_and_insert_what_their_message_inserts() -> None:
    for template, korean in read_templates().items():
        assert HANGUL.search(korean), template
        assert set(PLACEHOLDER.findall(korean)) <= set(PLACEHOLDER.findall(template)), template


def test_descriptions_of_metrics_are_translated() -> None:
    for kind in Metric.kinds.values():
        arguments = {field.name: (1, 2) if field.name == "tokens" else 1 for field in fields(kind)}
        description = kind(**arguments).describe()
        assert HANGUL.search(translate(description, "ko")), description


def test_parts_of_a_message_are_translated_on_their_own() -> None:
    message = "data.csv:7: the file is empty; fix it, or skip such files with --skip-bad (skip_bad=True)"
    assert (
        translate(message, "ko") == "data.csv:7: 파일이 비어 있습니다. 고치거나 --skip-bad로 건너뛰세요(skip_bad=True)"
    )
    assert translate(message, "en") == message
    assert translate("a sentence that is not in the file; choose one of a, b", "ko").endswith(". a, b 중에서 고르세요")
    assert translate("no such thing: 1; 2", "ko") == "no such thing: 1; 2"


def test_the_chosen_language_is_that_of_messages() -> None:
    try:
        choose_language("ko")
        assert translate("interrupted") == "중단했습니다"
    finally:
        choose_language(None)


def test_lists_of_families_recipes_and_fields_are_korean() -> None:
    rows: list[dict[str, Any]] = [*describe_families(), *describe_recipes()]
    texts = [row["what"] for row in rows]
    for recipe in describe_recipes():
        fields = describe_fields(TrainingRequest(recipe["recipe"], Path()))
        texts += [text for row in fields for text in (row["help"], row["condition"]) if text]
    assert [text for text in dict.fromkeys(texts) if not HANGUL.search(translate(text, "ko"))] == []


MISTAKES = [
    ["run", "no-model", "hello"],
    ["run", "tiny"],
    ["run", "tiny", "x", "--top-p", "3"],
    ["run", "tiny", "x", "--nosuch"],
    ["run", "tiny", "x", "--spoken", "ko"],
    ["run", "tiny", "x", "--temperature", "1", "--beams", "2"],
    ["run", "tiny", "picture.png"],
    ["run", "smollm2", "x"],
    ["look"],
    ["look", "no-model", "a b"],
    ["look", "tiny"],
    ["look", "tiny", "a", "b"],
    ["look", "tiny", "a b", "--layer", "9"],
    ["look", "tiny", "a b", "--head", "9"],
    ["look", "tiny", "a b", "--query", "z"],
    ["look", "tiny", "a b", "--between", "a,b"],
    ["look", "tiny", "a b", "--from", "3"],
    ["look", "tiny", "a b", "--png", "x.gif"],
    ["look", "tiny", "a b", "--svg", "no/such/x.svg"],
    ["look", "tiny", "a b", "--port", "80"],
    ["look", "tiny", "a b", "--html", "page.txt"],
    ["look", "tiny", "a b", "--live"],
    ["look", "tiny", "a b", "--html", "page.html", "--live", "--effects"],
    ["look", "tiny", "a b", "--html", "page.html", "--second", "tiny"],
    ["look", "tiny", "a b", "--html", "page.html", "--edit", "Ablate"],
    ["look", "tiny", "a b", "--edit", "Ablate(layer=0)"],
    ["effect", "tiny", "a b", "--token", "zzz"],
    ["effect", "tiny", "a b", "--right", "a"],
    ["effect", "tiny", "a b", "--metric", "kl", "--label", "3"],
    ["attend"],
    ["attend", " "],
    ["attend", "a b", "--heads", "5"],
    ["attend", "a b", "--head", "7"],
    ["attend", "a b", "--seed", "x"],
    ["attend", "a b", "--score", "magic"],
    ["attend", "a b", "--backend", "magic"],
    ["mask", "magic"],
    ["mask", "window(0)"],
    ["mask", "edge(query=1, key=[])"],
    ["mask", "padding([])"],
    ["mask", "causal and window(3)"],
    ["attend", "a b", "--mask", "padding([1, 2])"],
    ["attend", "a b", "--backend", "linear"],
    ["look", "tiny", "a b", "--query", "99"],
    ["look", "tiny", "picture.png"],
    ["index", "notes"],
    ["ask", "empty", "who?"],
    ["train", "text", "--data", "notes/one.txt"],
    ["train", "text", "--data", "notes/one.txt", "--from", "translator"],
    ["train", "listen", "--data", "empty"],
    ["data", "get", "no-entry"],
    ["data", "where", "cifar10"],
    ["data", "where"],
    ["train"],
    ["train", "no-recipe"],
    ["train", "text", "--data", "no-file.txt"],
    ["train", "text", "--set", "no_field=1"],
    ["train", "text", "--set", "width=x"],
    ["train", "text", "--set", "width"],
    ["train", "text", "--resume", "runs/1"],
    ["train", "sort", "--steps", "1", "--epochs", "1"],
    ["train", "sort", "--lr", "3"],
    ["compare", "no-folder"],
    ["export", "no-model", "copy"],
    ["index"],
    ["index", "no-folder"],
    ["index", ".", "--verify"],
    ["ask", "no-folder", "who?"],
    ["experiment", "no-name"],
    ["steps", "no-name"],
    ["steps", "a b", "--query", "1 2"],
    ["cost", "no-model"],
    ["cost", "--width", "5", "--heads", "2"],
    ["check", "d9-9"],
    ["check", "d3-4", "x"],
    ["nothing"],
]


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_explained_in_korean(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    for name in ("empty/", "notes/one.txt", "picture.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if "." in name:
            (tmp_path / name).write_text("one line\n")
    with pytest.raises((click.ClickException, JumokError)) as caught, CliRunner().isolation(input=""):
        cli.main([*arguments, "--language", "ko"], standalone_mode=False)
    error = caught.value
    message = _describe_usage_error(error) if isinstance(error, click.ClickException) else str(error)
    korean = translate(" ".join(message.split()), "ko").partition(" (도움말: ")[0]
    assert HANGUL.search(korean)
    without_commands = re.sub(r"jumok( [a-z]+)*|pip install \S+", "", korean)
    assert not re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", without_commands), korean
