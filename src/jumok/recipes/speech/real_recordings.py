"""Try a model of synthesised words on recordings of people: those of the catalogue that are in the cache."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data import catalogue
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import HOP, compute_log_mel
from jumok.data.datasets.speech_recordings import Recording, list_recordings
from jumok.models import Model
from jumok.models.speech import Speech
from jumok.recipes.shared.text_scores import compute_exact_match

from .clip_texts import ClipTexts
from .spoken_words import WORDS
from .synthetic_clips import trim_silence

ENTRIES = ("korean-numbers", "asterisk-sounds")  # Korean numbers by a person; a telephone voice, with English digits


def score_real_recordings(model: Model, texts: ClipTexts) -> dict[str, Any]:
    """Return the report's fields about recordings of one word that the model knows; {} if none is in the cache."""
    assert isinstance(model, Speech)
    rows: list[dict[str, Any]] = []
    scores: dict[str, float] = {}
    for name in ENTRIES:
        if catalogue.locate_entry(name) is None:
            continue
        recordings = [recording for recording in list_recordings(name) if _get_word(recording)]
        spoken = [_get_word(recording) for recording in recordings]
        features = torch.stack([_read_features(recording, model) for recording in recordings])
        transcripts = texts.transcribe(model, features)
        scores[name] = compute_exact_match(transcripts, spoken)
        rows += [
            {"entry": name, "file": recording.path.name, "spoken": word, "written": transcript}
            for recording, word, transcript in zip(recordings, spoken, transcripts, strict=True)
        ]
    return {"real_recordings_exact": scores, "real_recordings": rows} if rows else {}


def _get_word(recording: Recording) -> str:
    """Return the word of a recording; "" if it is not one of the words of the recipe."""
    word = recording.text.lower().strip(" .!")
    return word if word in WORDS.get(recording.language, ()) else ""


def _read_features(recording: Recording, model: Speech) -> Float[Tensor, "mel frame"]:
    """Return the spectrogram of a recording in one window, without the silence at its ends."""
    window = model.config.frame_count * HOP
    samples = trim_silence(read_audio(recording.path))[:window]
    padded = torch.nn.functional.pad(samples, (0, window - len(samples)))
    return compute_log_mel(padded, model.config.mel_bins)
