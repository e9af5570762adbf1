"""Choose control passages: passages that have nothing to do with a question, to compare the effect of a cut with."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Protocol, runtime_checkable

from jumok.retrieval import Hit, Passage

CANDIDATES = 16  # random passages compared for each control; the one with the most similar length is chosen


@runtime_checkable
class PassageCollection(Protocol):
    """Passages by number, such as a ``FolderIndex``."""

    def __len__(self) -> int:
        """Return the number of passages."""
        ...

    def get(self, number: int) -> Passage:
        """Return one passage.

        Args:
            number: Its number, counted from 0.
        """
        ...


def choose_controls(
    passages: PassageCollection, question: str, excluded: Collection[int], length: int, count: int
) -> list[Hit]:
    """Return random passages of a similar length. The same question in the same index gives the same passages.

    Args:
        excluded: The numbers of passages that may fit the question.
        count: How many controls; fewer are returned if there are too few passages.
    """
    generator = random.Random(f"{len(passages)} {question}")
    numbers = [
        number
        for number in generator.sample(range(len(passages)), min(len(passages), CANDIDATES * count + len(excluded)))
        if number not in excluded
    ]
    controls = []
    for start in range(0, min(len(numbers), CANDIDATES * count), CANDIDATES):
        candidates = [(number, passages.get(number)) for number in numbers[start : start + CANDIDATES]]
        number, passage = min(candidates, key=lambda candidate: abs(len(candidate[1].text) - length))
        controls.append(Hit(number, passage, score=0.0))
    return controls
