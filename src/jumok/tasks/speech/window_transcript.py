"""Transcribe one window of audio, without or with edits: the answer that a lens looks at.

Only the most probable tokens are chosen, and no times are written, so that the clean and the edited text differ by
nothing but the edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens import Edit, KnockOut, Lens
from jumok.models.speech import Speech
from jumok.tap import listen
from jumok.threads import use_fastest_threads

from .audio_window import POSITIONS_PER_SECOND
from .token_rules import TokenRules
from .transcribe import detect_language
from .transcript import TranscriptionSettings
from .window_decoding import decode_window

# Positions on either side of a hidden stretch whose convolutions read its frames.
MARGIN = 1

Features = Float[Tensor, "batch mel frame"]


@dataclass(frozen=True)
class WindowTranscript:
    """The transcript of one window.

    Args:
        prompt: The tokens that the decoder reads first.
        token_ids: The tokens of the text, without the end; () if nobody speaks.
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
        features: The spectrogram of the window, a batch of one.
        language: The code of the spoken language; None detects it, or uses the model's only one.

    Raises:
        ArgumentError: If the model does not transcribe audio, or does not know the language.
    """
    model, tokens, tokenizer = loaded.model, loaded.speech_tokens, loaded.require_tokenizer()
    if not isinstance(model, Speech) or tokens is None:
        raise ArgumentError(f"this {loaded.family} model reads {loaded.model.reads}; it cannot transcribe audio")
    settings = TranscriptionSettings(timestamps=False, temperatures=())
    with torch.inference_mode(), use_fastest_threads(model):
        encoded = model.encode(features.to(model.device))
        if tokens.languages and language is None:
            language = detect_language(model, encoded, tokens)
        prompt = tokens.build_prompt(language, timestamps=False)
        rules = TokenRules(tokens, False, model.config.vocabulary, model.device)
        decoded = decode_window(loaded, encoded, prompt, rules, settings)
    text = tokenizer.decode(decoded.token_ids, special=False).strip()
    return WindowTranscript(tuple(prompt), decoded.token_ids, text, language)


def transcribe_with_edits(
    lens: Lens, features: Features, edits: Sequence[Edit] = (), language: str | None = None
) -> WindowTranscript:
    """Return the transcript of one window while edits change the model.

    Args:
        lens: An open lens on what ``jumok.load`` returned for a speech model.
        features: The spectrogram of the window, a batch of one: ``prepare_input(loaded, path).inputs[0]``.
        edits: The edits; they hold for every token. () transcribes without edits.
        language: The code of the spoken language; None detects it under the edits.

    Raises:
        ArgumentError: If the lens has no speech model, or an edit does not fit it.
    """
    loaded = lens.loaded
    if not isinstance(loaded, Loaded) or not isinstance(loaded.model, Speech):
        raise ArgumentError("a transcript needs a lens on a speech model: jumok.Lens(jumok.load(...))")
    features = features.to(loaded.model.device)
    with ExitStack() as stack:
        if edits:
            start = torch.tensor([[loaded.model.start_token]], device=features.device)
            listener = lens.create_edit_listener(edits, lens.find_sites(features, start))
            stack.enter_context(listen(listener))
        return transcribe_window(loaded, features, language)


def hide_audio(model: Speech, start: float, end: float) -> list[KnockOut]:
    """Return edits that hide a stretch of audio: no attention of the encoder or to the encoder may read it.

    The convolutions below the encoder read 30 ms on either side of a position, so one position (20 ms) more is hidden
    on either side. Without it, a neighbour would still carry a trace of the stretch.

    Args:
        model: The speech model.
        start: Where the stretch begins, in seconds from the start of the window.
        end: Where it ends.

    Raises:
        ArgumentError: If the stretch is empty, or not inside the window.

    >>> from jumok.models.speech import SpeechConfig
    >>> sizes = dict(width=4, heads=1, decoder_heads=1, hidden=4, decoder_hidden=4, vocabulary=7, start=1, end=2, pad=2)
    >>> for edit in hide_audio(Speech(SpeechConfig(layers=1, decoder_layers=1, **sizes)), 0.5, 0.56):
    ...     print(edit.layer, edit.key)
    encoder.0.attention (24, 25, 26, 27, 28)
    decoder.0.cross (24, 25, 26, 27, 28)
    """
    length = model.config.source_length
    if not 0 <= start < end <= length / POSITIONS_PER_SECOND:
        raise ArgumentError(
            f"a stretch of audio must lie between 0 and {length / POSITIONS_PER_SECOND:g} seconds, not from {start:g} "
            f"to {end:g}"
        )
    first = max(0, int(start * POSITIONS_PER_SECOND) - MARGIN)
    last = min(length, -int(-end * POSITIONS_PER_SECOND // 1) + MARGIN)
    sites = [f"encoder.{block}.attention" for block in range(model.config.layers)]
    sites += [f"decoder.{block}.cross" for block in range(model.config.decoder_layers)]
    return [KnockOut(layer=site, key=range(first, last)) for site in sites]
