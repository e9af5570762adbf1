"""Check what the documentation site is built from: the generated reference pages, tables, and the live cells.

``make site`` opens the built site in a browser (tools/site/check_site.py).
"""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import jumok
from jumok.lab.exercises import EXERCISES, NumberExercise, QuizExercise, WordExercise

ROOT = Path(__file__).parents[2]
HANDBOOK = sorted((ROOT / "docs").glob("??/*.md"))


@cache
def load_hook(name: str) -> ModuleType:
    """Return a module of tools/site/, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "site" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_of_the_package_documents_every_public_name() -> None:
    page = load_hook("reference_pages").render_package(ROOT / "src" / "jumok")
    for name in jumok.__all__:
        assert f"`jumok.{name}`" in page
    documented = re.findall(r"^::: jumok\.(\w+)$", page, flags=re.MULTILINE)
    assert set(jumok.__all__) - {"__version__"} <= set(documented)


def test_command_line_page_shows_no_backslashes() -> None:
    page = load_hook("reference_pages").render_command_line()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    assert not [row for row in rows if re.search(r"\\[<|\[]", row)]


@pytest.mark.parametrize("page", HANDBOOK, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_code_in_tables_has_no_backslashes(page: Path) -> None:
    # "\|" inside backticks is shown with its backslash on the site
    assert not re.findall(r"`[^`\n]*\\\|[^`\n]*`", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("address", "noted"), [("ko/reference/jumok.html", True), ("reference/jumok.html", False)])
def test_korean_reference_pages_say_that_they_are_english(address: str, noted: bool) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="en/reference/jumok.md"), url=address)
    markdown = load_hook("theme_context").on_page_markdown("# jumok\n\ntext", page=page, config=None, files=None)
    assert markdown.startswith("# jumok\n") and markdown.endswith("text")
    assert ("영어" in markdown) == noted


@pytest.mark.parametrize(("package", "first"), [("lens", "jumok.lens.lens"), ("attention", "jumok.attention.attend")])
def test_reference_pages_begin_with_what_users_call(package: str, first: str) -> None:
    page = load_hook("reference_pages").render_package(ROOT / "src" / "jumok" / package)
    sections = re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE)
    assert sections[:2] == [f"jumok.{package}", first]
    linked = re.findall(r"^\| \[`\w+`\]\[(\S+)\]", page, flags=re.MULTILINE)
    assert linked[0].startswith(f"{first}.")


def read_cells(page: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the cells in the text of a page, and the data of the cells."""
    markdown = load_hook("live_cells").add_cells(
        page.read_text(encoding="utf-8"), page.relative_to(ROOT / "docs").parts[0]
    )
    data = re.search(r'<script type="application/json" id="site-cells">(.*)</script>', markdown)
    return re.findall('data-cell="([^"]+)"', markdown), json.loads(data.group(1)) if data else {"cells": {}}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_exercises_can_be_answered_in_their_lessons(language: str) -> None:
    answered = {}
    for page in (ROOT / "docs" / language).rglob("*.md"):
        names, data = read_cells(page)
        assert sorted(names) == sorted(data["cells"]), page
        answered |= {name: cell["data"] for name, cell in data["cells"].items() if cell["kind"] == "exercise"}
    # the others are programs
    expected = [
        name
        for name, exercise in EXERCISES.items()
        if isinstance(exercise, NumberExercise | WordExercise | QuizExercise)
    ]
    assert sorted(answered) == sorted(expected)
    assert answered["d4-1"]["answer"] == pytest.approx([81.5, 81.5]) and len(answered["d4-1"]["mistakes"]) == 1
    right = {
        name: [question["right"] for question in data["questions"]]
        for name, data in answered.items()
        if data["kind"] == "quiz"
    }
    assert right == {name: EXERCISES[name].compute() for name in right} and len(right) == 5


def test_cells_of_the_home_page_have_the_numbers_of_the_package() -> None:
    _, data = read_cells(ROOT / "docs" / "en" / "index.md")
    (first,) = (cell["data"]["first"] for cell in data["cells"].values() if cell["kind"] == "translator")
    assert " ".join(first["target"]).strip() == jumok.run("translator", load_hook("live_cells").EXAMPLES[0])
    assert [len(layer) for layer in first["maps"]] == [4, 4]
    for head in (head for layer in first["maps"] for head in layer):
        assert (len(head), len(head[0])) == (len(first["target"]), len(first["source"]))
        assert [sum(row) for row in head] == pytest.approx([1] * len(head), abs=1e-3)
