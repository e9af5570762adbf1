"""Decide whether an answer is supported by a passage, or whether nothing in the index fits the question.

The decision reads the scores of the search, the measured effect of cutting the passage, and whether the passage
contains the numbers and names of the answer: an answer can depend on a passage that it contradicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jumok.retrieval import Hit
from jumok.retrieval.search.bm25 import split_terms

if TYPE_CHECKING:
    from .answer import CutPassage

FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "are", "at", "be", "by", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her"}
    | {"his", "how", "i", "in", "is", "it", "its", "many", "much", "of", "on", "or", "she", "that", "the", "their"}
    | {"there", "they", "this", "to", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why"}
    | {"will", "with"}
)
Verdict = Literal["supported", "not supported", "nothing fits"]


@dataclass(frozen=True)
class VerdictRule:
    """The thresholds of a verdict. They were chosen on questions that are not among those of the reported error rates:
    ``bench/retrieval/verdicts.py``.

    Args:
        word_change: An answer depends on a passage if cutting it changes the log-probability of one of the answer's
            words by this much or more, in nats: -3 means 20 times less probable.
        unrelated_cosine: With ``cosine_spread``, the cosine that the best of n passages must exceed. Among more
            passages an unrelated one is more similar by chance: the largest of n random numbers grows as sqrt(2 log n).
        subject_margin: By how much the best cosine must exceed that limit if an answer without support is to be shown,
            marked "not supported": the files are about the subject. Otherwise nothing fits.
        shared_words: Without vectors: below this share of the question's words in the best passage, nothing fits.
    """

    word_change: float = -3.0
    unrelated_cosine: float = 0.04
    cosine_spread: float = 0.09
    subject_margin: float = 0.1
    shared_words: float = 0.4

    def compute_cosine_limit(self, passages: int) -> float:
        """Return the cosine that 9 of 10 unrelated questions do not reach with any passage of an index.

        >>> [round(VerdictRule().compute_cosine_limit(passages), 2) for passages in (3, 300, 30_000)]
        [0.17, 0.34, 0.45]
        """
        return self.unrelated_cosine + self.cosine_spread * math.sqrt(2 * math.log(max(passages, 1)))

    def rejects_search(self, question: str, hits: Sequence[Hit], passages: int) -> bool:
        """Return whether the search alone shows that nothing fits, so that nothing needs to be read."""
        if not hits:
            return True
        cosine = _find_best_cosine(hits)
        if cosine is None:
            return max(share_words(question, hit.passage.text) for hit in hits) < self.shared_words
        return cosine < self.compute_cosine_limit(passages)

    def is_needed(self, cut: CutPassage) -> bool:
        """Return whether the answer depends on a passage.

        Args:
            cut: The passage, with what happened to the answer without it.
        """
        return (cut.word_change or 0.0) <= self.word_change

    def judge(self, question: str, cuts: Sequence[CutPassage], passages: int) -> Verdict:
        """Return the verdict on an answer.

        Args:
            cuts: The passages that the search found, with what happened to the answer without each of them.
        """
        hits = [cut.hit for cut in cuts]
        if self.rejects_search(question, hits, passages):
            return "nothing fits"
        needed = [cut for cut in cuts if self.is_needed(cut)]
        if needed:
            return "not supported" if all(cut.missing for cut in needed) else "supported"
        cosine = _find_best_cosine(hits)
        is_subject = cosine is None or cosine >= self.compute_cosine_limit(passages) + self.subject_margin
        return "not supported" if is_subject else "nothing fits"


def share_words(question: str, text: str) -> float:
    """Return the share of a question's words that occur in a text. Words such as "the" and "which" do not count.

    >>> share_words("Where does the cat sleep?", "The cat and the dog sleep on the mat.")
    1.0
    """
    words = {word for word in split_terms(question) if word not in FUNCTION_WORDS}
    return len(words & set(split_terms(text))) / len(words) if words else 0.0


def _find_best_cosine(hits: Sequence[Hit]) -> float | None:
    """Return the largest cosine of the hits; None if the search computed none."""
    return max((hit.cosine for hit in hits if hit.cosine is not None), default=None)
