"""Count the tokens of a text that stand for characters outside the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.data.tokenizers.text_tokenizer import TextTokenizer


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
