"""Recipe ``listen``: train a small speech model to transcribe spoken words.

The words are digits and everyday words in English and Korean, synthesised by espeak-ng and flite in many voices, with
noise; or the user's own recordings with transcripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data import catalogue
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import HOP, compute_log_mel
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets.speech_recordings import list_recordings
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.speech import FRAMES_PER_POSITION, Speech, SpeechConfig
from jumok.recipes.recipe import Defaults, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer
from jumok.recipes.shared.splits import PARTS
from jumok.recipes.shared.text_scores import compute_exact_match, compute_word_error_rate
from jumok.training import (
    Batch,
    DataSummary,
    Settings,
    TrainingTask,
    compute_mean_loss,
    compute_token_loss,
    select_part,
)

from .clips import (
    CLIPS_FILE,
    EXAMPLE_FILE,
    SPECIAL_TOKENS,
    ClipTexts,
    ListenOptions,
    StoredClips,
    build_speech_tokens,
    load_or_prepare_clips,
    mask_features,
    sample_masks,
)
from .synthetic_clips import REPORTED_NOISE, SPOKEN_LANGUAGES, WORDS, trim_silence

EVALUATION_BATCH = 64
SUMMARY_FRAMES = 24  # the length to which a clip is stretched before it is compared with others
LOUD = 0.4  # of the range of a clip's loudness: frames above it belong to the word
REPORTED_SAMPLES = 20
RECORDINGS = ("korean-numbers", "asterisk-sounds")  # Korean numbers by a person; a telephone voice, with English digits
NEAREST = (
    "nearest, for comparison: the transcript of the training clip of one word with the most similar spectrogram, "
    "after both were cut to their loud part and stretched to one length"
)
CONFIG = SpeechConfig(
    mel_bins=40, source_length=100, target_length=16, vocabulary=1000, width=96, layers=2, decoder_layers=2, heads=4,
    decoder_heads=4, hidden=256, decoder_hidden=256, dropout=0.0, pad=0, start=1, end=2,
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "steps": 2000, "batch": 32, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 2e-2, "final_rate": 0.0,
    "warmup": 50, "beta2": 0.98, "decay": 0.01, "average": 0.99, "evaluate_every": 400, "save_every": 400,
}  # fmt: skip


def get_listen_defaults(request: TrainingRequest, options: ListenOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings."""
    start_configs = () if loaded is None else (loaded.config,)
    return Defaults(SETTINGS, (CONFIG,), from_data=("pad", "start", "end"), start_configs=start_configs)


