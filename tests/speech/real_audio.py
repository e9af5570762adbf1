"""Whisper tiny.en and its recordings for tests, from the cache that all test runs share."""

from __future__ import annotations

import functools

import pytest
from torch import Tensor

import jumok
from catalogue_cache import CACHE, download_or_skip
from jumok.checkpoint import Loaded
from jumok.checkpoint.conversion import find_converted_folder
from jumok.data.audio.audio_files import read_audio
from jumok.data.datasets.speech_recordings import list_recordings


def load_whisper() -> Loaded:
    """Return Whisper tiny.en; skip the test if it cannot be downloaded."""
    return _load(str(find_converted_folder(download_or_skip("whisper-tiny-en"))))


@functools.cache
def _load(folder: str) -> Loaded:
    return jumok.load(folder)


def read_sentences() -> list[tuple[str, Tensor]]:
    """Return the sentences of the audio book, each with its text; skip the test if they cannot be downloaded."""
    download_or_skip("librivox-clips")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        return [(recording.text, read_audio(recording.path)) for recording in list_recordings("librivox-clips")]
