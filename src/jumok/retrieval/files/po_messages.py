"""Passages of gettext .po files: each message with its translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.po_files import Message, parse_messages

from .passage_cutter import PassageCutter, Piece

MAX_LINE = 1_000_000  # characters


def cut_po_messages(lines: Iterator[tuple[int, str, bool]], report: Callable[[int, str], None]) -> Iterator[Piece]:
    """Yield a piece for each message, or several for a long one.

    Args:
        lines: (line number, line, is end of line), in parts of MAX_LINE characters.
        report: Called with the number of each line that is not part of a message, and the reason.
    """
    last = 0  # the last line of a translation: when a message is yielded, the first line after it has been read

    def read_lines() -> Iterator[tuple[int, str]]:
        nonlocal last
        for number, line, _ in lines:
            if line.lstrip().startswith(("msgstr", '"')):
                last = number
            yield number, line

    problems = _LineReport(report)
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

    def __init__(self, report: Callable[[int, str], None]) -> None:
        super().__init__(skip=True)
        self._report = report

    def report(
        self, location: str, message: str, unit: str = "lines", advice: str | None = None, count: int = 1
    ) -> None:
        self._report(int(location.rpartition(":")[2]), "a line that is not part of a .po message")


def _list_texts(message: Message) -> list[str]:
    forms = [message.translations[index] for index in sorted(message.translations)]
    return list(dict.fromkeys(text for text in (message.id, message.plural, *forms) if text.strip()))
