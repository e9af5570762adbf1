"""Count and name the tokens of a text that stand for words or characters outside the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, get_reader_language

UNKNOWN_SHOWN = 10


def count_unknown(tokenizer: TextTokenizer, text: str, token_ids: Sequence[int]) -> int:
    """Count the unknown tokens of a text.

    In some vocabularies the unknown token also ends texts (GPT-2: <|endoftext|>). It then counts only where it is
    neither written in the text nor added around every text.
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
    """
    if isinstance(tokenizer, Tokenizer):
        return tuple(tokenizer.list_unknown(text))
    if tokenizer.unknown is None or tokenizer.unknown == tokenizer.end:
        return ()
    words = dict.fromkeys(text.split())
    return tuple(word for word in words if tokenizer.unknown in tokenizer.encode(word, special=False))


def format_unknown_words(words: Sequence[str]) -> str:
    """Return the first unknown words of a text as a list that a terminal can print."""
    named = ", ".join([*words[:UNKNOWN_SHOWN], *(["..."] if len(words) > UNKNOWN_SHOWN else [])])
    # a text may contain escape sequences, which a terminal would obey
    return "".join(letter if letter.isprintable() else " " for letter in named)


def describe_unknown_tokens(unknown: int, tokens: int, words: Sequence[str]) -> str:
    """Return a sentence about a text of which a model knows only a part, in the reader's language."""
    named = format_unknown_words(words)
    if get_reader_language() == "ko":
        return (
            f"토큰 {tokens:,}개 가운데 {unknown:,}개는 이 모델의 토크나이저가 모르는 것입니다: {named}. "
            "이 부분의 답은 추측입니다"
        )
    return (
        f"{unknown:,} of {tokens:,} tokens are unknown to this model's tokenizer: {named}; where they are, its answer "
        "is a guess"
    )


def require_known_words(tokenizer: TextTokenizer, text: str, unknown: int) -> None:
    """Refuse a text of which a model knows nothing: its answer would have nothing to do with the text."""
    if not unknown or unknown < len(tokenizer.encode(text, special=False)):
        return
    named = format_unknown_words(list_unknown_words(tokenizer, text))
    if get_reader_language() == "ko":
        raise ArgumentError(f"이 모델의 어휘에는 이 글의 단어가 하나도 없습니다: {named}. 모델이 학습한 단어로 쓰세요")
    raise ArgumentError(
        f"this model's vocabulary contains no word of this text: {named}; write it with words that the model was "
        "trained on"
    )
