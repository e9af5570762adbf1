"""The figures of several runs in one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError

LONGEST = 24  # characters; a longer text is no figure


def compare_runs(folders: Iterable[str | Path], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row for each run: its name, and every number and short word of its report, or those of ``columns``. A figure
    that a run does not have is None in its row, so that all rows have the same columns."""
    rows = []
    for folder in map(Path, folders):
        if not (folder / "report.json").is_file():
            missing = f"there is no folder {folder}; name the folders of runs"
            unfinished = f"there is no report in {folder}: it is written when a run has finished"
            raise ArgumentError(unfinished if folder.is_dir() else missing)
        told = read_json(folder, "report.json")
        rows.append({"run": str(folder), **{name: value for name, value in told.items() if _is_figure(value)}})
    if not rows:
        raise ArgumentError("no runs were given to compare")
    known = list(dict.fromkeys(name for row in rows for name in row))
    odd = next((name for name in columns or () if name not in known), None)
    if odd is not None:
        raise ArgumentError(f"none of these runs tells {odd!r}; they tell {', '.join(known[1:])}")
    chosen = known if columns is None else ["run", *columns]
    return [{name: row.get(name) for name in chosen} for row in rows]


def _is_figure(value: object) -> bool:
    return (isinstance(value, str) and len(value) <= LONGEST) or isinstance(value, int | float)
