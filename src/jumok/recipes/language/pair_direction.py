"""Arrange the user's pairs of Korean and English texts by direction: Korean to English, English to Korean, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from jumok.data.batches.split import Split, assign_split
from jumok.data.readers.table_header import LANGUAGE_NAMES, normalize_name
from jumok.errors import ArgumentError
from jumok.recipes.shared.text_scores import contains_hangul

TextPair = tuple[str, str]

SAMPLED_PAIRS = 1000  # pairs from which the languages of the columns are detected


def find_korean_column(pairs: Iterable[TextPair], columns: tuple[str | None, str | None]) -> int:
    """Return which column is Korean, 0 or 1: the one with Hangul in most texts, or the one whose name says so.

    >>> find_korean_column([("school", "학교"), ("OK", "확인")], (None, None))
    1
    """
    sample = list(islice(pairs, SAMPLED_PAIRS))
    shares = [sum(contains_hangul(pair[column]) for pair in sample) / len(sample) for column in (0, 1)]
    is_korean = [share >= 0.5 for share in shares]
    if is_korean[0] != is_korean[1]:
        return is_korean.index(True)
    languages = [LANGUAGE_NAMES.get(normalize_name(name or "")) for name in columns]
    if sorted(languages, key=str) == ["en", "ko"]:
        return languages.index("ko")
    raise ArgumentError(
        f"direction needs one Korean and one English column, but {shares[0]:.0%} of the first and {shares[1]:.0%} of "
        "the second texts have Hangul; name the columns by --set source=ko --set target=en, or leave direction out to "
        "translate from the first column to the second"
    )


def check_columns(direction: str, columns: tuple[str | None, str | None], korean: int) -> None:
    """Refuse a direction that contradicts the columns that the user named."""
    is_reversed = direction == ("en-ko", "ko-en")[korean]
    if is_reversed and None not in columns:
        raise ArgumentError(
            f"the source column {columns[0]} is {('Korean', 'English')[korean]}, which contradicts "
            f"direction={direction}; leave direction out, or exchange source and target"
        )


def arrange_pairs(pairs: Iterable[TextPair], direction: str, korean: int, side: Split) -> Iterator[TextPair]:
    """Yield the pairs of one part as (source, target); with both directions, each pair at most twice.

    A tenth of the pairs is held out by a hash of the source. With both directions, a pair is trained on only if neither
    of its texts is held out, so that no held-out source is known from the other direction.

    Args:
        korean: Which of the two columns is Korean, 0 or 1.
    """
    for pair in pairs:
        korean_text, english_text = pair[korean], pair[1 - korean]
        if direction == "both":
            if side == "train" and "held-out" in (assign_split(korean_text), assign_split(english_text)):
                continue
            arranged = [(korean_text, english_text), (english_text, korean_text)]
        else:
            arranged = [(korean_text, english_text) if direction == "ko-en" else (english_text, korean_text)]
        yield from (texts for texts in arranged if assign_split(texts[0]) == side)
