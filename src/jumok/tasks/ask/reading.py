"""A reader answers a question from passages; a reading is what it wrote, with the log-probability of each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import group_words
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.retrieval.search.bm25 import has_paired_characters

MAX_TOKENS_PER_CHARACTER = 1.5  # smollm2 needs 2.5 tokens for a Korean syllable


@dataclass(frozen=True)
class Reading:
    """The text that a reader wrote for a question and passages."""

    question: str
    passages: tuple[str, ...]
    token_ids: tuple[int, ...]
    text: str
    log_probabilities: tuple[float, ...]  # of each token, given the tokens before it; natural logarithms
    words: tuple[str, ...]  # for each token, the word that it belongs to
    reached_limit: bool = False  # the text stopped because it had the largest number of tokens


class Reader(ABC):
    """A model that answers a question from passages.

    A passage is cut by removing its keys: no token outside of it may attend to it. Everything else stays, also the
    positions.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.tokenizer = loaded.require_tokenizer()

    @abstractmethod
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        """Return the most probable text of at most ``limit`` tokens; the passages with the indices ``cut`` are cut."""

    @abstractmethod
    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given, of at least one token."""

    @abstractmethod
    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage."""

    @abstractmethod
    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the weights on its tokens while the text is written, added up, and averaged over
        layers, heads and tokens of the text."""

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can.

        A tokenizer that was trained on Korean, Chinese or Japanese has a token for most of its syllables; any other one
        splits each of them into bytes.
        """
        characters = "".join(character for character in question if has_paired_characters(character))
        limit = MAX_TOKENS_PER_CHARACTER * len(characters)
        if not characters or len(self.tokenizer.encode(characters, special=False)) < limit:
            return None
        return (
            "this reader was not trained on the language of the question: its tokenizer splits each syllable into "
            "several bytes, so the passages are shown without an answer"
        )

    def _write(
        self, question: str, passages: Sequence[str], limit: int, logits: Tensor, step: Callable[[list[int]], Tensor]
    ) -> Reading:
        """Choose the most probable token again and again.

        Args:
            logits: The logits of the first token, [1, vocab].
            step: Takes the tokens so far, reads the last one, and returns the logits of the next one, [1, vocab].
        """
        tokens: list[int] = []
        log_probabilities: list[float] = []
        while True:
            token = int(logits[-1].argmax())
            has_ended = self._is_end(token, tokens)
            if not has_ended:
                tokens.append(token)
                log_probabilities += get_token_log_probabilities(logits, [token])
            if has_ended or len(tokens) == limit:
                return self._build_reading(question, passages, tokens, log_probabilities, not has_ended)
            logits = step(tokens)

    @abstractmethod
    def _is_end(self, token: int, tokens: list[int]) -> bool:
        """Return True if a token ends the text that consists of ``tokens``."""

    def _build_reading(
        self,
        question: str,
        passages: Sequence[str],
        token_ids: Sequence[int],
        log_probabilities: Sequence[float],
        reached_limit: bool = False,
    ) -> Reading:
        text = self.tokenizer.decode(token_ids).strip()
        words = list_words(self.tokenizer, token_ids)
        scores = tuple(log_probabilities)
        return Reading(question, tuple(passages), tuple(token_ids), text, scores, words, reached_limit)


def list_words(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Return for each token the word that it belongs to, without spaces and punctuation around it."""
    words = [""] * len(token_ids)
    for word, positions in group_words(tokenizer, token_ids):
        for position in positions:
            words[position] = word.strip().strip(".,;:!?\"'()") or word.strip()
    return tuple(words)


def get_token_log_probabilities(logits: Float[Tensor, "token vocab"], token_ids: Sequence[int]) -> tuple[float, ...]:
    """Return the log-probability of each token; there is one token for each position."""
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    return tuple(logits.float().log_softmax(-1).gather(-1, chosen)[:, 0].tolist())