def create_listen_task(
    request: TrainingRequest, options: ListenOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a speech model on synthesised words, or on the user's own recordings with transcripts."""
    start = CONFIG if loaded is None else loaded.config
    assert isinstance(start, SpeechConfig)
    config = request.change(start)
    if loaded is not None and loaded.speech_tokens is not None and request.has_own_files:
        codes = ", ".join(loaded.speech_tokens.languages)
        if codes and options.language is None:
            raise ArgumentError(f"{request.start} knows several languages; set language to that of your clips: {codes}")

    clips = load_or_prepare_clips(request, options, config, settings.seed)
    if loaded is None:
        texts = _create_texts(request, options, clips)
        # lengths that fit all clips and transcripts
        longest_text = max(len(texts.encode(label)) for label in clips.labels)
        positions = -(-max(end - start for start, end in pairwise(clips.starts)) // FRAMES_PER_POSITION)
        config = config.replace(
            vocabulary=texts.tokenizer.vocabulary, pad=texts.tokenizer.pad, start=texts.tokenizer.begin,
            end=texts.tokenizer.end, target_length=max(config.target_length, longest_text),
            source_length=max(config.source_length, positions),
        )  # fmt: skip
    else:
        assert loaded.speech_tokens is not None
        texts = ClipTexts(loaded.require_tokenizer(), loaded.speech_tokens, options.language)
    model = create_model(Speech, config, settings.seed)
    if loaded is not None:
        model.load_state_dict(loaded.model.state_dict())
    sequences = [texts.encode(label)[: config.target_length] for label in clips.labels]
    training, validation, held_out = (clips.list_part(part) for part in PARTS)
    order = ShuffledEpochs(len(training), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = select_part(order.select_indices(step, settings.batch), part, parts)
        rows = select_part(list(range(settings.batch)), part, parts)
        indices = [training[index] for index in chosen]
        features = clips.build_features(indices, config.frame_count)
        if options.masks == "yes":
            features = mask_features(features, sample_masks(settings.batch, settings.seed, step)[rows])
        return texts.create_batch(features, [sequences[index] for index in indices])

    def evaluate(model: Model) -> dict[str, float]:
        parts = (
            texts.create_batch(clips.build_features(part, config.frame_count), [sequences[index] for index in part])
            for part in _split(validation)
        )
        transcripts = transcribe_clips(model, clips, validation, texts)
        exact = compute_exact_match(transcripts, clips.get_texts(validation))
        return {"loss": compute_mean_loss(model, parts), "exact": exact}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        return _build_report(request, model, clips, training, held_out, texts)

    facts = {
        "clips": [len(training), len(validation), len(held_out)],
        "vocabulary": texts.tokenizer.vocabulary,
        "fingerprint": clips.compute_fingerprint(),
    }
    counts = {f"{name} clips": len(clips.list_part(name)) for name in PARTS}
    examples = [{"transcript": clips.labels[index].text} for index in training[:3]]
    return TrainingTask(
        Loaded(model, texts.tokenizer, speech_tokens=texts.speech_tokens), settings, batches, compute_token_loss,
        evaluate, data=facts, build_report=build_report, summary=DataSummary(counts, examples),
        examples=len(training),
    )  # fmt: skip


listen = Recipe(create_listen_task, get_listen_defaults, (Speech,), ListenOptions, stored=CLIPS_FILE)


def _create_texts(request: TrainingRequest, options: ListenOptions, clips: StoredClips) -> ClipTexts:
    """Learn the tokens of a new model from the training transcripts."""
    languages = (options.language,) if request.has_own_files else SPOKEN_LANGUAGES
    codes = [code for code in languages if code is not None]
    transcripts = [clips.labels[index].text for index in clips.list_part("training")]

    def learn() -> Tokenizer:
        tokenizer = Tokenizer.train(transcripts, options.vocabulary, SPECIAL_TOKENS)
        return tokenizer.with_special_tokens([f"<|{code}|>" for code in codes], SPECIAL_TOKENS)

    tokenizer = load_or_create_tokenizer(request, learn)
    return ClipTexts(tokenizer, build_speech_tokens(tokenizer, codes), options.language)


def transcribe_clips(model: Model, clips: StoredClips, indices: Sequence[int], texts: ClipTexts) -> list[str]:
    """Return the model's transcript of each clip."""
    assert isinstance(model, Speech)
    batches = (clips.build_features(batch, model.config.frame_count) for batch in _split(indices))
    return [transcript for features in batches for transcript in texts.transcribe(model, features)]


def _build_report(
    request: TrainingRequest,
    model: Model,
    clips: StoredClips,
    training: Sequence[int],
    held_out: Sequence[int],
    texts: ClipTexts,
) -> dict[str, Any]:
    transcripts = dict(zip(held_out, transcribe_clips(model, clips, held_out, texts), strict=True))
    nearest = find_nearest_texts(clips, training, held_out)
    samples = [
        {"spoken": clips.labels[index].text, "written": transcripts[index], "nearest": nearest[index]}
        for index in held_out[:: max(1, len(held_out) // REPORTED_SAMPLES)]
    ]
    if request.has_own_files:
        spoken, written = clips.get_texts(held_out), list(transcripts.values())
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
    groups: dict[tuple[str, str], list[int]] = {}
    for index in held_out:
        groups.setdefault((clips.labels[index].language, clips.labels[index].kind), []).append(index)
    rows = []
    for (language, kind), indices in groups.items():
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
        words = []
        for recording in list_recordings(name):
            word = recording.text.lower().strip(" .!")
            if word in WORDS.get(recording.language, ()):
                words.append((recording.path, word))
        features = torch.stack([_read_features(path, model) for path, _ in words])
        transcripts = texts.transcribe(model, features)
        scores[name] = compute_exact_match(transcripts, [word for _, word in words])
        rows += [
            {"entry": name, "file": path.name, "spoken": word, "written": transcript}
            for (path, word), transcript in zip(words, transcripts, strict=True)
        ]
    return {"real_recordings_exact": scores, "real_recordings": rows} if rows else {}


def _read_features(path: Path, model: Speech) -> Float[Tensor, "mel frame"]:
    """Return the spectrogram of a recording in one window, without the silence at its ends."""
    window = model.config.frame_count * HOP
    samples = trim_silence(read_audio(path))[:window]
    padded = torch.nn.functional.pad(samples, (0, window - len(samples)))
    return compute_log_mel(padded, model.config.mel_bins)
