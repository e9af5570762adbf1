"""Synthesised speech: its samples, and the words with the times at which the synthesiser began and ended them."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError

SYNTHESIS_RATE = 16_000  # samples per second of every utterance
MAX_TEXT = 2000  # characters; a synthesiser is meant for sentences, not for books
SPEEDS = (0.5, 2.5)
PITCHES = (0.5, 1.9)


@dataclass(frozen=True)
class SpokenWord:
    """One word of an utterance, with its start and end in seconds; None if the synthesiser does not say."""

    text: str
    start: float | None
    end: float | None


@dataclass(frozen=True, eq=False)
class Utterance:
    """Speech of one text by one voice."""

    samples: Float[Tensor, " sample"]  # mono, 16,000 samples per second, from -1 to 1
    words: tuple[SpokenWord, ...]


def resample(pcm: bytes, rate: int) -> Float[Tensor, " sample"]:
    """Convert 16-bit samples of a synthesiser to floats at ``SYNTHESIS_RATE``."""
    samples = np.frombuffer(pcm, np.int16).astype(np.float32) / 32768
    if rate != SYNTHESIS_RATE:
        try:
            import soxr
        except ImportError:
            raise ArgumentError("resampling needs the package soxr; install it with: pip install soxr") from None
        # soxr's filter has linear phase and no delay in this form, so word times stay as they are
        samples = soxr.resample(samples, rate, SYNTHESIS_RATE)
    return torch.from_numpy(np.clip(samples, -1, 1))


def seed_noise() -> None:
    """Seed the C library's random numbers, from which synthesisers make noise: the same text gives the same samples."""
    ctypes.CDLL("msvcrt" if sys.platform == "win32" else None).srand(1)


def check_speech_request(text: str, speed: float, pitch: float) -> None:
    """Check the arguments that every synthesiser takes."""
    if not text.strip() or "\0" in text:
        raise ArgumentError("the text to speak must contain a word, and no zero character")
    if len(text) > MAX_TEXT:
        raise ArgumentError(f"the text to speak has {len(text):,} characters; at most {MAX_TEXT:,} are allowed")
    for name, factor, (least, most) in (("speed", speed, SPEEDS), ("pitch", pitch, PITCHES)):
        if not least <= factor <= most:
            raise ArgumentError(f"{name} must be from {least} to {most}, not {factor}")
