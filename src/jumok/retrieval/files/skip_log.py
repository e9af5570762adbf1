"""Count the files of a folder that are not indexed, by reason, and keep the first names of each reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMES_PER_REASON = 5
MAX_REASONS = 50  # reasons contain no names of files, but a library may write its own
OTHER_REASONS = "other reasons"


class UnusableFileError(Exception):
    """A file has no text that can be indexed. The message is the reason, such as "binary"."""


@dataclass(frozen=True)
class SkippedFile:
    """A file or folder that is not indexed.

    Args:
        path: Its path relative to the indexed folder, as printable text.
        reason: Why, such as "binary".
    """

    path: str
    reason: str


class SkipLog:
    r"""The files that are not indexed. Its memory is bounded: it counts all and keeps a few names.

    >>> skipped = SkipLog()
    >>> skipped.add(b"a\xff.txt", "binary")
    >>> skipped.counts, skipped.first
    ({'binary': 1}, (SkippedFile(path='a\\xff.txt', reason='binary'),))
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[str]] = {}

    def add(self, path: bytes, reason: str, count: int = 1) -> None:
        """Count a file.

        Args:
            path: Its path relative to the indexed folder, as the system stores it.
            count: How many parts of it, such as lines, are not indexed.
        """
        if reason not in self._counts and len(self._counts) >= MAX_REASONS:
            reason = OTHER_REASONS
        self._counts[reason] = self._counts.get(reason, 0) + count
        names = self._first.setdefault(reason, [])
        if len(names) < NAMES_PER_REASON:
            names.append(make_printable(path))

    @property
    def counts(self) -> dict[str, int]:
        """How many files were skipped, by reason."""
        return dict(self._counts)

    @property
    def first(self) -> tuple[SkippedFile, ...]:
        """The first files of each reason."""
        return tuple(SkippedFile(name, reason) for reason, names in self._first.items() for name in names)

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the first names as a JSON object."""
        return {reason: {"count": count, "first": self._first[reason]} for reason, count in self._counts.items()}


def make_printable(path: bytes) -> str:
    r"""Return a path as text that can be printed and stored anywhere.

    Bytes that are not UTF-8, line breaks and control characters become escapes: a terminal would obey them.

    >>> make_printable(b"a\nb/\xff\xea\xb0\x80.txt")
    'a\\nb/\\xff가.txt'
    """
    text = path.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
