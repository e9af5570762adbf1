"""Whisper tiny.en from the catalogue: its texts are those of transformers, in memory and after saving; 8 bits too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_transcribe import ONCE
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint import Loaded
from jumok.data.audio.audio_files import read_audio
from jumok.data.datasets.speech_recordings import list_recordings
from jumok.generate import quantize
from jumok.tasks.speech import TranscriptionSettings, transcribe

SHORT = TranscriptionSettings(timestamps=False, **ONCE)


@pytest.fixture(scope="module")
def whisper() -> Loaded:
    download_or_skip("whisper-tiny-en")
    return jumok.load("whisper-tiny-en")


@pytest.fixture(scope="module")
def theirs(whisper: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whisper") / "theirs"
    jumok.save(whisper, folder, format="huggingface")
    return WhisperForConditionalGeneration.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def sentences() -> list[Tensor]:
    download_or_skip("librivox-clips")
    return [read_audio(recording.path) for recording in list_recordings("librivox-clips")]


def test_short_audio_equals_transformers(whisper: Loaded, theirs: Any, sentences: list[Tensor]) -> None:
    for samples in sentences[3:]:
        features = WhisperFeatureExtractor()(samples.numpy(), sampling_rate=16_000, return_tensors="pt")
        with torch.inference_mode():
            tokens = theirs.generate(features["input_features"], num_beams=1, do_sample=False)[0].tolist()
        expected = whisper.require_tokenizer().decode(tokens, special=False).strip()
        assert transcribe(whisper, samples, SHORT).text == expected
        assert len(expected.split()) > 5


def test_eight_bits_hear_the_same(whisper: Loaded, sentences: list[Tensor]) -> None:
    small = replace(whisper, model=quantize(whisper.model))
    assert transcribe(small, sentences[4], SHORT).text == transcribe(whisper, sentences[4], SHORT).text
