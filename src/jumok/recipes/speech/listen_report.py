"""Scores of the recipe ``listen``: exact transcripts per language, clean and in noise, beside a simple baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.text_scores import compute_exact_match, compute_word_error_rate
from jumok.training import compute_mean_loss

from .clips import EXAMPLE_FILE, ClipTexts, StoredClips
from .synthetic_clips import REPORTED_NOISE, WORDS, trim_silence

EVALUATION_BATCH = 64
SUMMARY_FRAMES = 24  # the length to which a clip is stretched before it is compared with others
LOUD = 0.4  # of the range of a clip's loudness: frames above it belong to the word
REPORTED_SAMPLES = 20
RECORDINGS = ("korean-numbers", "asterisk-sounds")  # Korean numbers by a person; a telephone voice, with English digits
NEAREST = (
    "nearest, for comparison: the transcript of the training clip of one word with the most similar spectrogram, "
    "after both were cut to their loud part and stretched to one length"
)


def transcribe_clips(model: Model, clips: StoredClips, indices: Sequence[int], texts: ClipTexts) -> list[str]:
    """Return the model's transcript of each clip."""
    assert isinstance(model, Speech)
    frame_count = model.config.frame_count
    return [
        transcript
        for batch in _split(indices)
        for transcript in texts.transcribe(model, clips.build_features(batch, frame_count))
    ]


def evaluate_clips(model: Model, clips: StoredClips, indices: Sequence[int], texts: ClipTexts) -> dict[str, float]:
    """Return the loss per token, and the share of exact transcripts."""
    assert isinstance(model, Speech)
    frame_count, longest = model.config.frame_count, model.config.target_length
    batches = (
        texts.create_batch(
            clips.build_features(part, frame_count), [texts.encode(clips.labels[index])[:longest] for index in part]
        )
        for part in _split(indices)
    )
    loss = compute_mean_loss(model, batches)
    transcripts = transcribe_clips(model, clips, indices, texts)
    return {"loss": loss, "exact": compute_exact_match(transcripts, clips.get_texts(indices))}


def build_listen_report(
    request: TrainingRequest,
    model: Model,
    clips: StoredClips,
    parts: tuple[Sequence[int], Sequence[int]],
    texts: ClipTexts,
) -> dict[str, Any]:
    """Return the scores of held-out clips and some examples."""
    training, held_out = parts
    transcripts = dict(zip(held_out, transcribe_clips(model, clips, held_out, texts), strict=True))
    nearest = find_nearest_texts(clips, training, held_out)
    samples = [
        {"spoken": clips.labels[index].text, "written": transcripts[index], "nearest": nearest[index]}
        for index in held_out[:: max(1, len(held_out) // REPORTED_SAMPLES)]
    ]
    if request.has_own_files:
        spoken, written = clips.get_texts(held_out), [transcripts[index] for index in held_out]
        return {
            "exact": compute_exact_match(written, spoken),
            "word_error_rate": compute_word_error_rate(written, spoken),
            "nearest_exact": compute_exact_match([nearest[index] for index in held_out], spoken),
            "what": f"{len(held_out):,} held-out clips, used neither for training nor to choose the checkpoint; "
            + NEAREST,
            "try": EXAMPLE_FILE,
            "samples": samples,
        }
    return {
        "what": "share of exact transcripts of synthesised clips, in voices that were used neither for training nor to "
        f"choose the checkpoint; noisy: pink noise, {REPORTED_NOISE:g} dB below the speech; {NEAREST}; "
        "real recordings: words spoken by people, if these entries of the catalogue are in the cache",
        **score_real_recordings(model, texts),
        "try": EXAMPLE_FILE,
        "scores": _score_kinds(clips, held_out, transcripts, nearest),
        "samples": samples,
    }


def _score_kinds(
    clips: StoredClips, held_out: Sequence[int], transcripts: dict[int, str], nearest: dict[int, str]
) -> list[dict[str, Any]]:
    """Return a row for each language and kind of clip."""
    rows = []
    for language, kind in dict.fromkeys((clips.labels[index].language, clips.labels[index].kind) for index in held_out):
        indices = [
            index for index in held_out if (clips.labels[index].language, clips.labels[index].kind) == (language, kind)
        ]
        spoken = clips.get_texts(indices)
        row: dict[str, Any] = {
            "language": language,
            "clips": f"{len(indices)} of {kind}",
            "exact": compute_exact_match([transcripts[index] for index in indices], spoken),
        }
        if not any(" " in text for text in spoken):
            row["nearest"] = compute_exact_match([nearest[index] for index in indices], spoken)
        rows.append(row)
    return rows


def find_nearest_texts(clips: StoredClips, training: Sequence[int], indices: Sequence[int]) -> dict[int, str]:
    """Return for each clip the transcript of the most similar training clip, of one word if there are such clips."""
    single = [index for index in training if len(clips.labels[index].text.split()) == 1]
    candidates = single or list(training)
    summaries = torch.stack([summarise_clip(clips.get_clip(index)) for index in candidates])
    nearest = {}
    for index in indices:
        distances = (summaries - summarise_clip(clips.get_clip(index))).square().sum(1)
        nearest[index] = clips.labels[candidates[int(distances.argmin())]].text
    return nearest


def summarise_clip(spectrogram: Float[Tensor, "mel frame"]) -> Float[Tensor, " number"]:
    """Return the loud part of a clip, stretched to a fixed length, without the mean of each band."""
    loudness = spectrogram.mean(0)
    threshold = loudness.min() + LOUD * (loudness.max() - loudness.min())
    loud = (loudness >= threshold).nonzero().flatten()
    word = spectrogram[:, int(loud[0]) : int(loud[-1]) + 1]
    stretched = torch.nn.functional.interpolate(word[None], SUMMARY_FRAMES, mode="linear", align_corners=True)[0]
    return (stretched - stretched.mean(1, keepdim=True)).flatten()


def _split(indices: Sequence[int]) -> Iterator[list[int]]:
    for first in range(0, len(indices), EVALUATION_BATCH):
        yield list(indices[first : first + EVALUATION_BATCH])


def score_real_recordings(model: Model, texts: ClipTexts) -> dict[str, Any]:
    """Return the report's fields about recordings of one word that the model knows; {} if none is in the cache."""
    assert isinstance(model, Speech)
    rows: list[dict[str, Any]] = []
    scores: dict[str, float] = {}
    for name in RECORDINGS:
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
