"""BM25 (Robertson et al. 1994): rank texts by the words that they share with a question. The library bm25s computes it.

The score of a text is the sum of idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)) over the terms t of the
question, with idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5)), where n of the N texts contain t: the form that Lucene uses
(Kamphuis et al. 2020). A term that occurs twice in the question counts twice.
"""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jumok.errors import ArgumentError, DataError
from jumok.files import read_limited

from .ranking import check_count, select_largest

K1 = 1.5  # how fast further occurrences of a term stop to count
B = 0.75  # how much the scores of long texts are reduced: 0 = not at all, 1 = in proportion to their length
HEADER_FILE = "bm25.json"
MAX_HEADER_BYTES = 2**20
TERMS_VERSION = 2  # increase it when split_terms changes: an index that was built with other terms must be built again
MAX_TERM_LENGTH = 64  # characters; longer terms are encoded files or keys, and are cut

# Korean attaches particles and endings to its words, and Chinese and Japanese are written without spaces. Pairs of
# neighbouring characters find such words without a dictionary: 학교에서 and 학교를 share the pair 학교.
_PAIRED = "가-힣ㄱ-ㆎ一-鿿㐀-䶿ぁ-ヿ"
_RUN = re.compile(rf"[{_PAIRED}]+|[^\W_{_PAIRED}]+(?:'[^\W_{_PAIRED}]+)*")
_PAIRED_CHARACTER = re.compile(f"[{_PAIRED}]")


class BM25Index:
    """A stored BM25 index of texts, which are numbered from 0 in the order in which they were given.

    The index holds terms and scores, not the texts. Its arrays are memory-mapped, so opening it takes little memory.
    """

    def __init__(self, retriever: Any, length: int) -> None:
        self._retriever = retriever  # the index of bm25s; None if the texts contain no terms
        self._length = length

    @classmethod
    def build(cls, folder: str | Path, texts: Iterable[str]) -> BM25Index:
        """Write an index of texts into a folder, and open it.

        The texts are read once, one after the other; their term numbers stay in memory (4 bytes for each term). Files
        of an earlier index in the folder are replaced.
        """
        bm25s = _import_bm25s()
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HEADER_FILE).unlink(missing_ok=True)  # an interrupted build leaves no header, and cannot be opened

        vocabulary = {"": 0}  # bm25s needs at least one term; no text contains this one
        documents: list[array[int]] = []
        for text in texts:
            numbers = (vocabulary.setdefault(term, len(vocabulary)) for term in split_terms(text))
            documents.append(array("i", numbers))

        if len(vocabulary) > 1:
            retriever = bm25s.BM25(k1=K1, b=B, method="lucene")
            retriever.index((documents, vocabulary), create_empty_token=False, show_progress=False)
            retriever.save(folder, show_progress=False)
        header = {"terms_version": TERMS_VERSION, "texts": len(documents), "terms": len(vocabulary) - 1}
        (folder / HEADER_FILE).write_text(json.dumps(header))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> BM25Index:
        """Open the index that ``build`` wrote into a folder."""
        bm25s = _import_bm25s()
        folder = Path(folder)
        try:
            header = json.loads(read_limited(folder / HEADER_FILE, MAX_HEADER_BYTES))
            length = header["texts"]
            if header["terms_version"] != TERMS_VERSION:
                raise DataError(f"the index in {folder} was built by another version; build it again")
            if header["terms"] == 0:
                return cls(None, length)
            retriever = bm25s.BM25.load(folder, mmap=True, allow_pickle=False, backend="numpy", show_progress=False)
            _check_arrays(retriever, length)
        except DataError:
            raise
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the index in {folder} is missing or damaged ({error}); build it again") from error
        return cls(retriever, length)

    def __len__(self) -> int:
        """Return the number of texts."""
        return self._length

    def search(self, question: str, count: int) -> list[tuple[int, float]]:
        """Return the texts with the largest scores as (number, score), best first.

        Texts that share no term with the question are left out, so there may be fewer than ``count``, or none. Of
        equal scores, the smaller number comes first.
        """
        check_count(count)
        return select_largest(self._compute_scores(question), count, above=0.0)

    def score(self, question: str, numbers: Sequence[int]) -> list[float]:
        """Return the scores of some texts; 0 for a text that shares no term with the question."""
        for number in numbers:
            if not 0 <= number < self._length:
                raise ArgumentError(f"there is no text {number}; the index has {self._length:,} texts")
        scores = self._compute_scores(question)
        return [float(scores[number]) for number in numbers]

    def knows(self, question: str) -> bool:
        """Return True if at least one term of a question occurs in the texts."""
        return bool(self._find_terms(question))

    def _find_terms(self, question: str) -> list[int]:
        if self._retriever is None:
            return []
        vocabulary = self._retriever.vocab_dict
        return [vocabulary[term] for term in split_terms(question) if term in vocabulary]

    def _compute_scores(self, question: str) -> np.ndarray:
        terms = self._find_terms(question)
        if not terms:
            return np.zeros(self._length, dtype=np.float32)
        try:
            scores: np.ndarray = self._retriever.get_scores_from_ids(terms)
        except (IndexError, ValueError) as error:
            raise DataError(f"the BM25 index is damaged ({error}); build it again") from error
        if not np.isfinite(scores).all():
            raise DataError("the BM25 index is damaged (a score is not finite); build it again")
        return scores


def _check_arrays(retriever: Any, length: int) -> None:
    """Raise a ValueError if the stored arrays do not fit together."""
    scores, vocabulary = retriever.scores, retriever.vocab_dict
    if scores["num_docs"] != length:
        raise ValueError(f"{scores['num_docs']} texts instead of {length}")
    starts = scores["indptr"]
    if len(starts) != len(vocabulary) + 1 or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError(f"{len(starts) - 1} terms instead of {len(vocabulary)}")
    if not len(scores["data"]) == len(scores["indices"]) == starts[-1]:
        raise ValueError("arrays of different lengths")


def _import_bm25s() -> Any:
    try:
        import bm25s
    except ImportError:
        raise ArgumentError('searching files needs bm25s; install it with: pip install "jumok[retrieval]"') from None
    return bm25s


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
    terms: list[str] = []
    # NFKC: files from macOS store a syllable of Hangul as two or three characters
    normal = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    for match in _RUN.finditer(normal):
        run = match.group()
        if not _PAIRED_CHARACTER.match(run):
            terms.append(run.removesuffix("'s")[:MAX_TERM_LENGTH])
        elif len(run) == 1:
            terms.append(run)
        else:
            terms += (run[start : start + 2] for start in range(len(run) - 1))
    return terms


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
