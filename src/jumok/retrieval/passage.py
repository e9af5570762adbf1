"""A passage: a short piece of a file, with its location; and a hit, which is a passage that a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["line", "page"]


@dataclass(frozen=True)
class Passage:
    """A short piece of a file, small enough that several fit into the prompt of a small model.


    >>> Passage("notes/cat.txt", 3, 5, "The cat sat on the mat.").location
    'notes/cat.txt:3'
    """

    path: str  # of the file, relative to the indexed folder, with "/" between its parts
    first: int  # the first line in the file, counted from 1; of a PDF file, the first page
    last: int  # the last line or page
    text: str  # without surrounding white space
    unit: Unit = "line"  # what first and last count
    sentences: tuple[tuple[int, int], ...] = ()  # where in the text each sentence begins, and its line or page

    @property
    def location(self) -> str:
        """Where the passage begins: ``file:line``, or ``file.pdf:page 7``. Editors and terminals open ``file:line``."""
        return self.locate(self.first)

    def locate(self, number: int) -> str:
        """Return where a line or page of the passage is."""
        return f"{self.path}:{number}" if self.unit == "line" else f"{self.path}:page {number}"

    def list_sentences(self) -> list[tuple[int, str]]:
        """Return the line or page and the text of each sentence, without headings.

        >>> Passage("a.txt", 1, 2, "A cat. A dog.", sentences=((0, 1), (7, 2))).list_sentences()
        [(1, 'A cat.'), (2, 'A dog.')]
        """
        starts = [start for start, _ in self.sentences]
        ends = [*starts[1:], len(self.text)]
        return [(line, self.text[start:end].strip()) for (start, line), end in zip(self.sentences, ends, strict=True)]


@dataclass(frozen=True)
class Hit:
    """A passage that a search found, with its scores; those of different methods are not comparable."""

    number: int  # of the passage in its index, counted from 0
    passage: Passage
    score: float  # by which the hits are ranked; larger is better
    bm25: float | None = None  # None if the search did not compute it
    cosine: float | None = None  # of the vectors of question and passage; None if the search did not compute it
