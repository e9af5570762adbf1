"""Run the pages of the course, and write the notebooks and pictures that belong to them.

    python tests/documents/course_pages.py [PAGE ...]

runs every page of docs/*/course (or only those, such as d0) in both languages and writes its notebook and its pictures.
The notebooks contain the text and the code of the pages; the pictures are the files that the pages' own commands draw.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from click.testing import CliRunner
from page_blocks import ROOT, Block, read_blocks, strip_lines

from jumok.cli import cli

LANGUAGES = ("en", "ko")
DOCUMENTS = ("d0", "d1", "d2", "d3", "d4", *(f"gpt-{step}" for step in range(1, 9)))
PICTURES = ROOT / "docs" / "pictures" / "course"
PICTURE_LINK = re.compile(r"!\[[^\]]*\]\(\.\./\.\./pictures/course/([\w.-]+)\)")
LIVE_CELL = re.compile(r"^<!-- live: .* -->\n\n", flags=re.MULTILINE)  # of the site only (tools/site/live_cells.py)
FENCED = re.compile(r"^```(\w+)\n(.*?)^```\n", flags=re.MULTILINE | re.DOTALL)


def find_pages() -> list[Path]:
    """Return the pages of the course that have a notebook."""
    pages = [ROOT / "docs" / language / "course" / f"{name}.md" for language in LANGUAGES for name in DOCUMENTS]
    return [page for page in pages if page.exists()]


def list_pictures(page: Path) -> list[str]:
    """Return the names of the course's pictures that a page shows."""
    return PICTURE_LINK.findall(page.read_text(encoding="utf-8"))


def run_page(page: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run the Python and shell blocks of a page in order, in one folder and one namespace.

    Returns:
        Each block with what it printed.
    """
    namespace: dict[str, object] = {"__name__": "course"}
    results = []
    with chdir(folder):
        for block in read_blocks(page):
            if block.kind == "python":
                printed = StringIO()
                # leading empty lines, so that a traceback names the line of the document
                code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
                with redirect_stdout(printed):
                    exec(code, namespace)
                results.append((block, printed.getvalue()))
            elif block.kind == "sh":
                results.append((block, "".join(_run_command(line, page, block) for line in block.code.splitlines())))
    return results


def _run_command(line: str, page: Path, block: Block) -> str:
    """Run one command line in this process, which has imported PyTorch already."""
    words = shlex.split(line)
    assert words[0] == "jumok", f"{page.name}:{block.line}: only jumok can run here, not {words[0]!r}"
    completed = CliRunner().invoke(cli, words[1:])
    assert completed.exit_code == 0, f"{page}:{block.line}: {completed.output}"
    return completed.stdout


def find_wrong_outputs(page: Path, folder: Path) -> list[str]:
    """Run a page, and return the locations whose shown output differs from what the code prints."""
    return [
        f"{page.name}:{block.line}\n{printed}"
        for block, printed in run_page(page, folder)
        if block.output is not None and strip_lines(printed) != strip_lines(block.output)
    ]


def render_notebook(page: Path) -> str:
    """Return the notebook of a page as JSON: its text as Markdown cells, its code as code cells without outputs."""
    text = LIVE_CELL.sub("", page.read_text(encoding="utf-8"))
    cells: list[dict[str, object]] = []
    position, after_code = 0, False
    for match in FENCED.finditer(text):
        between = text[position : match.start()]
        kind, code = match.groups()
        if kind == "text" and after_code and not between.strip():
            position = match.end()  # the notebook prints it itself
            continue
        _append_text(cells, between)
        after_code = kind in ("python", "sh")
        if after_code:
            # %%sh ends with an error if the command fails; it runs without a terminal, so no progress bar is shown
            _append_cell(cells, "code", ("%%sh\n" if kind == "sh" else "") + code.rstrip("\n"))
        else:
            _append_text(cells, match.group())
        position = match.end()
    _append_text(cells, text[position:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _append_text(cells: list[dict[str, object]], text: str) -> None:
    if text.strip():
        _append_cell(cells, "markdown", text.strip("\n"))


def _append_cell(cells: list[dict[str, object]], kind: str, source: str) -> None:
    cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    cells.append({**cell, "source": source.splitlines(keepends=True)})


def main() -> None:
    """Write the notebooks and pictures of the pages that are named on the command line, or of all."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or DOCUMENTS
    for page in (page for page in find_pages() if page.stem in names):
        with tempfile.TemporaryDirectory() as name:
            for problem in find_wrong_outputs(page, Path(name)):
                sys.stdout.write(f"{problem}\n")
            for picture in list_pictures(page):
                shutil.copy(Path(name) / picture, PICTURES / picture)
        page.with_suffix(".ipynb").write_text(render_notebook(page), encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
