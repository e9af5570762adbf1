"""Decode one window of audio: greedily or with beams, and with sampling if the text is improbable or repeats itself."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.generate.beam import BeamSettings, search_scored_beams
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.incremental_decoder import StepLogits
from jumok.generate.sampling import Sampling
from jumok.models.speech import Speech

from .token_rules import TokenRules
from .transcript import TranscriptionSettings

Encoded = Float[Tensor, "batch source width"]


@dataclass(frozen=True)
class WindowText:
    """The text of one window.

    Args:
        token_ids: The new tokens, with times, without the end.
        log_probability: The average log-probability of the tokens, including the end.
        compression: The factor by which zlib compresses the text.
        no_speech: The model's probability that there is no speech; None if the model gives none.
        temperature: The temperature at which it was decoded; 0 for the most probable tokens.
    """

    token_ids: tuple[int, ...]
    log_probability: float
    compression: float
    no_speech: float | None
    temperature: float
    is_silent: bool = False


class SpeechDecoder(CrossAttentionDecoder):
    """Decodes one window. The decoder first reads a prompt of several tokens, and follows the rules of times.

    Args:
        rules: Which tokens may come next.
    """

    def __init__(self, model: Speech, encoded: Encoded, prompt: Sequence[int], rules: TokenRules) -> None:
        self.limit = model.context_length - len(prompt)
        super().__init__(model, encoded, self.limit, prompt=prompt, is_encoded=True)
        self.rules = rules

    def restrict(self, scores: Tensor, texts: list[list[int]]) -> Tensor:
        """Return the scores with forbidden tokens at minus infinity; see ``TokenRules.restrict``."""
        return self.rules.restrict(scores, texts)


def decode_window(
    loaded: Loaded, encoded: Encoded, prompt: Sequence[int], rules: TokenRules, settings: TranscriptionSettings
) -> WindowText:
    """Return the text of a window.

    Args:
        loaded: A speech model with its tokenizer.
        prompt: The tokens that the decoder reads first.
        rules: Which tokens may come next.
    """
    model, tokenizer = loaded.model, loaded.require_tokenizer()
    assert isinstance(model, Speech)
    generator = torch.Generator(encoded.device).manual_seed(settings.seed)
    attempts: list[WindowText] = []
    for temperature in (0.0, *settings.temperatures):
        decoder = SpeechDecoder(model, encoded, prompt, rules)
        logits = decoder.prefill()
        no_speech = _compute_no_speech(logits, rules.tokens)
        if temperature == 0.0 and settings.beams > 1:
            token_ids, log_probability = _search_beams(decoder, logits, settings.beams, model)
        else:
            token_ids, log_probability = _sample(decoder, logits, temperature, generator, model)
        compression = _compute_compression(token_ids, tokenizer)
        text = WindowText(tuple(token_ids), log_probability, compression, no_speech, temperature)
        if _is_silent(text, settings):
            return WindowText((), log_probability, compression, no_speech, temperature, is_silent=True)
        if not _should_try_again(text, settings):
            return text
        attempts.append(text)
    # No attempt passes, for example if the audio itself repeats a sentence: the most probable text is the best guess.
    return max(attempts, key=lambda attempt: attempt.log_probability)


def _sample(
    decoder: SpeechDecoder, logits: StepLogits, temperature: float, generator: torch.Generator, model: Speech
) -> tuple[list[int], float]:
    """Return new tokens without the end, and the average log-probability of all of them."""
    sampling = Sampling(temperature=temperature)
    token_ids: list[int] = []
    total = 0.0
    for count in range(1, decoder.limit + 1):
        scores = decoder.restrict(logits[:, -1], [token_ids])
        token = int(sampling.choose(scores, [token_ids], generator))
        total += float(scores[0, token] - scores[0].float().logsumexp(-1))
        if token == model.end_token:
            return token_ids, total / count
        token_ids.append(token)
        if count < decoder.limit:
            logits = decoder.step(torch.tensor([[token]], device=scores.device))
    return token_ids, total / max(len(token_ids), 1)


def _search_beams(decoder: SpeechDecoder, logits: StepLogits, beams: int, model: Speech) -> tuple[list[int], float]:
    settings = BeamSettings(beams, decoder.limit, 1.0, frozenset({model.end_token}))
    ((score, token_ids),) = search_scored_beams(decoder, 1, settings, logits)
    return [token for token in token_ids if token != model.end_token], score


def _compute_no_speech(logits: StepLogits, tokens: SpeechTokens) -> float | None:
    """Return the probability of "no speech" after the first token of the prompt, where training taught it."""
    if tokens.no_speech is None:
        return None
    return float(logits[0, 0].float().softmax(-1)[tokens.no_speech])


def _compute_compression(token_ids: list[int], tokenizer: Tokenizer) -> float:
    text = tokenizer.decode(token_ids, special=False).strip().encode()
    return len(text) / len(zlib.compress(text)) if text else 0.0


def _is_improbable(text: WindowText, settings: TranscriptionSettings) -> bool:
    return settings.least_log_probability is not None and text.log_probability < settings.least_log_probability


def _is_silent(text: WindowText, settings: TranscriptionSettings) -> bool:
    if text.no_speech is None:
        return False
    if settings.certain_no_speech is not None and text.no_speech > settings.certain_no_speech:
        return True
    if settings.greatest_no_speech is None:
        return False
    return text.no_speech > settings.greatest_no_speech and _is_improbable(text, settings)


def _should_try_again(text: WindowText, settings: TranscriptionSettings) -> bool:
    repeats = settings.greatest_compression is not None and text.compression > settings.greatest_compression
    return repeats or _is_improbable(text, settings)
