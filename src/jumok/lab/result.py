"""What experiments and ``jumok cost`` return: numbers, with tables, sentences in two languages, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jumok.bilingual_text import Text, Texts
from jumok.reporting import Progress

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


def build_table(texts: Texts, name: str, rows: Iterable[Mapping[str, object]], **values: object) -> Table:
    """Return a table whose title, columns and cells are in a TOML file.

    Args:
        name: The group of texts with ``title``, ``columns`` and ``cells``, one format for each column.
        rows: For each row, the values that the formats of the cells name.
        **values: The values that the title and the columns name.
    """
    columns = texts.list(f"{name}.columns", **values)
    lines = [texts.list(f"{name}.cells", **row) for row in rows]
    return Table(columns, lines, texts(f"{name}.title", **values))


def format_range(numbers: Sequence[float], form: str = ".0%") -> str:
    """Return the smallest and the largest number, for example "20% - 35%"."""
    return f"{min(numbers):{form}} - {max(numbers):{form}}"


@dataclass(frozen=True)
class Result:
    """The result of an experiment.

    Attributes:
        numbers: What was computed, by name: plain numbers, and dataclasses of them.
        sentences: What the numbers show.
        exceptions: A sentence for each case in which the lesson did not come out; empty if it always did.
        _draw: Draws the numbers into a file, with labels in a language, and returns its path.
    """

    numbers: Mapping[str, Any]
    tables: Sequence[Table]
    sentences: Sequence[Text]
    exceptions: Sequence[Text]
    _draw: Callable[[str | Path, str], Path] = field(compare=False)

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the numbers as PNG or SVG, by the suffix, and return the path."""
        return self._draw(target, language)

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
