"""Group the tokens of a transcript into spoken words. Punctuation belongs to the word that it follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import REPLACEMENT, group_words

# languages that write no spaces between words: here every character is a word
WITHOUT_SPACES = frozenset({"zh", "yue", "ja", "th", "lo", "my"})


class WordTokens(NamedTuple):
    """The tokens of a word.

    Attributes:
        text: The word with its punctuation, without spaces around it.
        spoken_stop: The position after its last token that is not punctuation.
        stop: The position after its last token.
    """

    text: str
    start: int
    spoken_stop: int
    stop: int


def group_spoken_words(tokenizer: TextTokenizer, ids: Sequence[int], language: str | None) -> list[WordTokens]:
    """Return the words of a text. Together they have all of its tokens.

    Args:
        language: The code of the language; None for English.

    >>> from jumok.data.tokenizers.tokenizer import Tokenizer
    >>> for word in group_spoken_words(Tokenizer.for_bytes(), list(b"Yes - no."), None):
    ...     print(tuple(word))
    ('Yes -', 0, 3, 5)
    ('no.', 5, 8, 9)
    """
    is_split = language in WITHOUT_SPACES
    groups = _group_characters(tokenizer, ids) if is_split else [span for _, span in group_words(tokenizer, ids)]
    spans: list[range] = []
    for span in groups:
        is_word = _is_spoken(_decode(tokenizer, ids, span))
        follows_word = bool(spans) and _is_spoken(_decode(tokenizer, ids, spans[-1]))
        if spans and not (is_word and follows_word):  # punctuation joins the word before, or the first word
            spans[-1] = range(spans[-1].start, span.stop)
        else:
            spans.append(span)
    return [_build_word(tokenizer, ids, span) for span in spans]


def _build_word(tokenizer: TextTokenizer, ids: Sequence[int], span: range) -> WordTokens:
    spoken = [position for position in span if _is_spoken(tokenizer.decode([ids[position]]))]
    spoken_stop = spoken[-1] + 1 if spoken else span.stop
    text = _decode(tokenizer, ids, span).strip()
    if REPLACEMENT in text:  # an untrained model writes bytes that are no characters
        text = text.replace(REPLACEMENT, "") or "?"
    return WordTokens(text, span.start, spoken_stop, span.stop)


def _group_characters(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[range]:
    """Return the shortest groups of tokens that form complete characters."""
    spans: list[range] = []
    start = 0
    for stop in range(1, len(ids) + 1):
        if stop == len(ids) or REPLACEMENT not in _decode(tokenizer, ids, range(start, stop)):
            spans.append(range(start, stop))
            start = stop
    return spans


def _decode(tokenizer: TextTokenizer, ids: Sequence[int], span: range) -> str:
    return tokenizer.decode([ids[position] for position in span], special=False)


def _is_spoken(text: str) -> bool:
    """Return True if a text contains a letter, a digit, or a part of a character that needs several tokens."""
    return any(character.isalnum() or character == REPLACEMENT for character in text)
