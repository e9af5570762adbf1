"""Passages of structured text: Markdown and reStructuredText, cut at headings; JSON Lines and .po files, by record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.po_files import parse_messages
from jumok.data.readers.table_header import KNOWN_NAMES

from .passage_cutter import Lines, PassageCutter, Piece, clean_text

MAX_LINE = 1000  # characters; a longer line is no heading
MAX_HEADING = 100  # characters of the headings in front of a passage

_HASH_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FIELDS = "---"  # encloses fields at the beginning of a file, such as its title
_MARKDOWN_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_RST_UNDERLINE = re.compile(r"([=\-~^\"'#*+`:.<>_])\1{2,}[ \t]*")

MAX_RECORD = 4 * 2**20  # characters of a line of JSON
MAX_PO_LINE = 1_000_000  # characters
_TITLE_NAMES = ("title", "heading", "subject", "제목")
_TEXT_NAMES = frozenset([*KNOWN_NAMES["text"], "answer", "abstract", "summary", "답변", "요약"])

ReportLine = Callable[[int, str], None]  # takes the number of a line that cannot be used, and the reason


def cut_marked_up_text(lines: Lines, is_markdown: bool) -> Iterator[Piece]:
    """Yield the pieces of Markdown or reStructuredText, with the line numbers of the text below the headings."""
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
            section.cutter.keep_lines = in_fence or bool(fence)
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
        self.cutter = PassageCutter()
        self._is_empty = True

    def add_line(self, number: int, line: str, is_end: bool) -> Iterator[Piece]:
        yield from self._complete(self.cutter.add_line(number, line, is_end))

    def finish(self) -> Iterator[Piece]:
        yield from self._complete(self.cutter.finish())
        if self._is_empty and self._heading:  # a heading without a text is all there is to find
            yield Piece(self._number, self._number, self._heading)

    def _complete(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self._is_empty = False
            text = f"{self._heading}\n{piece.text}" if self._heading else piece.text
            added = len(text) - len(piece.text)
            sentences = tuple((start + added, line) for start, line in piece.sentences)
            yield Piece(piece.first, piece.last, text, sentences)


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


def cut_json_lines(lines: Lines, report_line: ReportLine) -> Iterator[Piece]:
    """Yield the pieces of each record: its title and well-known text fields, or else all its texts."""
    is_continued = False
    for number, line, is_end in lines:
        was_continued, is_continued = is_continued, not is_end
        if was_continued or not line.strip():
            continue
        try:
            if is_continued:
                raise ValueError("the record is too long")
            record = json.loads(line)
        except (ValueError, RecursionError):
            report_line(number, "a line that is not JSON")
            continue
        cutter = PassageCutter()
        for text in collect_texts(record):
            for part in text.splitlines():
                yield from cutter.add_line(number, part)
            yield from cutter.end_sentence()
        yield from cutter.finish()


def collect_texts(record: object) -> list[str]:
    """Return the texts of a record.

    >>> collect_texts({"id": "17", "title": "Cats", "text": "They sleep.", "url": "x"})
    ['Cats', 'They sleep.']
    >>> collect_texts({"name": "Ada", "born": 1815, "works": ["Notes"]})
    ['Ada', 'Notes']
    """
    if isinstance(record, dict):
        fields = {name: text for name, text in record.items() if isinstance(text, str) and text.strip()}
        texts = [text for name, text in fields.items() if name.strip().lower() in _TEXT_NAMES]
        if texts:
            titles = [text for name, text in fields.items() if name.strip().lower() in _TITLE_NAMES]
            return [*titles, *texts]
    texts = []
    remaining = [record]
    while remaining:
        part = remaining.pop()
        if isinstance(part, str) and part.strip():
            texts.append(part)
        elif isinstance(part, dict):
            remaining.extend(reversed(part.values()))
        elif isinstance(part, list):
            remaining.extend(reversed(part))
    return texts


def cut_po_messages(lines: Lines, report_line: ReportLine) -> Iterator[Piece]:
    """Yield a piece for each message, or several for a long one."""
    last = 0  # the last line of a translation: when a message is yielded, the first line after it has been read

    def read_lines() -> Iterator[tuple[int, str]]:
        nonlocal last
        for number, line, _ in lines:
            if line.lstrip().startswith(("msgstr", '"')):
                last = number
            yield number, line

    problems = _LineReport(report_line)
    for message in parse_messages(Path(), read_lines(), problems):
        cutter = PassageCutter(keep_lines=True)
        pieces: list[Piece] = []
        forms = [message.translations[index] for index in sorted(message.translations)]
        for text in dict.fromkeys(text for text in (message.id, message.plural, *forms) if text.strip()):
            for line in text.splitlines():
                pieces += cutter.add_line(message.line, line)
        pieces += cutter.finish()
        for piece in pieces:
            yield Piece(message.line, max(last, message.line), piece.text, piece.sentences)


class _LineReport(ProblemLog):
    """Pass the line numbers of problems on."""

    def __init__(self, report_line: ReportLine) -> None:
        super().__init__(skip=True)
        self._report_line = report_line

    def report(
        self, location: str, message: str, unit: str = "lines", advice: str | None = None, count: int = 1
    ) -> None:
        self._report_line(int(location.rpartition(":")[2]), "a line that is not part of a .po message")
