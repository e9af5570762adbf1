"""What experiments return: numbers, with tables, sentences in two languages, and a picture made from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jumok.lab.bilingual_text import Text

Progress = Callable[[int, int], None]  # takes the finished and the total number of steps


@dataclass(frozen=True)
class Table:
    """A table of formatted cells.

    Attributes:
        title: A line above the table; default: none.
    """

    columns: tuple[Text, ...]
    rows: tuple[tuple[str | Text, ...], ...]
    title: Text | None = None

    def select_language(self, language: str) -> list[list[str]]:
        """Return the headings and the rows as strings.

        Args:
            language: "en" or "ko".
        """
        lines: list[tuple[str | Text, ...]] = [self.columns, *self.rows]
        return [[cell.select(language) if isinstance(cell, Text) else cell for cell in line] for line in lines]


class ExperimentResult(ABC):
    """Base class of the results of experiments, which are frozen dataclasses of plain numbers."""

    @abstractmethod
    def build_tables(self) -> list[Table]:
        """Return the numbers as tables."""

    @abstractmethod
    def explain(self) -> list[Text]:
        """Return the sentences that explain the numbers."""

    @abstractmethod
    def list_exceptions(self) -> list[Text]:
        """Return a sentence for each case in which the lesson did not come out; an empty list if it always did."""

    @abstractmethod
    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the numbers, and return the path.

        Args:
            target: Where to write the image; the suffix ``.png`` or ``.svg`` selects the format.
            language: The language of the labels: "en" or "ko".

        Raises:
            DrawError: If the suffix is unknown, matplotlib is missing, or the file cannot be written.
        """

    def to_json(self, language: str = "en") -> dict[str, Any]:
        """Return the numbers and the sentences for JSON.

        Args:
            language: The language of the sentences: "en" or "ko".
        """
        exceptions = [text.select(language) for text in self.list_exceptions()]
        return {
            **asdict(self),  # type: ignore[call-overload]  # every subclass is a dataclass
            "explanation": [text.select(language) for text in self.explain()],
            "holds": not exceptions,
            "exceptions": exceptions,
        }
