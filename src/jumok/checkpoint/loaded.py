"""The result of loading a model, and the validation of its class labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import repr as abbreviate  # limits depth and length

from jumok.data.images.preparation import Preparation
from jumok.data.tokenizers.speech_tokens import GENERATION_FILE, SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, CheckpointError, describe_type
from jumok.fields import JSONValue
from jumok.models import Config, Model
from jumok.models.speech import SpeechConfig

MAX_LABEL_LENGTH = 1000  # characters


@dataclass(frozen=True)
class Loaded:
    """A model and the files that belong to it."""

    model: Model
    tokenizer: Tokenizer | None = None
    preparation: Preparation | None = None  # how images are resized and normalised, if the model reads images
    labels: Sequence[str] | None = None  # the names of the classes, in order
    speech_tokens: SpeechTokens | None = None  # of a model that transcribes audio

    @property
    def config(self) -> Config:
        """The config of the model."""
        return self.model.config

    @property
    def family(self) -> str:
        """The name of the model's family."""
        return self.model.family

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer."""
        if self.tokenizer is None:
            raise ArgumentError(
                "this model has no tokenizer, so it cannot read or write text; pass token ids to the model from "
                "Python, or save it with a tokenizer"
            )
        return self.tokenizer


def check_vocabulary(tokenizer: Tokenizer, model: Model) -> None:
    """Raise an error if a tokenizer belongs to a model with a far larger vocabulary.

    A few tokens more than the model has embeddings for are common: fine-tuned models add tokens that are not used.
    """
    embeddings = getattr(model.config, "vocabulary", None)
    if isinstance(embeddings, int) and tokenizer.vocabulary > 2 * embeddings + 1000:
        raise CheckpointError(
            f"the tokenizer has ids up to {tokenizer.vocabulary - 1:,}, but the model has {embeddings:,} tokens; it "
            "belongs to another model"
        )


def check_speech_tokens(speech_tokens: SpeechTokens, model: Model) -> None:
    """Raise an error if special tokens do not belong to a model."""
    config = model.config
    assert isinstance(config, SpeechConfig)
    token_ids = (
        speech_tokens.start,
        speech_tokens.end,
        speech_tokens.transcribe,
        speech_tokens.translate,
        speech_tokens.no_timestamps,
        speech_tokens.previous,
        *speech_tokens.languages.values(),
    )
    # suppressed tokens may be outside the vocabulary: transformers writes default ids for small models too
    highest = max(token_id for token_id in token_ids if token_id is not None)
    if highest >= config.vocabulary:
        raise CheckpointError(
            f"{GENERATION_FILE} names token {highest:,}, but the model has {config.vocabulary:,} tokens"
        )
    for block, head in (*speech_tokens.alignment_heads, *speech_tokens.timing_heads):
        if block >= config.decoder_layers or head >= config.decoder_heads:
            raise CheckpointError(
                f"{GENERATION_FILE} names head {head} of block {block}, but the decoder has {config.decoder_layers} "
                f"blocks of {config.decoder_heads} heads"
            )


def check_labels(labels: object, model: Model) -> tuple[str, ...]:
    """Return the class labels as a tuple, after validating them."""
    if model.class_count is None:
        raise CheckpointError(f"this {model.family} model has no classes to label")
    if isinstance(labels, str) or not isinstance(labels, Iterable) or isinstance(labels, dict):
        raise CheckpointError(f"labels must be a list of names, one per class, not {describe_type(labels)}")
    names = tuple(labels)
    if len(names) != model.class_count:
        raise CheckpointError(f"there are {len(names):,} labels, but the model has {model.class_count:,} classes")
    for index, name in enumerate(names):
        # a lone surrogate: JSON can escape it, but UTF-8 cannot encode it
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_LABEL_LENGTH or re.search("[\ud800-\udfff]", name):
            raise CheckpointError(
                f"label {index} must be text of 1 to {MAX_LABEL_LENGTH} characters, not {abbreviate(name)}"
            )
    return names


def parse_id2label(id2label: JSONValue, model: Model) -> tuple[str, ...] | None:
    """Return the class labels in a Hugging Face config; None if it has none, or only placeholders."""
    if id2label is None or model.class_count is None:  # transformers writes two labels for models without classes too
        return None
    if not isinstance(id2label, dict):
        raise CheckpointError(
            f"id2label in config.json must be an object that names every class, not {describe_type(id2label)}"
        )
    ids = [str(index) for index in range(len(id2label))]
    missing = next((key for key in ids if key not in id2label), None)
    if missing is not None:
        raise CheckpointError(f"id2label in config.json names {len(ids):,} classes, but none has the id {missing}")
    names = check_labels([id2label[key] for key in ids], model)
    placeholders = tuple(f"LABEL_{index}" for index in range(len(names)))
    return None if names == placeholders else names
