"""List the recordings of speech in the catalogue, with their texts and, where known, the times of their words."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.data.audio.audio_files import is_audio_path
from jumok.data.datasets.text_corpora import require_entry_folder
from jumok.errors import ArgumentError, DataError
from jumok.files import read_limited
from jumok.reporting import Report

# by the start of the file's name; all others are English
_MFA_LANGUAGES = {"13697": "es", "common_voice_ja": "ja", "se10x016": "sv"}
MAX_TEXTGRID = 16 * 2**20  # bytes
# Praat reads free-standing numbers, texts in quotation marks and flags; everything else is a comment. That is why the
# long form ("xmin = 0.5") and the short form ("0.5") are the same.
_TOKEN = re.compile(r'"(?P<text>(?:[^"]|"")*)"|(?<!\S)(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|<\w+>)(?!\S)')
_NOISE = re.compile(r"<[^>]*>|\[[^]]*\]|\([^)]*\)")  # remarks such as <VOCNOISE>, [sound of monkeys screaming], (pause)


@dataclass(frozen=True)
class RecordedWord:
    """A word of a recording, or silence with an empty text, and when it starts and ends, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Recording:
    """A recording whose text is known."""

    path: Path
    text: str  # without remarks about noises; case and punctuation are those of the source
    language: str = "en"
    words: tuple[RecordedWord, ...] = ()


def list_recordings(name: str, download_report: Report | None = None) -> list[Recording]:
    """List the recordings of a catalogue entry whose text is known, sorted by their paths.

    Texts and times are those of the packages. The times in "librivox-clips" were computed by an aligner, in steps of 10
    milliseconds.
    """
    if name not in _READERS:
        raise ArgumentError(f"there are no recordings in {name!r}; choose one of {', '.join(_READERS)}")
    folder = require_entry_folder(name, download_report)
    return sorted(_READERS[name](folder), key=lambda recording: recording.path)


def _read_mfa(folder: Path) -> Iterator[Recording]:
    for path in filter(is_audio_path, folder.iterdir()):
        tiers = read_textgrid(grid) if (grid := path.with_suffix(".TextGrid")).is_file() else {}
        words = _list_words(tiers.get("words", []))
        texts = [file for ending in (".lab", ".txt") if (file := path.with_suffix(ending)).is_file()]
        if texts:
            text = texts[0].read_text(encoding="utf-8")
        else:  # the intervals of all speakers
            spoken = [interval for name, tier in tiers.items() if name != "phones" for interval in tier]
            text = " ".join(interval.text for interval in sorted(spoken, key=lambda interval: interval.start))
        languages = [code for start, code in _MFA_LANGUAGES.items() if path.name.startswith(start)]
        if text := _clean_text(text):
            yield Recording(path, text, languages[0] if languages else "en", words)


def _read_praatio(folder: Path) -> Iterator[Recording]:
    for path in folder.glob("*.wav"):
        tiers = read_textgrid(path.with_suffix(".TextGrid"))
        words = _list_words(tiers["words" if "words" in tiers else "word"])
        yield Recording(path, " ".join(word.text for word in words), words=words)


def _read_librivox(folder: Path) -> Iterator[Recording]:
    for path in folder.glob("*.wav"):
        alignment = json.loads(path.with_suffix(".json").read_bytes())["w"]
        # "t" is a word, or a word and the number of its pronunciation; "b" and "d" are its start and duration
        words = [RecordedWord(re.sub(r"\(\d+\)$", "", w["t"]), w["b"], round(w["b"] + w["d"], 3)) for w in alignment]
        text = path.with_suffix(".txt").read_text(encoding="utf-8")
        yield Recording(path, _clean_text(text), words=_list_words(words))


def _read_asterisk(folder: Path) -> Iterator[Recording]:
    lines = gzip.decompress((folder / "core-sounds-en.txt.gz").read_bytes()).decode("utf-8").splitlines()
    for line in lines:
        name, _, text = line.partition(": ")
        path = folder / f"{name}.wav"
        if not line.startswith(";") and (text := _clean_text(text)) and path.is_file():
            yield Recording(path, text)


def _read_korean_numbers(folder: Path) -> Iterator[Recording]:
    for path in folder.glob("*.ogg"):
        names = path.with_suffix(".txt").read_text(encoding="utf-8")
        match = re.search(r"^ko\.utf8=(.+?)!?$", names, re.MULTILINE)
        if match is not None:
            yield Recording(path, match[1], "ko")


def read_textgrid(path: Path) -> dict[str, list[RecordedWord]]:
    """Return the intervals of each tier of a TextGrid file of Praat, in the long or the short text form.

    Tiers of points are left out. The file is in UTF-8, or in UTF-16 with a byte order mark.
    """
    tiers: dict[str, list[RecordedWord]] = {}
    try:
        content = read_limited(path, MAX_TEXTGRID)
        has_utf16_mark = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = content.decode("utf-16" if has_utf16_mark else "utf-8-sig")
        tokens = (match["number"] or match["text"].replace('""', '"') for match in _TOKEN.finditer(text))
        if [next(tokens), next(tokens)] != ["ooTextFile", "TextGrid"]:
            raise DataError(f"{path} is not a TextGrid in Praat's text form")
        float(next(tokens)), float(next(tokens))  # times of the recording
        count = int(next(tokens)) if next(tokens) == "<exists>" else 0
        for _ in range(count):
            kind, name = next(tokens), next(tokens)
            float(next(tokens)), float(next(tokens))  # times of the tier
            intervals = [_read_interval(kind, tokens) for _ in range(int(next(tokens)))]
            if kind == "IntervalTier":
                if name in tiers:
                    raise DataError(f"{path} has two tiers named {name!r}; rename one of them")
                tiers[name] = intervals
    except StopIteration:
        raise DataError(f"{path} breaks off: it has fewer intervals than it says") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as a TextGrid: {str(error)[:200]}") from None
    for name, intervals in tiers.items():
        last = -math.inf
        for number, word in enumerate(intervals, 1):
            if not last <= word.start <= word.end < math.inf:
                times = f"from {word.start} to {word.end} seconds, after one that ends at {last}"
                raise DataError(f"{path}: interval {number} of {name!r} goes {times}")
            last = word.end
    return tiers


def _read_interval(kind: str, tokens: Iterator[str]) -> RecordedWord:
    start = float(next(tokens))
    end = float(next(tokens)) if kind == "IntervalTier" else start
    return RecordedWord(next(tokens).strip(), start, end)


def _list_words(intervals: list[RecordedWord]) -> tuple[RecordedWord, ...]:
    """Return the intervals that are words: neither silence nor a remark."""
    return tuple(interval for interval in intervals if _clean_text(interval.text))


def _clean_text(text: str) -> str:
    """Return a text without remarks, in one line."""
    return " ".join(_NOISE.sub(" ", text).split())


_READERS: dict[str, Callable[[Path], Iterator[Recording]]] = {
    "mfa-recordings": _read_mfa,
    "praatio-clips": _read_praatio,
    "librivox-clips": _read_librivox,
    "asterisk-sounds": _read_asterisk,
    "korean-numbers": _read_korean_numbers,
}
