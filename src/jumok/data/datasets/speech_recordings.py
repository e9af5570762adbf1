"""List the recordings of speech in the catalogue, with their texts and, where known, the times of their words."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.data.audio.audio_files import is_audio_path
from jumok.data.audio.textgrids import Interval, read_textgrid
from jumok.data.datasets.text_corpora import Report, require_entry_folder
from jumok.errors import ArgumentError

# by the start of the file's name; all others are English
_MFA_LANGUAGES = {"13697": "es", "common_voice_ja": "ja", "se10x016": "sv"}
_NOISE = re.compile(r"<[^>]*>|\[[^]]*\]|\([^)]*\)")  # remarks such as <VOCNOISE>, [sound of monkeys screaming], (pause)


@dataclass(frozen=True)
class RecordedWord:
    """A word of a recording.

    Attributes:
        start: When it starts, in seconds.
        end: When it ends, in seconds.
    """

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Recording:
    """A recording whose text is known.

    Attributes:
        text: What is said, without remarks about noises. Case and punctuation are those of the source.
        language: The language, as a two-letter code.
    """

    path: Path
    text: str
    language: str = "en"
    words: tuple[RecordedWord, ...] = ()


def list_recordings(name: str, download_report: Report | None = None) -> list[Recording]:
    """List the recordings of a catalogue entry whose text is known, sorted by their paths.

    Texts and times are those of the packages. The times in "librivox-clips" were computed by an aligner, in steps of 10
    milliseconds.
    """
    if name not in _READERS:
        raise ArgumentError(f"there are no recordings in {name!r}; choose one of {', '.join(_READERS)}")
    folder = require_entry_folder(name, download=download_report is not None, report=download_report)
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
        intervals = [Interval(re.sub(r"\(\d+\)$", "", w["t"]), w["b"], round(w["b"] + w["d"], 3)) for w in alignment]
        text = path.with_suffix(".txt").read_text(encoding="utf-8")
        yield Recording(path, _clean_text(text), words=_list_words(intervals))


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


def _list_words(intervals: list[Interval]) -> tuple[RecordedWord, ...]:
    """Return the intervals that are words: neither silence nor a remark."""
    spoken = [interval for interval in intervals if _clean_text(interval.text)]
    return tuple(RecordedWord(interval.text, interval.start, interval.end) for interval in spoken)


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
