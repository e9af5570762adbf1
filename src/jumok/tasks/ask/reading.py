"""What a reader returns: the text that it wrote from some passages, with the log-probability of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.tokenizers.token_labels import group_words
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.retrieval.search.bm25 import has_paired_characters

MAX_TOKENS_PER_CHARACTER = 1.5  # smollm2 needs 2.5 tokens for a Korean syllable


@dataclass(frozen=True)
class Reading:
    """The text that a reader wrote for a question and passages.

    Args:
        log_probabilities: The natural logarithm of each token's probability, given the tokens before it.
        words: For each token, the word that it belongs to.
        reached_limit: Whether the text stopped because it had the largest number of tokens.
    """

    question: str
    passages: tuple[str, ...]
    token_ids: tuple[int, ...]
    text: str
    log_probabilities: tuple[float, ...]
    words: tuple[str, ...]
    reached_limit: bool = False


@runtime_checkable
class Reader(Protocol):
    """A model that answers a question from passages."""

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can."""
        ...

    def read(self, question: str, passages: Sequence[str], limit: int) -> Reading:
        """Return the most probable text, token by token."""
        ...

    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given, token by token."""
        ...

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage.

        A passage is cut by removing its keys: no token outside of it may attend to it. Everything else stays, also
        the positions.
        """
        ...

    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the attention that it receives while the text is written.

        The weights on the passage's tokens are added up, and averaged over all layers, heads and tokens of the text.
        """
        ...


def explain_split_characters(tokenizer: Tokenizer, question: str) -> str | None:
    """Return why a model cannot read Korean, Chinese or Japanese; None if it can, or if there is none in the question.

    A tokenizer that was trained on a language has a token for most of its syllables; any other one splits each of them
    into bytes.
    """
    characters = "".join(character for character in question if has_paired_characters(character))
    if not characters or len(tokenizer.encode(characters, special=False)) < MAX_TOKENS_PER_CHARACTER * len(characters):
        return None
    return (
        "this reader was not trained on the language of the question: its tokenizer splits each syllable into several "
        "bytes, so the passages are shown without an answer"
    )


def list_words(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Return for each token the word that it belongs to, without spaces and punctuation around it."""
    words = [""] * len(token_ids)
    for word, positions in group_words(tokenizer, token_ids):
        for position in positions:
            words[position] = word.strip().strip(".,;:!?\"'()") or word.strip()
    return tuple(words)


def get_token_log_probabilities(logits: Float[Tensor, "token vocab"], token_ids: Sequence[int]) -> tuple[float, ...]:
    """Return the log-probability of each token.

    Args:
        token_ids: One token for each position.
    """
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    return tuple(logits.float().log_softmax(-1).gather(-1, chosen)[:, 0].tolist())
