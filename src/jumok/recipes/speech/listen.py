"""Recipe ``listen``: train a small speech model to transcribe spoken words.

The words are digits and everyday words in English and Korean, synthesised by espeak-ng and flite in many voices, with
noise; or the user's own recordings with transcripts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.speech import FRAMES_PER_POSITION, Speech, SpeechConfig
from jumok.recipes.recipe import Defaults, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer
from jumok.recipes.shared.splits import PARTS
from jumok.training import Batch, DataSummary, Settings, Task, compute_token_loss, select_part

from .clips import (
    CLIPS_FILE,
    SPECIAL_TOKENS,
    ClipTexts,
    ListenOptions,
    StoredClips,
    build_speech_tokens,
    load_or_prepare_clips,
    mask_features,
    sample_masks,
)
from .listen_report import build_listen_report, evaluate_clips
from .synthetic_clips import SPOKEN_LANGUAGES

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
) -> Task:
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
        config = _set_sizes(config, clips, texts)
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
        return evaluate_clips(model, clips, validation, texts)

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        return build_listen_report(request, model, clips, (training, held_out), texts)

    facts = {
        "clips": [len(training), len(validation), len(held_out)],
        "vocabulary": texts.tokenizer.vocabulary,
        "fingerprint": clips.compute_fingerprint(),
    }
    counts = {f"{name} clips": len(clips.list_part(name)) for name in PARTS}
    examples = [{"transcript": clips.labels[index].text} for index in training[:3]]
    return Task(
        model, settings, batches, compute_token_loss, evaluate, tokenizer=texts.tokenizer,
        speech_tokens=texts.speech_tokens, data=facts, build_report=build_report, summary=DataSummary(counts, examples),
        examples=len(training),
    )  # fmt: skip


def _create_texts(request: TrainingRequest, options: ListenOptions, clips: StoredClips) -> ClipTexts:
    """Learn the tokens of a new model from the training transcripts."""
    languages = (options.language,) if request.has_own_files else SPOKEN_LANGUAGES
    codes = [code for code in languages if code is not None]
    transcripts = [clips.labels[index].text for index in clips.list_part("training")]

    def learn() -> Tokenizer:
        tokenizer = learn_tokenizer(transcripts, options.vocabulary, SPECIAL_TOKENS)
        return tokenizer.with_special_tokens([f"<|{code}|>" for code in codes], SPECIAL_TOKENS)

    tokenizer = load_or_create_tokenizer(request, learn)
    return ClipTexts(tokenizer, build_speech_tokens(tokenizer, codes), options.language)


def _set_sizes(config: SpeechConfig, clips: StoredClips, texts: ClipTexts) -> SpeechConfig:
    """Return the config with the tokenizer's tokens and with lengths that fit all clips and transcripts."""
    longest_text = max(len(texts.encode(label)) for label in clips.labels)
    positions = -(-clips.longest // FRAMES_PER_POSITION)
    return config.replace(
        vocabulary=texts.tokenizer.vocabulary, pad=texts.tokenizer.pad, start=texts.tokenizer.begin,
        end=texts.tokenizer.end, target_length=max(config.target_length, longest_text),
        source_length=max(config.source_length, positions),
    )  # fmt: skip


listen = Recipe(create_listen_task, get_listen_defaults, (Speech,), ListenOptions, stored=CLIPS_FILE)
