"""Count and name the tokens of a text that stand for words or characters outside the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer


def count_unknown(tokenizer: TextTokenizer, text: str, token_ids: Sequence[int]) -> int:
    """Count the unknown tokens of a text.

    In some vocabularies the unknown token also ends texts (GPT-2: <|endoftext|>). It then counts only where it is
    neither written in the text nor added around every text.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        token_ids: Its token ids.
    """
    unknown = tokenizer.unknown
    if unknown is None:
        return 0
    count = list(token_ids).count(unknown)
    if unknown == tokenizer.end:
        added = tokenizer.encode("").count(unknown)
        count -= added + text.count(tokenizer.id_to_token(unknown))
    return max(0, count)


def list_unknown_words(tokenizer: TextTokenizer, text: str) -> tuple[str, ...]:
    """Return the words or characters of a text that the vocabulary does not contain, each once.

    Args:
        tokenizer: The tokenizer. One of transformers does not say where its tokens are in the text; the words with an
            unknown token are then returned.
        text: The text.
    """
    if isinstance(tokenizer, Tokenizer):
        return tuple(tokenizer.list_unknown(text))
    if tokenizer.unknown is None or tokenizer.unknown == tokenizer.end:
        return ()
    words = dict.fromkeys(text.split())
    return tuple(word for word in words if tokenizer.unknown in tokenizer.encode(word, special=False))
