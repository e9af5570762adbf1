"""A passage: a short piece of a file, with its location; and a hit, which is a passage that a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["line", "page"]


@dataclass(frozen=True)
class Passage:
    """A short piece of a file, small enough that several fit into the prompt of a small model.

    Args:
        path: The file, relative to the indexed folder, with "/" between its parts.
        first: The first line of the passage in the file, counted from 1; in a PDF file, the first page.
        last: Its last line or page.
        text: The text, without surrounding white space.
        unit: What ``first`` and ``last`` count: lines, or pages of a PDF file.

    >>> Passage("notes/cat.txt", 3, 5, "The cat sat on the mat.").location
    'notes/cat.txt:3'
    """

    path: str
    first: int
    last: int
    text: str
    unit: Unit = "line"

    @property
    def location(self) -> str:
        """Where the passage begins: ``file:line``, or ``file.pdf:page 7``. Editors and terminals open ``file:line``."""
        return f"{self.path}:{self.first}" if self.unit == "line" else f"{self.path}:page {self.first}"


@dataclass(frozen=True)
class Hit:
    """A passage that a search found, with its scores.

    Args:
        number: The number of the passage in its index, counted from 0.
        score: The score by which the hits are ranked; larger is better. Scores of different methods are not comparable.
        bm25: The BM25 score of the passage; None if the search did not compute it.
        cosine: The cosine of the vectors of question and passage; None if the search did not compute it.
    """

    number: int
    passage: Passage
    score: float
    bm25: float | None = None
    cosine: float | None = None
