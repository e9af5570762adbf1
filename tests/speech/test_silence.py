"""Silence and noise give an empty transcript; quiet and short speech does not."""

from __future__ import annotations

import math

import pytest
import torch
from real_audio import load_whisper, read_sentences
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.tasks.speech import TranscriptionSettings, transcribe


@pytest.fixture(scope="module")
def whisper() -> Loaded:
    return load_whisper()


def make_noise(kind: str, loudness: float, seconds: float) -> Tensor:
    length = int(16_000 * seconds)
    white = torch.randn(length, generator=torch.Generator().manual_seed(0))
    if kind == "white":
        return loudness * white
    if kind == "brown":  # low frequencies are louder, as in traffic
        walk = white.cumsum(0)
        return loudness * walk / walk.abs().max()
    return loudness * torch.sin(torch.arange(length) * (2 * math.pi * 60 / 16_000))  # the hum of a power line


@pytest.mark.parametrize(
    ("kind", "loudness", "seconds"),
    [
        ("white", 0.0, 1),
        ("white", 1e-4, 5),
        ("white", 0.05, 40),
        ("white", 0.3, 8),
        ("brown", 0.5, 10),
        ("hum", 0.1, 6),
        ("hum", 0.5, 33),
    ],
)
def test_noise_gives_no_text(whisper: Loaded, kind: str, loudness: float, seconds: float) -> None:
    assert transcribe(whisper, make_noise(kind, loudness, seconds)).segments == ()


def test_the_bare_model_says_you(whisper: Loaded) -> None:
    """Without the rule the text is there: the test above would not pass by itself."""
    bare = TranscriptionSettings(certain_no_speech=None, greatest_no_speech=None, temperatures=())
    assert transcribe(whisper, torch.zeros(16_000), bare).text == "you"


@pytest.mark.parametrize("loudness", [1.0, 0.01])
def test_speech_is_not_silence(whisper: Loaded, loudness: float) -> None:
    _, shortest = min(read_sentences(), key=lambda sentence: len(sentence[0]))
    transcript = transcribe(whisper, loudness * shortest)
    assert "young man" in transcript.text.lower()
    assert all(segment.no_speech is not None and segment.no_speech < 0.3 for segment in transcript.segments)


def test_silence_between_speech_is_left_out(whisper: Loaded) -> None:
    """Half a minute of silence before a sentence: its segments begin after the silence."""
    _, shortest = min(read_sentences(), key=lambda sentence: len(sentence[0]))
    samples = torch.cat([torch.zeros(16_000 * 32), shortest])
    transcript = transcribe(whisper, samples)
    assert "young man" in transcript.text.lower() and "you" not in transcript.text.lower().split()
    assert transcript.segments[0].start >= 29.0
