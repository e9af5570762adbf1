"""Read TextGrid files of Praat: names and times of intervals in a recording, such as its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.errors import DataError

MAX_FILE_SIZE = 16 * 2**20  # bytes
# Praat reads free-standing numbers, texts in quotation marks and flags; everything else is a comment. That is why the
# long form ("xmin = 0.5") and the short form ("0.5") are the same.
_TOKEN = re.compile(r'"(?P<text>(?:[^"]|"")*)"|(?<!\S)(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|<\w+>)(?!\S)')


@dataclass(frozen=True)
class Interval:
    """A named stretch of a recording.

    Attributes:
        text: What is there; empty for silence.
        start: When it starts, in seconds.
        end: When it ends, in seconds.
    """

    text: str
    start: float
    end: float


def read_textgrid(path: Path) -> dict[str, list[Interval]]:
    """Read the tiers of intervals in a TextGrid file, in Praat's long or short text form."""
    tokens = _iterate_tokens(_read_text(path))
    try:
        if [next(tokens), next(tokens)] != ["ooTextFile", "TextGrid"]:
            raise DataError(f"{path} is not a TextGrid in Praat's text form")
        float(next(tokens)), float(next(tokens))  # times of the recording
        if next(tokens) != "<exists>":
            return {}
        tiers: dict[str, list[Interval]] = {}
        for _ in range(int(next(tokens))):
            kind, name = next(tokens), next(tokens)
            float(next(tokens)), float(next(tokens))  # times of the tier
            intervals = [_read_interval(kind, tokens) for _ in range(int(next(tokens)))]
            if kind == "IntervalTier":
                if name in tiers:
                    raise DataError(f"{path} has two tiers named {name!r}; rename one of them")
                _check_times(path, name, intervals)
                tiers[name] = intervals
    except StopIteration:
        raise DataError(f"{path} breaks off: it has fewer intervals than it says") from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged: a number was expected ({str(error)[:100]})") from None
    return tiers


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise DataError(f"{path} has more than {MAX_FILE_SIZE:,} bytes, which is too large for a TextGrid")
        content = path.read_bytes()
        has_utf16_mark = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        return content.decode("utf-16" if has_utf16_mark else "utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is neither UTF-8 nor UTF-16") from None


def _iterate_tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        number = match["number"]
        yield match["text"].replace('""', '"') if number is None else number


def _read_interval(kind: str, tokens: Iterator[str]) -> Interval:
    start = float(next(tokens))
    end = float(next(tokens)) if kind == "IntervalTier" else start
    return Interval(next(tokens).strip(), start, end)


def _check_times(path: Path, name: str, intervals: list[Interval]) -> None:
    last = float("-inf")
    for number, interval in enumerate(intervals, 1):
        if not last <= interval.start <= interval.end < float("inf"):
            times = f"from {interval.start} to {interval.end} seconds"
            raise DataError(f"{path}: interval {number} of {name!r} goes {times}, after one that ends at {last}")
        last = interval.end
