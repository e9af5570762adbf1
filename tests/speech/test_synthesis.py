"""Tests of the speech synthesisers: the sound itself must confirm the word times, and a text always sounds the same."""

from __future__ import annotations

import ctypes.util
import itertools
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from jumok.data.audio import espeak, flite
from jumok.data.audio.utterance import Utterance
from jumok.errors import ArgumentError

pytest.importorskip("soxr", reason="resampling needs soxr")
pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed")
needs_flite = pytest.mark.skipif(ctypes.util.find_library("flite") is None, reason="flite is not installed")

RATE = 16_000
ENGLISH, KOREAN = ("apple", "open", "every", "under", "ice"), ("아침", "오늘", "우유", "이마", "여자")


def find_onset(utterance: Utterance, word: int) -> float:
    """Return when the sound begins after the pause before a word, from the samples alone: 2% of the peak, in 1 ms."""
    before, start = utterance.words[word - 1].end, utterance.words[word].start
    assert before is not None and start is not None and start - before > 0.05
    first = int((before + start) / 2 * RATE)
    frames = utterance.samples[first : first + RATE // 2].unfold(0, 16, 16)
    loud = frames.square().mean(1).sqrt() > 0.02 * utterance.samples.abs().max()
    return first / RATE + float(loud.nonzero()[0]) / 1000


def measure_delays(speak: Callable[..., Utterance], voice: str, words: tuple[str, ...], speed: float) -> list[float]:
    """Return for each word, spoken after a pause, how long after its start it is heard."""
    utterances = [speak(f"{words[-1]}, {word}.", voice, speed=speed) for word in words]
    starts = [utterance.words[1].start or 0.0 for utterance in utterances]
    return [find_onset(utterance, 1) - start for utterance, start in zip(utterances, starts, strict=True)]


@pytest.mark.parametrize("speed", [1.0, 1.5])
@pytest.mark.parametrize(("voice", "words"), [("en-us", ENGLISH), ("en-gb+f1", ENGLISH), ("ko", KOREAN)])
def test_espeak_begins_vowels_at_their_word_events(voice: str, words: tuple[str, ...], speed: float) -> None:
    delays = measure_delays(espeak.speak, voice, words, speed)

    assert max(abs(delay) for delay in delays) < 0.004


@pytest.mark.parametrize("voice", ["en-us", "en-gb+f1"])
@pytest.mark.parametrize(
    ("words", "least", "most"), [(("seven", "face"), 0.010, 0.015), (("cat", "table", "pot", "key"), 0.047, 0.052)]
)
def test_espeak_begins_consonants_with_a_pause(voice: str, words: tuple[str, ...], least: float, most: float) -> None:
    """The event of a word comes before the silence that is part of its first consonant."""
    delays = measure_delays(espeak.speak, voice, words, 1.0)

    assert least < min(delays) and max(delays) < most


@needs_flite
@pytest.mark.parametrize("speed", [1.0, 1.5])
@pytest.mark.parametrize(("voice", "bound"), [("slt", 0.011), ("rms", 0.011), ("kal", 0.011), ("awb", 0.03)])
def test_flite_begins_vowels_at_the_end_of_the_phone_before(voice: str, bound: float, speed: float) -> None:
    delays = measure_delays(flite.speak, voice, ENGLISH, speed)

    assert max(abs(delay) for delay in delays) < bound


def test_words_without_an_event_have_no_times() -> None:
    words = espeak.speak("He sat on the mat. Well-known 25 cats").words

    assert [word.text for word in words] == ["He", "sat", "on", "the", "mat.", "Well-known", "25", "cats"]
    assert [word.start is None for word in words] == [False] * 3 + [True] + [False] * 4
    assert [word.end is None for word in words] == [False] * 2 + [True] * 2 + [False] * 4
    starts = [word.start for word in words if word.start is not None]
    assert starts == sorted(starts)
    several_events = espeak.speak("and/or cats").words  # one event each for "and", "/" and "or"
    assert several_events[0].start == 0 and several_events[0].end == several_events[1].start
    pause = espeak.speak("cats, dogs").words
    assert (pause[0].end or 0) < (pause[1].start or 0) - 0.1
    korean = espeak.speak("나는 학교에 갑니다.", "ko").words
    assert korean[0].start is None and korean[1].start is not None and korean[1].end == korean[2].start


@needs_flite
def test_flite_matches_phones_to_written_words() -> None:
    words = flite.speak("It's 25 - (really), on the mat").words

    assert [word.text for word in words] == ["It's", "25", "-", "(really),", "on", "the", "mat"]
    assert words[2].start is None  # a dash is not spoken
    spoken = [word for word in words if word.start is not None and word.end is not None]
    durations = {word.text: (word.end or 0) - (word.start or 0) for word in spoken}
    assert durations["25"] > 2.5 * durations["the"] > 0  # "twenty five"
    assert all(a.end is not None and b.start is not None and a.end <= b.start for a, b in itertools.pairwise(spoken))


@pytest.mark.parametrize("voice", ["en-us", "ko+m3", "en-gb+f4"])
def test_espeak_always_gives_the_same_samples(voice: str) -> None:
    first = espeak.speak("seven 일곱", voice)
    espeak.speak("something else", "en-us+f3", speed=1.3)

    assert torch.equal(first.samples, espeak.speak("seven 일곱", voice).samples)


@needs_flite
@pytest.mark.parametrize("voice", flite.VOICES)
def test_flite_always_gives_the_same_samples(voice: str) -> None:
    first = flite.speak("seven cats", voice)
    changed = flite.speak("seven cats", voice, speed=1.3)

    assert torch.equal(first.samples, flite.speak("seven cats", voice).samples)
    assert 1.1 < len(first.samples) / len(changed.samples) < 1.5


def estimate_pitch(samples: torch.Tensor) -> float:
    """Return the median frequency of the voiced frames, from the highest peak of their autocorrelation."""
    frames = samples.unfold(0, 640, 320)
    frames = frames - frames.mean(1, keepdim=True)
    spectra = torch.fft.rfft(frames, 2048)
    correlations = torch.fft.irfft(spectra.abs().square())[:, :300]
    best, lag = correlations[:, 40:267].max(1)
    voiced = (best > 0.5 * correlations[:, 0]) & (correlations[:, 0] > 0.1 * correlations[:, 0].max())
    return RATE / (40 + float(lag[voiced].float().median()))


@pytest.mark.parametrize(
    ("speak", "voice"), [(espeak.speak, "en-us"), pytest.param(flite.speak, "awb", marks=needs_flite)]
)
def test_pitch_is_a_factor(speak: Callable[..., Utterance], voice: str) -> None:
    low, high = (speak("We are all morning people.", voice, pitch=pitch) for pitch in (0.9, 1.35))

    assert estimate_pitch(high.samples) / estimate_pitch(low.samples) == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize(
    ("text", "voice", "message"),
    [
        ("hello", "xx", "no voice 'xx'"),
        ("hello", "en-us+zz", "no voice variant 'zz'"),
        ("hello", "en-us+../af", "no voice variant"),
        ("  ", "en-us", "must contain a word"),
        ("a\0b", "en-us", "no zero character"),
        ("word " * 500, "en-us", "2,500 characters"),
    ],
)
def test_espeak_refuses(text: str, voice: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        espeak.speak(text, voice)


@needs_flite
@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("안녕", {}, "English only"),
        ("hello", {"voice": "bob"}, "choose one of slt, awb, rms, kal"),
        ("hello", {"speed": 9.0}, "speed must be from 0.5 to 2.5, not 9.0"),
        ("hello", {"voice": "rms", "pitch": 1.2}, "cannot change the pitch of voice rms"),
    ],
)
def test_flite_refuses(text: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        flite.speak(text, **changes)  # type: ignore[arg-type]


def test_a_missing_synthesiser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(flite, "_load_library", lambda name: ctypes.CDLL("libmissing-synthesiser.so"))
    monkeypatch.setattr(flite, "_loaded", {})

    with pytest.raises(ArgumentError, match="pip install espeakng-loader"):
        espeak.speak("hello")
    with pytest.raises(ArgumentError, match="apt install flite"):
        flite.speak("hello")


@pytest.mark.skipif(ctypes.util.find_library("espeak-ng") is None, reason="the system has no libespeak-ng")
def test_the_library_of_the_system_also_works() -> None:
    program = (
        "import sys; sys.modules['espeakng_loader'] = None\n"
        "from jumok.data.audio.espeak import speak\n"
        "print(*(word.start is not None for word in speak('seven cats', 'en-gb+f2').words))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.stdout.split() == ["True", "True"], result.stderr


def test_threads_take_turns() -> None:
    from concurrent.futures import ThreadPoolExecutor

    texts = [f"number {number}" for number in range(8)]
    expected = [espeak.speak(text).samples for text in texts]
    with ThreadPoolExecutor(4) as pool:
        spoken = list(pool.map(lambda text: espeak.speak(text).samples, texts))

    assert all(torch.equal(left, right) for left, right in zip(spoken, expected, strict=True))
