"""Decode one window of audio: greedily or with beams, and with sampling if the text is improbable or repeats itself.

The tokens follow rules: nothing that is not spoken, and times in pairs that never go back.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.generate.beam import BeamSettings, search_scored_beams
from jumok.generate.decoding import CrossAttentionDecoder, StepLogits
from jumok.generate.sampling import Sampling
from jumok.models.speech import Speech

from .audio_window import require_speech
from .transcript import TranscriptionSettings

Encoded = Float[Tensor, "batch source width"]
Features = Float[Tensor, "batch mel frame"]
Scores = Float[Tensor, "batch vocab"]


class TokenRules:
    """The rules of Whisper (Radford et al. 2022): a text with times is segments, <|start|> text <|end|>."""

    def __init__(self, speech_tokens: SpeechTokens, timestamps: bool, vocabulary: int, device: torch.device) -> None:
        self.tokens = speech_tokens
        self.first_time = speech_tokens.first_time if timestamps else None
        never = [*speech_tokens.suppressed]
        if self.first_time is not None and speech_tokens.no_timestamps is not None:
            never.append(speech_tokens.no_timestamps)
        self.never = _build_flags(never, vocabulary, device)
        self.never_first = _build_flags(speech_tokens.suppressed_first, vocabulary, device)

    def restrict(self, scores: Scores, texts: list[list[int]]) -> Scores:
        """Return the scores of the next token of each text, with forbidden tokens at minus infinity."""
        forbidden = self.never.repeat(len(texts), 1)
        for row, text in enumerate(texts):
            if not text:
                forbidden[row] |= self.never_first
            if self.first_time is not None:
                self._forbid_times(forbidden[row], text)
        restricted = scores.masked_fill(forbidden, -torch.inf)  # a copy
        return restricted if self.first_time is None else self._prefer_times(restricted)

    def _forbid_times(self, forbidden: Tensor, text: list[int]) -> None:
        """Mark the tokens that would make the times invalid."""
        first = self.first_time
        assert first is not None
        if not text:  # a text begins with a time
            forbidden[:first] = True
            if self.tokens.last_first_time is not None:
                forbidden[first + self.tokens.last_first_time + 1 :] = True
            return

        ends_with_time = text[-1] >= first
        has_start = len(text) < 2 or text[-2] >= first  # the time at the end begins a segment
        if ends_with_time and has_start:
            forbidden[first:] = True  # a segment is not empty
        elif ends_with_time:
            forbidden[: self.tokens.end] = True  # after a segment comes another one, or the end

        times = [token for token in text if token >= first]
        if times:
            # The end of a segment may be the start of the next, but its start is not its end.
            earliest = times[-1] if ends_with_time and not has_start else times[-1] + 1
            forbidden[first:earliest] = True

    def _prefer_times(self, scores: Scores) -> Scores:
        """Forbid text, in place, where the times together are more probable than the most probable token of text."""
        first = self.first_time
        assert first is not None
        time = scores[:, first:].float().logsumexp(-1)  # softmax would subtract the same number from both sides
        text = scores[:, :first].amax(-1)
        scores[:, :first].masked_fill_((time > text)[:, None], -torch.inf)
        return scores


def _build_flags(token_ids: list[int] | tuple[int, ...], vocabulary: int, device: torch.device) -> Tensor:
    flags = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    flags[[token_id for token_id in token_ids if token_id < vocabulary]] = True
    return flags


@dataclass(frozen=True)
class WindowText:
    """The text of one window."""

    token_ids: tuple[int, ...]  # the new tokens, with times, without the end
    log_probability: float  # the average over the tokens, including the end
    compression: float  # the factor by which zlib compresses the text
    no_speech: float | None  # the model's probability that there is no speech, if it gives one
    temperature: float  # at which it was decoded; 0 for the most probable tokens
    is_silent: bool = False


class SpeechDecoder(CrossAttentionDecoder):
    """Decodes one window. The decoder first reads a prompt of several tokens, and follows the rules of times."""

    def __init__(self, model: Speech, encoded: Encoded, prompt: Sequence[int], rules: TokenRules) -> None:
        self.limit = model.context_length - len(prompt)
        super().__init__(model, encoded, self.limit, prompt=prompt, is_encoded=True)
        self.rules = rules

    def restrict(self, scores: Tensor, texts: list[list[int]]) -> Tensor:
        return self.rules.restrict(scores, texts)


def decode_window(
    loaded: Loaded, encoded: Encoded, prompt: Sequence[int], rules: TokenRules, settings: TranscriptionSettings
) -> WindowText:
    """Return the text of a window; the decoder reads the prompt first."""
    (model, _), tokenizer = require_speech(loaded), loaded.require_tokenizer()
    generator = torch.Generator(encoded.device).manual_seed(settings.seed)
    attempts: list[WindowText] = []
    for temperature in (0.0, *settings.temperatures):
        decoder = SpeechDecoder(model, encoded, prompt, rules)
        logits = decoder.prefill()
        no_speech = None  # the probability after the first token of the prompt, where training taught it
        if rules.tokens.no_speech is not None:
            no_speech = float(logits[0, 0].float().softmax(-1)[rules.tokens.no_speech])
        if temperature == 0.0 and settings.beams > 1:
            beams = BeamSettings(settings.beams, decoder.limit, 1.0, frozenset({model.config.end}))
            ((log_probability, best_ids),) = search_scored_beams(decoder, 1, beams, logits)
            token_ids = [token for token in best_ids if token != model.end_token]
        else:
            token_ids, log_probability = _sample(decoder, logits, temperature, generator, model)
        content = tokenizer.decode(token_ids, special=False).strip().encode()
        compression = len(content) / len(zlib.compress(content)) if content else 0.0
        text = WindowText(tuple(token_ids), log_probability, compression, no_speech, temperature)
        if _is_silent(text, settings):
            return replace(text, token_ids=(), is_silent=True)
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


def detect_language(model: Speech, encoded: Tensor, speech_tokens: SpeechTokens) -> str:
    """Return the code of the language that a model hears."""
    start = torch.tensor([[speech_tokens.start]], device=encoded.device)
    logits = model.decode(start, encoded).logits
    assert logits is not None
    codes = list(speech_tokens.languages)
    scores = logits[0, -1, [speech_tokens.languages[code] for code in codes]]
    return codes[int(scores.argmax())]


@dataclass(frozen=True)
class WindowTranscript:
    """The transcript of one window."""

    prompt: tuple[int, ...]  # the tokens that the decoder reads first
    token_ids: tuple[int, ...]  # of the text, without the end; () if there is no speech
    text: str  # without spaces around it
    language: str | None  # its code; None if the model has only one


def transcribe_window(loaded: Loaded, features: Features, language: str | None = None) -> WindowTranscript:
    """Return the transcript of one window: the answer that a lens looks at.

    Only the most probable tokens are chosen, and no times are written, so that a clean and an edited transcript differ
    by nothing but the edits. Without a language it is detected, unless the model has only one.
    """
    (model, tokens), tokenizer = require_speech(loaded), loaded.require_tokenizer()
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
