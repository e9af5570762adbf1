"""An answer from the user's files: its text, its verdict, and what was measured about each passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jumok.retrieval import Hit

from .reading import Reading
from .verdict import Verdict


@dataclass(frozen=True)
class CutPassage:
    """A passage that stood before a reader, and what happened to the answer without it.

    Args:
        change: The change of the answer's log-probability when the passage is cut, in nats: -5 means that the answer is
            e^5 = 148 times less probable without it. None if nothing was read.
        word: The word of the answer whose probability falls most without the passage; "" if nothing was read.
        word_change: The change of the log-probability of that word's token; None if nothing was read.
        attention: The share of the attention that the passage receives while the answer is written, averaged over
            layers, heads and tokens. None if it was not measured.
        is_control: Whether the search did not find the passage: it was chosen at random, to compare with.
        missing: If the answer depends on the passage, the numbers and names of the answer that the passage does not
            contain.
    """

    hit: Hit
    change: float | None = None
    word: str = ""
    word_change: float | None = None
    attention: float | None = None
    is_control: bool = False
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        passage = self.hit.passage
        return {
            "location": passage.location,
            "path": passage.path,
            "first": passage.first,
            "last": passage.last,
            "unit": passage.unit,
            "text": passage.text,
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
    """The answer to a question.

    Args:
        verdict: "supported", "not supported" or "nothing fits"; None if the passages were searched but not read.
        text: The text that the reader wrote; None if nothing was read.
        log_probability: The log-probability of the text, in nats; None if nothing was read.
        passages: The passages that the search found, the best one first, and then the control passages.
        method: How the passages were found: "bm25", "dense" or "fused".
        note: A sentence about the search or the reading that the user should know; None if there is none.
        reading: The text with its tokens, as the reader returned it; None if nothing was read.
    """

    question: str
    verdict: Verdict | None
    text: str | None
    log_probability: float | None
    passages: tuple[CutPassage, ...]
    method: str
    note: str | None = None
    reading: Reading | None = None

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
        """The passage that an answer without support depends on, but which lacks its numbers or names; or None."""
        if self.verdict != "not supported":
            return None
        return _find_most_needed([passage for passage in self.passages if passage.missing])

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        citation = self.citation
        return {
            "question": self.question,
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
