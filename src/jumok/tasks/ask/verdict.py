"""Decide whether an answer is supported by a passage, or whether nothing in the index fits the question.

The decision reads the scores of the search and the measured effect of cutting the passage, never the model's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jumok.retrieval import Hit
from jumok.retrieval.search.tokenize import split_terms

# As split_terms writes them: "does" is "doe".
FUNCTION_WORDS = frozenset(
    {"a", "an", "and", "are", "at", "be", "by", "did", "do", "doe", "for", "from", "had", "has", "have", "he", "her"}
    | {"his", "how", "i", "in", "is", "it", "its", "many", "much", "of", "on", "or", "she", "that", "the", "their"}
    | {"there", "they", "this", "to", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why"}
    | {"will", "with"}
)
Verdict = Literal["supported", "not supported", "nothing fits"]


@dataclass(frozen=True)
class VerdictRule:
    """The thresholds of a verdict. ``bench/retrieval/verdicts.py`` measures both of its error rates.

    Args:
        cosine: Below this cosine of the best passage, nothing fits, whatever the model writes.
        change: An answer is supported if cutting a passage changes its log-probability by this much or more, in nats.
        subject_cosine: From this cosine of the best passage on, the files are about the subject: an answer without
            support is shown, marked "not supported". Below it, nothing fits.
        shared_words: Without vectors: below this share of the question's words in the best passage, nothing fits.
    """

    cosine: float = 0.4
    change: float = -3.0
    subject_cosine: float = 0.55
    shared_words: float = 0.4

    def rejects_search(self, question: str, hits: Sequence[Hit]) -> bool:
        """Return whether the search alone shows that nothing fits, so that nothing needs to be read.

        Args:
            question: The question.
            hits: The passages that the search found.
        """
        if not hits:
            return True
        cosine = _find_best_cosine(hits)
        if cosine is None:
            return max(share_words(question, hit.passage.text) for hit in hits) < self.shared_words
        return cosine < self.cosine

    def judge(self, question: str, hits: Sequence[Hit], changes: Sequence[float]) -> Verdict:
        """Return the verdict on an answer.

        Args:
            question: The question.
            hits: The passages that the search found.
            changes: For each passage, the change of the answer's log-probability when it is cut.
        """
        if self.rejects_search(question, hits):
            return "nothing fits"
        if min(changes, default=0.0) <= self.change:
            return "supported"
        cosine = _find_best_cosine(hits)
        return "not supported" if cosine is None or cosine >= self.subject_cosine else "nothing fits"


def share_words(question: str, text: str) -> float:
    """Return the share of a question's words that occur in a text. Words such as "the" and "which" do not count.

    Args:
        question: The question.
        text: The text.

    >>> share_words("Where does the cat sleep?", "The cat and the dog sleep on the mat.")
    1.0
    """
    words = {word for word in split_terms(question) if word not in FUNCTION_WORDS}
    return len(words & set(split_terms(text))) / len(words) if words else 0.0


def _find_best_cosine(hits: Sequence[Hit]) -> float | None:
    """Return the largest cosine of the hits; None if the search computed none."""
    return max((hit.cosine for hit in hits if hit.cosine is not None), default=None)
