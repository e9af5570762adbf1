"""What experiments and ``jumok cost`` return: numbers, with tables, sentences in two languages, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jumok.lab.bilingual_text import Text

Progress = Callable[[int, int], None]  # takes the finished and the total number of steps
Cell = str | Text


@dataclass(frozen=True)
class Table:
    """A table of formatted cells.

    Attributes:
        title: A line above the table; default: none.
    """

    columns: Sequence[Text]
    rows: Sequence[Sequence[Cell]]
    title: Text | None = None

    def select_language(self, language: str) -> list[list[str]]:
        """Return the headings and the rows as strings."""
        return [
            [cell.select(language) if isinstance(cell, Text) else cell for cell in line]
            for line in (self.columns, *self.rows)
        ]


@dataclass(frozen=True)
class Result:
    """The result of an experiment.

    Attributes:
        numbers: What was computed, by name: plain numbers, and dataclasses of them.
        sentences: What the numbers show.
        exceptions: A sentence for each case in which the lesson did not come out; empty if it always did.
        draw: Draws the numbers into a file, with labels in a language, and returns its path.
    """

    numbers: Mapping[str, Any]
    tables: Sequence[Table]
    sentences: Sequence[Text]
    exceptions: Sequence[Text]
    draw: Callable[[str | Path, str], Path] = field(compare=False)

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the numbers as PNG or SVG, by the suffix, and return the path."""
        return self.draw(target, language)

    def to_json(self, language: str = "en") -> dict[str, Any]:
        """Return the numbers, and the sentences in one language, for JSON."""
        exceptions = [text.select(language) for text in self.exceptions]
        return {
            **asdict(self)["numbers"],
            "explanation": [text.select(language) for text in self.sentences],
            "holds": not exceptions,
            "exceptions": exceptions,
        }


def count_steps(total: int, progress: Progress | None) -> Callable[[], None]:
    """Return a function that reports one more finished step each time it is called."""
    done = 0

    def count_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    return count_step
