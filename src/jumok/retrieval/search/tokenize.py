"""Split a text into the terms that BM25 counts: words, and pairs of characters in Korean, Chinese and Japanese."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

TERMS_VERSION = 2  # increase it when split_terms changes: an index that was built with other terms must be built again
MAX_TERM_LENGTH = 64  # characters; longer terms are encoded files or keys, and are cut

# Korean attaches particles and endings to its words, and Chinese and Japanese are written without spaces. Pairs of
# neighbouring characters find such words without a dictionary: 학교에서 and 학교를 share the pair 학교.
_PAIRED = "가-힣ㄱ-ㆎ一-鿿㐀-䶿ぁ-ヿ"
_RUN = re.compile(rf"[{_PAIRED}]+|[^\W_{_PAIRED}]+(?:'[^\W_{_PAIRED}]+)*")
_PAIRED_CHARACTER = re.compile(f"[{_PAIRED}]")


def split_terms(text: str) -> list[str]:
    """Return the terms of a text in their order, with repetitions.

    A term is a word in lower case without "'s", or two neighbouring characters of a run of Hangul, Chinese characters
    or kana; a run of one character is a term of its own. Words are not stemmed, and no words are left out: neither
    found more passages (bench/retrieval/recall.py).

    >>> split_terms("The whale's jaws, 1851")
    ['the', 'whale', 'jaws', '1851']
    >>> split_terms("법 개정안")
    ['법', '개정', '정안']
    """
    return list(_iterate_terms(text))


def has_paired_characters(text: str) -> bool:
    """Return True if a text contains Hangul, Chinese characters or kana.

    >>> has_paired_characters("AI 법"), has_paired_characters("law")
    (True, False)
    """
    return _PAIRED_CHARACTER.search(unicodedata.normalize("NFKC", text)) is not None


def has_latin_letters(text: str) -> bool:
    """Return True if at least half of the letters of a text are Latin, or if it has no letters.

    >>> has_latin_letters("Où est Ahab?"), has_latin_letters("Где кит?")
    (True, False)
    """
    letters = [letter for letter in unicodedata.normalize("NFKC", text) if letter.isalpha()]
    latin = sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
    return 2 * latin >= len(letters)


def _iterate_terms(text: str) -> Iterator[str]:
    # NFKC: files from macOS store a syllable of Hangul as two or three characters
    normal = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    for match in _RUN.finditer(normal):
        run = match.group()
        if not _PAIRED_CHARACTER.match(run):
            yield run.removesuffix("'s")[:MAX_TERM_LENGTH]
        elif len(run) == 1:
            yield run
        else:
            yield from (run[start : start + 2] for start in range(len(run) - 1))
