"""The interface of a tokenizer that the lens needs: encode and decode text, and name tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TextTokenizer(Protocol):
    """What the lens, its labels and its metrics need of a tokenizer. ``Tokenizer`` implements it, and so does the
    adapter for tokenizers of transformers."""

    # ids of special tokens, or None
    unknown: int | None  # for characters that are not in the vocabulary
    mask: int | None  # which a model replaces with its prediction
    end: int | None  # ends a text

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """Return the text of token ids."""

    def contains_id(self, token_id: int) -> bool:
        """Return True if the vocabulary contains a token id."""

    def id_to_token(self, token_id: int) -> str:
        """Return a token as it is written in the vocabulary."""

    def id_to_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of a token; None if it does not stand for bytes."""
