"""Passages of JSON Lines: each record by itself, with the text of its well-known fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from jumok.data.readers.table_header import KNOWN_NAMES

from .passage_cutter import PassageCutter, Piece

MAX_RECORD = 4 * 2**20  # characters
_TITLE_NAMES = ("title", "heading", "subject", "제목")
_TEXT_NAMES = frozenset([*KNOWN_NAMES["text"], "answer", "abstract", "summary", "답변", "요약"])


def cut_json_lines(lines: Iterator[tuple[int, str, bool]], report: Callable[[int, str], None]) -> Iterator[Piece]:
    """Yield the pieces of each record: its title and well-known text fields, or all its texts if it has none of them.

    Args:
        lines: (line number, line, is end of line), in parts of MAX_RECORD characters.
    """
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
            report(number, "a line that is not JSON")
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
