"""Passages of files of records, each record by itself: JSON Lines, and gettext .po files with their translations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.po_files import Message, parse_messages
from jumok.data.readers.table_header import KNOWN_NAMES

from .passage_cutter import PassageCutter, Piece

MAX_RECORD = 4 * 2**20  # characters of a line of JSON
MAX_PO_LINE = 1_000_000  # characters
_TITLE_NAMES = ("title", "heading", "subject", "제목")
_TEXT_NAMES = frozenset([*KNOWN_NAMES["text"], "answer", "abstract", "summary", "답변", "요약"])

Lines = Iterator[tuple[int, str, bool]]  # line number, line, is end of line
ReportLine = Callable[[int, str], None]  # takes the number of a line that cannot be used, and the reason


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


def collect_texts(record: Any) -> list[str]:
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
        for text in _list_texts(message):
            for line in text.splitlines():
                pieces += cutter.add_line(message.line, line)
        pieces += cutter.finish()
        yield from (Piece(message.line, max(last, message.line), piece.text) for piece in pieces)


class _LineReport(ProblemLog):
    """Pass the line numbers of problems on."""

    def __init__(self, report_line: ReportLine) -> None:
        super().__init__(skip=True)
        self._report_line = report_line

    def report(
        self, location: str, message: str, unit: str = "lines", advice: str | None = None, count: int = 1
    ) -> None:
        self._report_line(int(location.rpartition(":")[2]), "a line that is not part of a .po message")


def _list_texts(message: Message) -> list[str]:
    forms = [message.translations[index] for index in sorted(message.translations)]
    return list(dict.fromkeys(text for text in (message.id, message.plural, *forms) if text.strip()))
