"""Read the fenced code blocks of Markdown pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
KINDS = ("python", "sh", "text", "console")  # console blocks need a download or much time and are not run


class Block(NamedTuple):
    """A fenced code block.

    Attributes:
        kind: The language after the opening fence.
        code: The lines between the fences.
        line: The line number of the first line of code.
        output: The text block directly below, which shows what the code prints; None without one.
    """

    kind: str
    code: str
    line: int
    output: str | None


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read_fences(page: Path) -> Iterator[tuple[str, str, int, bool]]:
    """Yield (kind, code, line, is there nothing between this block and the block before?) for each fenced block."""
    kind: str | None = None
    code: list[str] = []
    start, adjacent = 0, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and kind is None:
            kind, code, start = line[3:].strip(), [], number + 1
        elif line.startswith("```"):
            assert kind is not None
            yield kind, "\n".join(code), start, adjacent
            kind, adjacent = None, True
        elif kind is not None:
            code.append(line)
        elif line.strip():
            adjacent = False
    assert kind is None, f"{page.name}: the block at line {start} is never closed"


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; a text block directly below a block of code becomes its output."""
    blocks: list[Block] = []
    for kind, code, line, adjacent in read_fences(page):
        assert kind in KINDS, f"{page.name}:{line}: a block of {kind!r}; use one of {', '.join(KINDS)}"
        if kind == "text" and adjacent and blocks and blocks[-1].kind != "text":
            blocks[-1] = blocks[-1]._replace(output=code)
        blocks.append(Block(kind, code, line, None))
    return blocks


def strip_lines(text: str) -> list[str]:
    """Return the lines without trailing spaces and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
