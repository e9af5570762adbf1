"""The course: its pages print what they show and draw their pictures, its notebooks run, its solutions are right."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import course_pages
import nbformat
import pytest
import transformer_map
from nbclient import NotebookClient
from page_blocks import ROOT, name_page, read_blocks

from jumok.lab.exercises import EXERCISES, ModelExercise, ProgramExercise, QuizExercise, check_answer

PAGES = course_pages.find_pages()
ENGLISH_PAGES = [page for page in PAGES if page.parent.parent.name == "en"]
KOREAN_PAGES = [ROOT / "README.ko.md", *sorted((ROOT / "docs" / "ko").rglob("*.md"))]
SOLUTIONS = [ROOT / "docs" / language / "course" / "solutions.md" for language in course_pages.LANGUAGES]
GLOSSARIES = [ROOT / "docs" / language / "course" / "glossary.md" for language in course_pages.LANGUAGES]


def read_sections(page: Path) -> dict[str, str]:
    """Return the text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_table(text: str) -> list[list[str]]:
    """Return the cells of the rows of a table, without its header."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_pages_print_what_they_show_and_draw_their_pictures(page: Path, tmp_path: Path) -> None:
    assert course_pages.find_wrong_outputs(page, tmp_path) == []
    for picture in course_pages.list_pictures(page):
        assert (tmp_path / picture).exists(), f"no command of the page draws {picture}"
        assert (course_pages.PICTURES / picture).exists(), "run: python tests/documents/course_pages.py"


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_section_has_a_picture_something_to_try_and_its_exercise(page: Path) -> None:
    names = [name for name in EXERCISES if name == page.stem or name.startswith(f"{page.stem}-")]
    sections = [text for text in read_sections(page).values() if "`jumok check" in text]
    assert len(sections) == len(names)
    for name, text in zip(names, sections, strict=True):
        assert f"`jumok check {name}`" in text, name
        question = EXERCISES[name].question.select(page.parent.parent.name)
        if isinstance(EXERCISES[name], QuizExercise):
            assert f"\n\n{question}\n\n" in text, f"the page has other texts than: jumok check {name}"
            continue
        if name != page.stem:  # the pages on building a GPT share one picture of all steps
            assert course_pages.PICTURE_LINK.search(text), f"{name}: no picture"
        assert re.search(r"^```(python|sh|console)$", text, flags=re.MULTILINE), name
        assert question in " ".join(text.split()), name


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_page_begins_with_its_part_of_the_transformer(page: Path) -> None:
    name = f"{page.stem}-{page.parent.parent.name}.svg"
    assert f"../../pictures/map/{name})" in page.read_text(encoding="utf-8").partition("\n## ")[0]
    picture = (transformer_map.PICTURES / name).read_text(encoding="utf-8")
    assert picture == transformer_map.render(page.stem, page.parent.parent.name), (
        "run: tests/documents/transformer_map.py"
    )


def find_printed_texts(code: str) -> list[str]:
    """Return the strings in calls of print, and the titles and axes of pictures."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    shown = [argument for call in calls if ast.unparse(call.func) == "print" for argument in call.args]
    shown += [keyword.value for call in calls for keyword in call.keywords if keyword.arg in ("title", "across")]
    texts = []
    for value in shown:
        if isinstance(value, ast.JoinedStr):
            texts.append("".join(str(part.value) for part in value.values if isinstance(part, ast.Constant)))
        elif isinstance(value, ast.Constant):
            texts.append(str(value.value))
    return texts


@pytest.mark.parametrize("page", KOREAN_PAGES, ids=name_page)
def test_korean_pages_print_and_comment_in_korean(page: Path) -> None:
    for block in read_blocks(page):
        if block.kind == "python":
            texts = [*re.findall(r"(?:^\s*|  )# (.*)", block.code, flags=re.MULTILINE), *find_printed_texts(block.code)]
            english = [text for text in texts if re.search("[a-z]{3}", text) and not re.search("[가-힣]", text)]
            assert not english, f"{name_page(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_notebooks_have_the_text_and_code_of_their_page(page: Path) -> None:
    notebook = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert notebook == course_pages.render_notebook(page), "run: python tests/documents/course_pages.py"


# A notebook has the code of its page, which the tests above and below run, and the Korean ones have the same code. The
# ordinary tests run one notebook in a kernel; make faults (JUMOK_FAULTS=200) runs all of them.
RUN_NOTEBOOKS = ENGLISH_PAGES if int(os.environ.get("JUMOK_FAULTS", "0")) > 50 else ENGLISH_PAGES[-1:]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_NOTEBOOKS, ids=name_page)
def test_notebooks_run_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for picture in course_pages.list_pictures(page):
        assert (tmp_path / picture).exists(), picture


@pytest.mark.parametrize("page", SOLUTIONS, ids=name_page)
def test_solutions_for_teachers_are_right_and_complete(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = {block.code: block.kind for block in read_blocks(page)}
    answers: dict[str, Any] = {}
    for heading, text in read_sections(page).items():
        code = re.search(r"^```\w+\n(.*?)\n```$", text, flags=re.MULTILINE | re.DOTALL)
        assert code is not None and code.group(1) in blocks, heading
        answers[heading] = code.group(1)
    assert list(answers) == list(EXERCISES)
    for name, answer in answers.items():
        if isinstance(EXERCISES[name], ProgramExercise):
            file = tmp_path / f"{name}.py"
            file.write_text(answer)
            answer = str(file)
        elif isinstance(EXERCISES[name], ModelExercise):  # in this process, as in a notebook
            module = ModuleType(name)
            monkeypatch.setitem(sys.modules, name, module)
            exec(answer, vars(module))
            answer = module.GPT
        verdict = check_answer(name, answer)
        assert verdict.right, f"{name}: {verdict.reason.english}"


def test_glossary_has_the_same_names_and_words_in_both_languages() -> None:
    english, korean = ([read_table(text) for text in read_sections(page).values()] for page in GLOSSARIES)
    names, words, terms = english
    translated_names, translated_words, translated_terms = korean
    for row, translated in zip(names, translated_names, strict=True):
        assert row[:2] == translated[:2]
        # the prose between the names differs
        assert re.findall("`[^`]+`", "".join(row)) == re.findall("`[^`]+`", "".join(translated)), row[1]
    assert [row[:2] for row in words] == [row[:2] for row in translated_words]
    assert len({row[0] for row in words}) == len(words)
    assert terms == translated_terms


def test_korean_texts_use_one_word_for_each_concept() -> None:
    *_, terms = (read_table(text) for text in read_sections(GLOSSARIES[1]).values())
    banned = {row[2]: row[1] for row in terms}
    package, page = ROOT / "src" / "jumok", ROOT / "page" / "src"
    files = [ROOT / "README.ko.md", page / "words.ko.ts", *(ROOT / "docs" / "ko").rglob("*.md")]
    # sentences that models learn are data, not our words
    files += [file for kind in ("toml", "py") for file in package.rglob(f"*.{kind}") if "datasets" not in file.parts]
    assert len(banned) > 5 and len(files) > 100
    for file in files:
        if file != GLOSSARIES[1]:
            text = file.read_text(encoding="utf-8")
            assert not [word for word in banned if word in text], file
            assert not re.search(r"(을\(를\)|이\(가\)|은\(는\))", text), file  # a sentence that needs no particle there
