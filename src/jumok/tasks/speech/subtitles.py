"""Write segments as subtitles: SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

VTT_HEADER = "WEBVTT\n\n"


@runtime_checkable
class Cue(Protocol):
    """A text with its time: a segment or a word."""

    @property
    def start(self) -> float:
        """Where it begins, in seconds."""
        ...

    @property
    def end(self) -> float:
        """Where it ends, in seconds."""
        ...

    @property
    def text(self) -> str:
        """The text."""
        ...


def format_srt(cues: Iterable[Cue]) -> Iterator[str]:
    """Yield SubRip subtitles, one block for each cue.

    Args:
        cues: Segments or words.
    """
    for number, cue in enumerate(cues, start=1):
        times = f"{format_time(cue.start, ',')} --> {format_time(cue.end, ',')}"
        yield f"{number}\n{times}\n{_clean(cue.text)}\n\n"


def format_vtt(cues: Iterable[Cue]) -> Iterator[str]:
    """Yield WebVTT subtitles: a header, then one block for each cue.

    Args:
        cues: Segments or words.
    """
    yield VTT_HEADER
    for cue in cues:
        text = _clean(cue.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{format_time(cue.start, '.')} --> {format_time(cue.end, '.')}\n{text}\n\n"


def format_time(seconds: float, separator: str) -> str:
    """Return a time as hours:minutes:seconds with milliseconds.

    Args:
        separator: What stands before the milliseconds: "," in SubRip, "." in WebVTT.

    >>> format_time(3725.5, ",")
    '01:02:05,500'
    """
    seconds, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{separator}{milliseconds:03}"


def _clean(text: str) -> str:
    """Return a text on one line: an empty line or an arrow would end the cue."""
    return " ".join(text.split()).replace("-->", "->")
