"""jumok run with audio: text, JSON and subtitles on the command line, and a sentence for every mistake."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import soundfile
from small_whisper import save_whisper
from test_transcribe import WINDOW, make_audio

import jumok
from jumok.cli import main
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.errors import ContextWarning
from jumok.tasks.speech import Segment, describe_foreign_speech
from jumok.tasks.speech.transcript import format_srt, format_time, format_vtt
from jumok.translation import translate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audio")
    save_whisper(folder / "model")
    save_whisper(folder / "english", ())
    samples = make_audio(WINDOW // 2, 2).numpy()  # random parameters need many attempts at each window
    soundfile.write(folder / "talk.wav", samples, 16_000, subtype="FLOAT")
    soundfile.write(folder / "stereo.flac", numpy.stack([samples, samples], 1), 16_000)
    (folder / "not audio.wav").write_text("hello")
    return folder


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[str, str, int]:
    """Return what a command prints to standard output and standard error, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["jumok", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    printed = capsys.readouterr()
    return printed.out, printed.err, code


def test_text_json_and_subtitles_agree(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (folder / "model", folder / "talk.wav", "--spoken", "ko")
    text, _, code = run(monkeypatch, capsys, "run", *options)
    assert code == 0
    row = json.loads(run(monkeypatch, capsys, "run", *options, "--json")[0])
    assert row["language"] == "ko" and row["duration"] == 0.35
    assert text.splitlines() == [segment["text"].strip() for segment in row["segments"]]
    assert row["output"] == jumok.run(folder / "model", folder / "talk.wav", language="ko")

    subtitles = run(monkeypatch, capsys, "run", *options, "--srt")[0]
    assert subtitles.count(" --> ") == len(row["segments"])
    assert [block.splitlines()[2] for block in subtitles.strip().split("\n\n")] == text.splitlines()
    assert run(monkeypatch, capsys, "run", *options, "--vtt")[0].startswith("WEBVTT\n\n00:00:0")


def test_words_have_times(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = (folder / "english", folder / "stereo.flac")
    row = json.loads(run(monkeypatch, capsys, "run", *options, "--json", "--words")[0])
    starts = [word["start"] for word in row["words"]]
    assert starts and starts == sorted(starts) and all(0 <= start <= 0.35 for start in starts)
    assert "".join(word["text"] for word in row["words"]) == "".join(row["output"].split())
    words = run(monkeypatch, capsys, "run", *options, "--srt", "--words")[0]
    assert words.count(" --> ") == len(starts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["talk.mp3"], "there is no file"),
        (["not audio.wav"], "not audio.wav"),
        (["talk.wav", "--spoken", "xx"], "unknown language 'xx'; this model knows de, en, ko"),
        (["talk.wav", "--srt", "--vtt"], "choose one of --srt, --vtt"),
        (["talk.wav", "--srt", "--json"], "choose one of --srt, --json"),
        (["talk.wav", "talk.wav", "--srt"], "--srt writes the subtitles of one file"),
        (["talk.wav", "--words"], "--words needs an output with times"),
        (["talk.wav", "--temperature", "0.5"], "--temperature is not for audio; a transcription takes --spoken"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    out, err, code = run(monkeypatch, capsys, "run", "model", *arguments)
    assert code != 0 and out == ""
    assert message in err and err.count("\n") == 1 and err.startswith("jumok: ")


def test_options_for_audio_are_refused_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err, code = run(monkeypatch, capsys, "run", "tiny", "hello", "--srt")
    assert code != 0 and "--srt is for models that transcribe audio; this gpt model does not" in err


def make_segment(start: float, end: float, text: str) -> Segment:
    return Segment(start, end, text, (), 0.0, 0.0, 0.0, None, 0.0)


def test_subtitles_follow_their_formats() -> None:
    segments = [make_segment(0.0, 1.5, " Tom & Jerry <3"), make_segment(3599.9996, 36000.0, "a\n\nb --> c")]
    assert "".join(format_srt(segments)) == (
        "1\n00:00:00,000 --> 00:00:01,500\nTom & Jerry <3\n\n2\n01:00:00,000 --> 10:00:00,000\na b -> c\n\n"
    )
    assert "".join(format_vtt(segments)) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nTom &amp; Jerry &lt;3\n\n"
        "01:00:00.000 --> 10:00:00.000\na b -&gt; c\n\n"
    )
    assert format_time(59.9996, ".") == "00:01:00.000"


def hear(window: float, log_probability: float, compression: float = 1.2, temperature: float = 0.0) -> Segment:
    return Segment(window, window + 5, " text", (), window, log_probability, compression, 0.1, temperature)


@pytest.mark.parametrize(
    ("segments", "is_foreign"),
    [
        ([], False),
        ([hear(0.0, -0.6)], False),
        ([hear(0.0, -0.8)], True),
        ([hear(0.0, -0.1, compression=3.0)], True),  # "I'm your friend, I'm your friend, ..."
        ([hear(0.0, -0.3, temperature=0.2)], True),
        ([hear(0.0, -0.9), hear(0.0, -0.9), hear(30.0, -0.3), hear(60.0, -0.3)], False),
    ],
)
def test_english_words_for_another_language_are_doubted(segments: list[Segment], is_foreign: bool) -> None:
    english = SpeechTokens(50257, 50256, no_timestamps=50362)
    assert (describe_foreign_speech(english, segments) is not None) == is_foreign
    assert describe_foreign_speech(replace(english, languages={"ko": 1, "en": 2}), segments) is None
    if is_foreign:
        assert "이 모델은 영어만 압니다" in translate(describe_foreign_speech(english, segments) or "", "ko")


def test_a_doubtful_transcript_warns_everywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    module = importlib.import_module("jumok.tasks.speech.transcribe")  # the package has a function of this name
    monkeypatch.setattr(module._Transcription, "run", lambda job, progress: iter([hear(0.0, -0.9)]))
    sentence = "this model knows English only, and its text is improbable or repeats itself"
    for options in ([], ["--srt"]):
        _, errors, code = run(monkeypatch, capsys, "run", folder / "english", folder / "talk.wav", *options)
        assert code == 0 and sentence in errors
    output, _, _ = run(monkeypatch, capsys, "run", folder / "english", folder / "talk.wav", "--json")
    assert json.loads(output)["warning"].startswith(sentence)
    with pytest.warns(ContextWarning, match=sentence):
        jumok.run(folder / "english", str(folder / "talk.wav"))
