"""Transcripts as tokens: what the decoder of a speech model reads and predicts, and how it transcribes clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jumok.data.batches.batch_order import pad_sequences
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.generate import greedy
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.token_stream import decode_steps
from jumok.models import Model
from jumok.models.speech import Speech
from jumok.training import IGNORE_INDEX, Batch

from .stored_clips import ClipLabel, Features

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<|startoftranscript|>", "end": "<|endoftext|>"}


def build_speech_tokens(tokenizer: Tokenizer, languages: Sequence[str]) -> SpeechTokens:
    """Return the special tokens of a new model, which writes no times."""
    assert tokenizer.begin is not None and tokenizer.end is not None
    ids = {code: tokenizer.encode(f"<|{code}|>", special=False)[0] for code in languages}
    return SpeechTokens(tokenizer.begin, tokenizer.end, ids)


@dataclass(frozen=True)
class ClipTexts:
    """The tokens of transcripts.

    Attributes:
        language: The language of all clips; None = each clip has its own, which the model has to hear, or the model
            has no tokens of languages.
    """

    tokenizer: Tokenizer
    speech_tokens: SpeechTokens
    language: str | None = None

    def encode(self, label: ClipLabel) -> list[int]:
        """Return the prompt, the transcript and the end."""
        prompt = self.speech_tokens.build_prompt(label.language or None, timestamps=False)
        return [*prompt, *self.tokenizer.encode(label.text, special=False), self.speech_tokens.end]

    def create_batch(self, features: Features, sequences: Sequence[list[int]]) -> Batch:
        """Return a batch for training: the decoder predicts the language, the transcript and the end.

        Clips without speech have no language: only their end is to be predicted.
        """
        target, _ = pad_sequences([sequence[:-1] for sequence in sequences], self.speech_tokens.end)
        rows = [self._mark_silence(sequence) for sequence in sequences]
        answers, _ = pad_sequences(rows, IGNORE_INDEX)
        return Batch({"features": features, "target": target}, answers, int((answers != IGNORE_INDEX).sum()))

    def _mark_silence(self, sequence: list[int]) -> list[int]:
        """Return the tokens to predict."""
        special = {self.speech_tokens.start, *self.speech_tokens.languages.values()}
        is_silent = set(sequence[:-1]) <= special
        return [IGNORE_INDEX] * (len(sequence) - 2) + sequence[-1:] if is_silent else sequence[1:]

    @torch.inference_mode()
    def transcribe(self, model: Model, features: Features) -> list[str]:
        """Transcribe clips by greedy decoding; the model hears the language itself, unless all clips have one."""
        assert isinstance(model, Speech)
        prompt = [self.speech_tokens.start]
        if self.language is not None or not self.speech_tokens.languages:
            prompt = self.speech_tokens.build_prompt(self.language, timestamps=False)
        limit, ends = model.context_length - len(prompt), frozenset({self.speech_tokens.end})
        decoder = CrossAttentionDecoder(model, features.to(model.device), limit, prompt=prompt)
        texts: list[list[int]] = [[] for _ in features]
        for step in decode_steps(decoder, [[] for _ in features], limit, greedy, ends):
            for text, token in zip(texts, step, strict=True):
                text += [] if token is None else [token]
        return [self.tokenizer.decode(text, special=False).strip() for text in texts]
