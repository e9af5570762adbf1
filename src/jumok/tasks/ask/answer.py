"""An answer from the user's files: its text, what was measured about each passage, and its verdict.

The verdict says whether a passage supports the answer, or whether nothing in the index fits the question. It reads the
scores of the search, the measured effect of cutting the passage, and whether the passage contains the words of the
answer: an answer can depend on a passage that it contradicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from jumok.retrieval import Hit
from jumok.retrieval.search.bm25 import split_terms

from .named_words import FUNCTION_WORDS
from .quotation import Quotation
from .readers import Reading

Verdict = Literal["supported", "partly supported", "not supported", "nothing fits"]


@dataclass(frozen=True)
class CutPassage:
    """A passage that stood before a reader, and what happened to the answer without it.

    Changes are of log-probabilities, in nats: -5 means e^5 = 148 times less probable without the passage. Fields are
    None or "" if nothing was read.
    """

    hit: Hit
    change: float | None = None  # of the answer
    word: str = ""  # the word of the answer whose probability falls most
    word_change: float | None = None  # of that word's token
    attention: float | None = None  # the share that the passage receives, averaged over layers, heads and tokens
    is_control: bool = False  # the search did not find the passage: it was chosen at random, to compare with
    missing: tuple[str, ...] = ()  # words of an answer that depends on it, which it does not support

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        passage = self.hit.passage
        return {
            "location": passage.location,
            **asdict(passage),
            "score": self.hit.score,
            "bm25": self.hit.bm25,
            "cosine": self.hit.cosine,
            "change": self.change,
            "word": self.word,
            "word_change": self.word_change,
            "attention": self.attention,
            "control": self.is_control,
            "missing": list(self.missing),
        }


@dataclass(frozen=True)
class Answer:
    """The answer to a question; without a reader, the passages that were found."""

    question: str
    verdict: Verdict | None  # None if the passages were searched but not read
    text: str | None  # what the reader wrote
    log_probability: float | None  # of the text, in nats
    passages: tuple[CutPassage, ...]  # those that the search found, the best one first, and then the control passages
    method: str  # how the passages were found: "bm25", "dense" or "fused"
    note: str | None = None  # a sentence about the search or the reading that the user should know
    reading: Reading | None = None  # the text with its tokens, as the reader returned it
    quotation: Quotation | None = None  # the sentence of the files that answers the question best

    @property
    def reached_limit(self) -> bool:
        """Whether the text was cut off at the largest number of tokens."""
        return self.reading is not None and self.reading.reached_limit

    @property
    def citation(self) -> CutPassage | None:
        """The passage that supports the answer; None if the verdict is not "supported"."""
        if self.verdict != "supported":
            return None
        candidates = [passage for passage in self.passages if not passage.is_control and not passage.missing]
        return _find_most_needed(candidates)

    @property
    def lacking_passage(self) -> CutPassage | None:
        """The passage that an answer depends on, but which supports only a part of it; or None."""
        if self.verdict != "partly supported":
            return None
        return _find_most_needed([passage for passage in self.passages if passage.missing])

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        citation = self.citation
        return {
            "question": self.question,
            "quotation": None if self.quotation is None else asdict(self.quotation),
            "verdict": self.verdict,
            "text": self.text,
            "citation": None if citation is None else citation.hit.passage.location,
            "log_probability": self.log_probability,
            "reached_limit": self.reached_limit,
            "method": self.method,
            "note": self.note,
            "passages": [passage.to_json() for passage in self.passages],
        }


def _find_most_needed(passages: list[CutPassage]) -> CutPassage | None:
    """Return the passage without which a word of the answer loses most."""
    measured = [passage for passage in passages if passage.word_change is not None]
    return min(measured, key=lambda passage: passage.word_change or 0.0, default=None)


@dataclass(frozen=True)
class VerdictRule:
    """The thresholds of a verdict. They were chosen on questions that are not among those of the reported error rates:
    ``bench/retrieval/verdicts.py``.

    The best of n passages must exceed a cosine that grows with n, as the largest of n random numbers does. An answer
    without support is shown, marked "not supported", only if the files are about the subject; else nothing fits.
    """

    word_change: float = -3.0  # in nats: an answer needs a passage without which a word is 20 times less probable
    unrelated_cosine: float = 0.04  # of the best of n passages, with the next number times sqrt(2 log n)
    cosine_spread: float = 0.09
    subject_margin: float = 0.1  # by how much the best cosine exceeds that limit if the files are about the subject
    has_cosines: bool = True  # False: those of another model than minilm, whose limits are unknown; words decide
    shared_words: float = 0.4  # without vectors: the share of the question's words that the best passage must have

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
        cosine = _find_best_cosine(hits) if self.has_cosines else None
        if cosine is None:
            return max(share_words(question, hit.passage.text) for hit in hits) < self.shared_words
        return cosine < self.compute_cosine_limit(passages)

    def is_needed(self, cut: CutPassage) -> bool:
        """Return whether the answer depends on a passage, by what happened to the answer without it."""
        return (cut.word_change or 0.0) <= self.word_change

    def judge(self, question: str, cuts: Sequence[CutPassage], passages: int) -> Verdict:
        """Return the verdict on an answer, by what happened to it without each of the passages that were found."""
        hits = [cut.hit for cut in cuts]
        if self.rejects_search(question, hits, passages):
            return "nothing fits"
        needed = [cut for cut in cuts if self.is_needed(cut)]
        if needed:
            return "partly supported" if all(cut.missing for cut in needed) else "supported"
        cosine = _find_best_cosine(hits) if self.has_cosines else None
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
