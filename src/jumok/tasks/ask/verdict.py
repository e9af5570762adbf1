"""Decide whether an answer is supported by a passage, or whether nothing in the index fits the question.

The decision reads the scores of the search and the measured effect of cutting the passage, never the model's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jumok.retrieval import Hit

Verdict = Literal["supported", "not supported", "nothing fits"]


@dataclass(frozen=True)
class VerdictRule:
    """The thresholds of a verdict. ``bench/retrieval/verdicts.py`` measures both of its error rates.

    Args:
        cosine: Below this cosine of the best passage, nothing fits, whatever the model writes.
        change: An answer is supported if cutting a passage changes its log-probability by this much or more, in nats.
        subject_cosine: From this cosine of the best passage on, the files are about the subject: an answer without
            support is shown, marked "not supported". Below it, nothing fits.
    """

    cosine: float = 0.4
    change: float = -3.0
    subject_cosine: float = 0.55

    def rejects_search(self, hits: Sequence[Hit]) -> bool:
        """Return whether the search alone shows that nothing fits, so that nothing needs to be read.

        Args:
            hits: The passages that the search found.
        """
        cosine = _find_best_cosine(hits)
        return not hits or (cosine is not None and cosine < self.cosine)

    def judge(self, hits: Sequence[Hit], changes: Sequence[float]) -> Verdict:
        """Return the verdict on an answer.

        Args:
            hits: The passages that the search found.
            changes: For each passage, the change of the answer's log-probability when it is cut.
        """
        if self.rejects_search(hits):
            return "nothing fits"
        if min(changes, default=0.0) <= self.change:
            return "supported"
        cosine = _find_best_cosine(hits)
        return "not supported" if cosine is None or cosine >= self.subject_cosine else "nothing fits"


def _find_best_cosine(hits: Sequence[Hit]) -> float | None:
    """Return the largest cosine of the hits; None if the search computed none."""
    return max((hit.cosine for hit in hits if hit.cosine is not None), default=None)
