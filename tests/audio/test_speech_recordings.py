"""Recordings of the catalogue are listed with their texts and the times of their words."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from catalogue_cache import CACHE
from jumok.data import catalogue
from jumok.data.audio.audio_files import RATE, read_audio
from jumok.data.datasets import speech_recordings
from jumok.data.datasets.speech_recordings import RecordedWord, Recording, list_recordings
from jumok.errors import ArgumentError, AudioError, DataError

# entry: recordings with a text, with word times, seconds in all, words with times
EXPECTED = {
    "mfa-recordings": (25, 4, 227.8, 186),
    "praatio-clips": (3, 3, 4.0, 12),
    "librivox-clips": (5, 5, 24.7, 71),
    "asterisk-sounds": (551, 0, 1455.6, 0),
    "korean-numbers": (10, 0, 4.5, 0),
}


def build_textgrid(tiers: dict[str, list[tuple[float, float, str]]]) -> str:
    lines = ['"ooTextFile"', '"TextGrid"', "0", "9", "<exists>", str(len(tiers))]
    for name, intervals in tiers.items():
        lines += ['"IntervalTier"', f'"{name}"', "0", "9", str(len(intervals))]
        lines += [f'{start}\n{end}\n"{text}"' for start, end, text in intervals]
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take an empty folder for every entry of the catalogue."""
    monkeypatch.setattr(speech_recordings, "require_entry_folder", lambda *_, **__: tmp_path)
    return tmp_path


def write_files(folder: Path, **contents: str) -> None:
    for name, content in contents.items():
        stem, _, extension = name.rpartition("_")
        (folder / f"{stem}.{extension}").write_text(content, encoding="utf-8")


def test_texts_come_from_labels_or_from_intervals(folder: Path) -> None:
    words = [(0, 1, ""), (1, 1.5, "hello"), (1.5, 2, "<cough>"), (2, 3, "world")]
    speakers = {"a": [(0, 1, "good"), (4, 5, "all")], "b": [(2, 3, "day to")]}
    write_files(
        folder, one_wav="", one_lab="hello <COUGH> [uh]\n world\n", one_TextGrid=build_textgrid({"words": words})
    )
    write_files(folder, two_flac="", two_TextGrid=build_textgrid(speakers), silent_wav="", three_lab="no recording")
    write_files(folder, common_voice_ja_1_mp3="", common_voice_ja_1_txt="真っ昼間")
    assert list_recordings("mfa-recordings") == [
        Recording(folder / "common_voice_ja_1.mp3", "真っ昼間", "ja"),
        Recording(
            folder / "one.wav",
            "hello world",
            words=(RecordedWord("hello", 1.0, 1.5), RecordedWord("world", 2.0, 3.0)),
        ),
        Recording(folder / "two.flac", "good day to all"),
    ]


def test_alignments_of_words(folder: Path) -> None:
    alignment = [
        {"b": 0.0, "d": 0.2, "t": "<sil>"},
        {"b": 0.2, "d": 0.17, "t": "and(2)"},
        {"b": 0.37, "d": 0.1, "t": "so"},
    ]
    write_files(folder, a_wav="", a_txt="and so\n", a_json=json.dumps({"w": alignment}))
    words = (RecordedWord("and", 0.2, 0.37), RecordedWord("so", 0.37, 0.47))
    assert list_recordings("librivox-clips") == [Recording(folder / "a.wav", "and so", words=words)]

    for path in folder.iterdir():
        path.unlink()
    write_files(folder, a_wav="", a_TextGrid=build_textgrid({"word": [(0, 1, "AND"), (1, 2, ""), (2, 3, "SO")]}))
    words = (RecordedWord("AND", 0.0, 1.0), RecordedWord("SO", 2.0, 3.0))
    assert list_recordings("praatio-clips") == [Recording(folder / "a.wav", "AND SO", words=words)]


def test_lists_of_texts(folder: Path) -> None:
    listed = "; Sounds\n\nhello: Hello:  you.\nbeep: [a tone]\nmissing: Nothing.\nletters/a: A (the letter)\n"
    (folder / "core-sounds-en.txt.gz").write_bytes(gzip.compress(listed.encode()))
    (folder / "letters").mkdir()
    for name in ("hello.wav", "beep.wav", "letters/a.wav"):
        (folder / name).touch()
    assert list_recordings("asterisk-sounds") == [
        Recording(folder / "hello.wav", "Hello: you."),
        Recording(folder / "letters/a.wav", "A"),
    ]

    (folder / "5.ogg").touch()
    (folder / "5.txt").write_text("Five.\nja.utf8=ご!\nko.utf8=다섯!\n", encoding="utf-8")
    assert list_recordings("korean-numbers") == [Recording(folder / "5.ogg", "다섯", "ko")]


def test_unknown_and_missing_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    with pytest.raises(ArgumentError, match="no recordings in 'mnist'; choose one of mfa-recordings, praatio-clips"):
        list_recordings("mnist")
    with pytest.raises(DataError, match="download it with: jumok data get praatio-clips"):
        list_recordings("praatio-clips")


def test_the_readers_are_those_of_the_catalogue() -> None:
    names = {entry.name for entry in catalogue.list_entries()}
    assert set(EXPECTED) == set(speech_recordings._READERS) <= names


@pytest.fixture
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    pytest.importorskip("soundfile")


def require_cached(name: str) -> Path:
    """Return the folder of an entry; skip the test if it is not cached, because some are large."""
    folder = catalogue.locate_entry(name)
    if folder is None:
        pytest.skip(f"{name} is not cached; download it with: JUMOK_CACHE={CACHE} jumok data get {name}")
    return folder


@pytest.mark.usefixtures("_cache")
@pytest.mark.parametrize("name", EXPECTED)
def test_real_recordings(name: str) -> None:
    require_cached(name)
    recordings = list_recordings(name)
    seconds = [len(read_audio(recording.path)) / RATE for recording in recordings]
    count, timed, total, words = EXPECTED[name]
    assert len(recordings) == count and all(recording.text for recording in recordings)
    assert sum(bool(recording.words) for recording in recordings) == timed
    assert sum(seconds) == pytest.approx(total, abs=0.1)
    assert sum(len(recording.words) for recording in recordings) == words
    for recording, duration in zip(recordings, seconds, strict=True):
        times = [time for word in recording.words for time in (word.start, word.end)]
        assert times == sorted(times) and all(0 <= time <= duration + 1e-3 for time in times)


@pytest.mark.usefixtures("_cache")
def test_languages_of_real_recordings() -> None:
    require_cached("mfa-recordings")
    languages = Counter(recording.language for recording in list_recordings("mfa-recordings"))
    assert languages == {"en": 19, "sv": 4, "es": 1, "ja": 1}


@pytest.mark.usefixtures("_cache")
def test_the_korean_numbers() -> None:
    require_cached("korean-numbers")
    texts = [recording.text for recording in list_recordings("korean-numbers")]
    assert texts == ["공", "하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉"]


@pytest.mark.usefixtures("_cache")
def test_real_damaged_files_are_refused() -> None:
    folder = require_cached("librivox-clips") / "damaged"
    messages = {
        "awful": "a rate of 1,092,676 Hz",
        "bad": "is truncated",
        "evil": "no 'data' chunk",
        "null": "has 0 samples",
    }
    for name, message in messages.items():
        with pytest.raises(AudioError, match=message):
            read_audio(folder / f"{name}.wav")
