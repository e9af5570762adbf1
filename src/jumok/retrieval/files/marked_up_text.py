"""Passages of Markdown and reStructuredText: cut at headings, and each begins with the headings above it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .passage_cutter import PassageCutter, Piece, clean_text

MAX_LINE = 1000  # characters; a longer line is no heading
MAX_HEADING = 100  # characters of the headings in front of a passage

_HASH_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FIELDS = "---"  # encloses fields at the beginning of a file, such as its title
_MARKDOWN_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_RST_UNDERLINE = re.compile(r"([=\-~^\"'#*+`:.<>_])\1{2,}[ \t]*")
Lines = Iterator[tuple[int, str, bool]]


def cut_marked_up_text(lines: Lines, is_markdown: bool) -> Iterator[Piece]:
    """Yield the pieces of a text with headings. Line numbers are those of the text below the headings.

    Args:
        is_markdown: Markdown, else reStructuredText.
    """
    headings: list[tuple[int, str]] = []  # (depth, title) from the outermost heading inwards
    underlines: list[str] = []  # reStructuredText: the order in which the marks occur is their depth
    section = _Section("", 0)
    fence = ""
    waiting: tuple[int, str, bool] | None = None  # the last line: an underline would make it a heading

    for line in lines:
        number, text, _ = line
        heading = None
        in_fence = bool(fence)
        if is_markdown and number == 1 and text.strip() == _FIELDS:
            fence = _FIELDS
        elif fence == _FIELDS:
            if text.strip() in (_FIELDS, "..."):
                fence = ""
        elif is_markdown and (mark := _FENCE.match(text)):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not text.strip().strip(fence[0]):
                fence = ""
        elif not fence:
            heading = _find_heading(waiting, line, is_markdown, underlines)
        if heading is None:
            if waiting is not None:
                yield from section.add_line(*waiting)
            section.keep_lines(in_fence or bool(fence))
            waiting = line
            continue

        depth, title, title_number = heading
        if title_number == number and waiting is not None:
            yield from section.add_line(*waiting)
        waiting = None
        yield from section.finish()
        headings = [(level, name) for level, name in headings if level < depth] + [(depth, clean_text(title).strip())]
        section = _Section(_join_headings([name for _, name in headings]), title_number)

    if waiting is not None:
        yield from section.add_line(*waiting)
    yield from section.finish()


class _Section:
    """The text below one heading."""

    def __init__(self, heading: str, number: int) -> None:
        self._heading = heading
        self._number = number
        self._cutter = PassageCutter()
        self._is_empty = True

    def keep_lines(self, keep: bool) -> None:
        """Keep the line breaks of what follows, such as a block of code."""
        self._cutter.keep_lines = keep

    def add_line(self, number: int, line: str, is_end: bool) -> Iterator[Piece]:
        yield from self._complete(self._cutter.add_line(number, line, is_end))

    def finish(self) -> Iterator[Piece]:
        yield from self._complete(self._cutter.finish())
        if self._is_empty and self._heading:  # a heading without a text is all there is to find
            yield Piece(self._number, self._number, self._heading)

    def _complete(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._is_empty = False
            text = f"{self._heading}\n{piece.text}" if self._heading else piece.text
            yield Piece(piece.first, piece.last, text)


def _find_heading(
    previous: tuple[int, str, bool] | None, line: tuple[int, str, bool], is_markdown: bool, underlines: list[str]
) -> tuple[int, str, int] | None:
    """Return the depth, the title and the line number of a heading that this line is or underlines; else None."""
    number, text, is_end = line
    if not is_end or len(text) > MAX_LINE:
        return None
    if is_markdown and (match := _HASH_HEADING.match(text)):
        return len(match[1]), _CLOSING_HASHES.sub("", text[match.end() :].strip()), number
    underline = (_MARKDOWN_UNDERLINE if is_markdown else _RST_UNDERLINE).fullmatch(text)
    if underline is None or previous is None or previous[0] != number - 1 or not previous[2]:
        return None
    title = previous[1].strip()
    if not title or len(title) > MAX_HEADING or not re.search(r"\w", title) or title.startswith(("|", "-", ">", "* ")):
        return None
    mark = text.strip()[0]
    if is_markdown:
        return (1 if mark == "=" else 2), title, previous[0]
    if mark not in underlines:
        underlines.append(mark)
    return underlines.index(mark) + 1, title, previous[0]


def _join_headings(titles: list[str]) -> str:
    """Return the innermost headings that fit into MAX_HEADING characters."""
    joined = ""
    for title in reversed([title for title in titles if title]):
        longer = f"{title} > {joined}" if joined else title[:MAX_HEADING]
        if len(longer) > MAX_HEADING:
            break
        joined = longer
    return joined
