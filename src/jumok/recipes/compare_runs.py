"""Compare the reports of several runs in one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError

MAX_TEXT_LENGTH = 24  # characters; longer texts do not fit into a table


def compare_runs(folders: Iterable[str | Path], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return one row for each run: its folder, and the numbers and short texts of its report.

    All rows have the same columns; a value that a report does not contain is None.

    Args:
        folders: The folders of finished runs.
        columns: The names to include; None = all.

    Raises:
        ArgumentError: If a folder has no report, or no report contains a column.
    """
    reports = [_read_report(folder) for folder in map(Path, folders)]
    if not reports:
        raise ArgumentError("there are no runs to compare; give the folders of finished runs")

    names = list(dict.fromkeys(name for report in reports for name in report))
    unknown = next((name for name in columns or () if name not in names), None)
    if unknown is not None:
        raise ArgumentError(f"none of these reports contains a column {unknown!r}; choose from {', '.join(names[1:])}")
    selected = names if columns is None else ["run", *columns]
    return [{name: report.get(name) for name in selected} for report in reports]


def _read_report(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ArgumentError(f"there is no folder {folder}; give the folders of finished runs")
    if not (folder / "report.json").is_file():
        raise ArgumentError(f"there is no report in {folder}; it is written when a run has finished")
    report = read_json(folder, "report.json")
    return {"run": str(folder), **{name: content for name, content in report.items() if _fits_into_table(content)}}


def _fits_into_table(content: object) -> bool:
    is_short_text = isinstance(content, str) and len(content) <= MAX_TEXT_LENGTH
    return is_short_text or isinstance(content, int | float)
