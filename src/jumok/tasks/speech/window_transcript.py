"""Transcribe one window of audio: the answer that a lens looks at.

Only the most probable tokens are chosen, and no times are written, so that a clean and an edited transcript differ by
nothing but the edits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.models.speech import Speech

from .token_rules import TokenRules
from .transcribe import detect_language
from .transcript import TranscriptionSettings
from .window_decoding import decode_window

Features = Float[Tensor, "batch mel frame"]


@dataclass(frozen=True)
class WindowTranscript:
    """The transcript of one window.

    Args:
        prompt: The tokens that the decoder reads first.
        token_ids: The tokens of the text, without the end; () if there is no speech.
        text: The text, without spaces around it.
        language: The code of its language; None if the model has only one.
    """

    prompt: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    language: str | None


def transcribe_window(loaded: Loaded, features: Features, language: str | None = None) -> WindowTranscript:
    """Return the transcript of one window.

    Args:
        loaded: A speech model with its tokenizer.
        language: The code of the spoken language; None detects it, or uses the model's only one.

    Raises:
        ArgumentError: If the model does not transcribe audio, or does not know the language.
    """
    model, tokens, tokenizer = loaded.model, loaded.speech_tokens, loaded.require_tokenizer()
    if not isinstance(model, Speech) or tokens is None:
        raise ArgumentError(f"this {loaded.family} model reads {loaded.model.reads}; it cannot transcribe audio")
    settings = TranscriptionSettings(timestamps=False, temperatures=())
    with torch.inference_mode():
        encoded = model.encode(features.to(model.device))
        if tokens.languages and language is None:
            language = detect_language(model, encoded, tokens)
        prompt = tokens.build_prompt(language, timestamps=False)
        rules = TokenRules(tokens, False, model.config.vocabulary, model.device)
        decoded = decode_window(loaded, encoded, prompt, rules, settings)
    text = tokenizer.decode(decoded.token_ids, special=False).strip()
    return WindowTranscript(tuple(prompt), decoded.token_ids, text, language)
