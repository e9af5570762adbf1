"""Whisper tiny.en from the catalogue: its texts are those of transformers, in memory and after saving; 8 bits too."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from real_audio import load_whisper, read_sentences
from test_transcribe import ONCE
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

import jumok
from catalogue_cache import CACHE, download_or_skip
from jumok.checkpoint import Loaded
from jumok.checkpoint.conversion import find_converted_folder
from jumok.generate import quantize
from jumok.tasks.speech import TranscriptionSettings, transcribe

SHORT = TranscriptionSettings(timestamps=False, **ONCE)


@pytest.fixture(scope="module")
def whisper() -> Loaded:
    return load_whisper()


@pytest.fixture(scope="module")
def theirs(whisper: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whisper") / "theirs"
    jumok.save(whisper, folder, format="huggingface")
    return WhisperForConditionalGeneration.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def sentences() -> list[Tensor]:
    return [samples for _, samples in read_sentences()]


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


def test_the_catalogue_name_loads_the_converted_model(whisper: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    loaded = jumok.load("whisper-tiny-en")
    assert loaded.speech_tokens == whisper.speech_tokens and loaded.model.parameter_count == 37_760_256


def test_several_processes_may_convert_at_once(tmp_path: Path) -> None:
    """All of them find the converted folder, whichever was first, and none leaves other files behind."""
    entry = download_or_skip("whisper-tiny-en")
    shutil.copytree(entry, tmp_path / "entry", copy_function=os.link, ignore=shutil.ignore_patterns("jumok-*", ".*"))
    files = set((tmp_path / "entry").iterdir())
    with ThreadPoolExecutor(3) as pool:
        folders = set(pool.map(find_converted_folder, [tmp_path / "entry"] * 3))
    assert folders == set((tmp_path / "entry").iterdir()) - files
    assert jumok.load(folders.pop()).model.parameter_count == 37_760_256
