"""The documents: two languages that say the same, examples that run, outputs that come, links that lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from jumok.attention import BACKENDS
from jumok.attention.mask.notation import MASK_FUNCTIONS
from jumok.checkpoint.huggingface import DIALECTS
from jumok.cli import cli
from jumok.data.catalogue import find_entry, format_megabytes
from jumok.models.registry import FAMILIES, describe_families

ROOT = Path(__file__).parent.parent
PAIRS = [(ROOT / "README.md", ROOT / "README.ko.md")] + [
    (ROOT / "docs" / "en" / name, ROOT / "docs" / "ko" / name)
    for name in sorted({page.name for language in ("en", "ko") for page in (ROOT / "docs" / language).glob("*.md")})
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HANDBOOKS = [ROOT / "docs" / language / "attention.md" for language in ("en", "ko")]
MODEL_PAGES = [ROOT / "docs" / language / "models.md" for language in ("en", "ko")]
KINDS = ("python", "sh", "text", "console")  # console: needs something fetched, so it is not run


class Block(NamedTuple):
    """A fenced block; ``line`` is that of its first line of code."""

    kind: str
    code: str
    line: int
    output: str | None  # of the text block that follows at once, where one does


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages(chosen: list[Path], *kinds: str) -> list[object]:
    """Those of the pages that have such a block, as cases with readable names."""
    return [pytest.param(page, id=name_of(page)) for page in chosen if any(b.kind in kinds for b in blocks(page))]


def fences(page: Path) -> Iterator[tuple[str, str, int, bool]]:
    """(kind, code, line, does it stand right under the block before?)"""
    kind: str | None = None
    code: list[str] = []
    start, alone = 0, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and kind is None:
            kind, code, start = line[3:].strip(), [], number + 1
        elif line.startswith("```"):
            assert kind is not None
            yield kind, "\n".join(code), start, alone
            kind, alone = None, True
        elif kind is not None:
            code.append(line)
        elif line.strip():
            alone = False
    assert kind is None, f"{page.name}: the block at line {start} is never closed"


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    for kind, code, line, follows in fences(page):
        assert kind in KINDS, f"{page.name}:{line}: a block of {kind!r}; say {', '.join(KINDS)}"
        if kind == "text" and follows and found and found[-1].kind != "text":
            found[-1] = found[-1]._replace(output=code)
        found.append(Block(kind, code, line, None))
    return found


def headings(page: Path) -> list[int]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [len(marks) for marks in re.findall(r"^(#+) ", prose, flags=re.MULTILINE)]


def trimmed(text: str) -> list[str]:
    """Lines without what nobody sees: spaces at their ends, empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.mark.parametrize(("english", "korean"), PAIRS, ids=[name_of(english) for english, _ in PAIRS])
def test_two_languages_have_the_same_shape_and_the_same_code(english: Path, korean: Path) -> None:
    assert english.exists() and korean.exists()
    assert headings(english) == headings(korean)
    ours, theirs = blocks(english), blocks(korean)
    for one, other in zip(ours, theirs, strict=False):
        assert (one.kind, one.code) == (other.kind, other.code), f"{korean.name}:{other.line} differs from the English"
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("page", pages(PAGES, "python"))
def test_python_examples_run_and_say_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        if block.kind != "python":
            continue
        said = StringIO()
        # the empty lines in front let a traceback name the line of the document
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with redirect_stdout(said):
            exec(code, namespace)
        if block.output is not None:
            assert trimmed(said.getvalue()) == trimmed(block.output), f"{name_of(page)}:{block.line}"


def shell_examples() -> dict[str, tuple[str, str | None]]:
    """Each line of shell, once: (where it stands, what it prints, if its block is that one line and shows it)."""
    lines: dict[str, tuple[str, str | None]] = {}
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "sh":
                commands = block.code.splitlines()
                for command in commands:
                    output = block.output if len(commands) == 1 else None
                    lines.setdefault(command, (f"{name_of(page)}:{block.line}", output))
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("command", shell_examples())
def test_shell_examples_run(command: str, tmp_path: Path) -> None:
    where, output = shell_examples()[command]
    if command.startswith(("git clone ", "cd ")):
        pytest.skip("there is nothing to clone here, and nowhere else to be")
    folder = tmp_path
    if command.startswith("make "):  # running the tests from the tests would not end
        command, folder = command.replace("make ", "make -n ", 1), ROOT
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{where}: {done.stderr}"
    if output is not None:
        assert trimmed(done.stdout) == trimmed(output), where


@pytest.mark.parametrize("page", pages(PAGES, "console"))
def test_console_examples_name_commands_that_are_there(page: Path) -> None:
    for block in blocks(page):
        lines = block.code.splitlines() if block.kind == "console" else []
        for words in (line[2:].rpartition("| ")[2].split() for line in lines if line.startswith("$ ")):
            assert words[0] == "jumok", f"{name_of(page)}:{block.line}"
            command: click.Command = cli
            for word in words[1:]:
                if not isinstance(command, click.Group):
                    break
                assert word in command.commands, f"{name_of(page)}:{block.line} has no such command: {word}"
                command = command.commands[word]
            options = {option for one in command.params for option in one.opts}
            unknown = {word for word in words if word.startswith("--")} - options
            assert not unknown, f"{name_of(page)}:{block.line} has no such option: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:|#", target)]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", HANDBOOKS, ids=name_of)
def test_handbook_names_every_mask_and_every_backend(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    masks = [word for word in MASK_FUNCTIONS if f"`{word}(" not in text] + ["causal"] * ("`causal`" not in text)
    assert not masks
    assert not [backend for backend in BACKENDS if f"`{backend}`" not in text]


@pytest.mark.parametrize("page", MODEL_PAGES, ids=name_of)
def test_models_page_names_every_family_type_and_model(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for told in describe_families():
        name = str(told["family"])
        begin, end = f"| `{name}` | `{FAMILIES[name][1]}` |", f"| {told['parameters']:,} |"
        assert any(row.startswith(begin) and row.endswith(end) for row in rows), told
    assert not [kind for kind in DIALECTS if f"`{kind}`" not in text]
    for entry in (find_entry("smollm2"), find_entry("minilm")):
        row = next(row for row in rows if row.startswith(f"| `{entry.name}` |"))
        assert format_megabytes(entry.download) in row and entry.licence in row


def test_architecture_names_every_file() -> None:
    tree = next(block.code for block in blocks(ROOT / "ARCHITECTURE.md") if "src/jumok/" in block.code)
    folders, named = [ROOT / "src" / "jumok"], set()
    for line in tree.splitlines()[1:]:
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        if depth == 0:  # outside of src
            break
        folders[depth:] = [folders[depth - 1] / name]
        named.add(folders[depth])
    there = set((ROOT / "src" / "jumok").rglob("*.py"))
    assert {file for file in named if file.suffix == ".py"} == there
