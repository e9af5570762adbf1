"""Write and read the metrics of a run, one JSON object per line.

Numbers that the seed determines go to metrics.jsonl and measured times to speed.jsonl, so that two runs with the same
seed have equal metrics files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jumok.errors import TrainingError
from jumok.files import read_limited, write_atomically

from .settings import Settings

METRICS_FILE = "metrics.jsonl"
SPEED_FILE = "speed.jsonl"
MAX_LOG_BYTES = 256 * 2**20  # some million lines


class MetricsLog:
    """Appends metrics to the files of a run; each line is written before the next step begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity: os.stat_result | None = None

    def require_folder(self) -> None:
        """Raise TrainingError if the folder was moved or removed since the first call.

        Otherwise a checkpoint would be written into a new folder of that name, without run.json.
        """
        try:
            current = self.folder.stat()
            self._identity = self._identity or current
            is_same = os.path.samestat(self._identity, current)
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise TrainingError(
                f"the folder {self.folder} was moved or removed while the run trained in it, so nothing more can be "
                "saved there; if it was moved, continue with --resume and its new name (resume= in Python)"
            )

    def add(self, step: int, **metrics: float) -> None:
        """Append metrics that the seed determines."""
        self.require_folder()
        _append_line(self.folder / METRICS_FILE, {"step": step, **metrics})

    def add_speed(self, step: int, **metrics: float) -> None:
        """Append measured speeds."""
        _append_line(self.folder / SPEED_FILE, {"step": step, **metrics})

    def remove_after(self, step: int, owed: bool, settings: Settings) -> list[str]:
        """Remove damaged lines and those of later steps, and return a sentence for each file that was damaged.

        Later steps are computed again, and the evaluation of this one if it is owed.
        """
        problems = []
        for name in (METRICS_FILE, SPEED_FILE):
            path = self.folder / name
            log = _read_log(path)
            rows = [row for row in log.rows if row["step"] < step + (not (owed and _is_evaluation(row)))]
            if path.exists():
                write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))

            missing = _list_steps(settings.log_every, step) - {row["step"] for row in rows if not _is_evaluation(row)}
            if name == METRICS_FILE:
                evaluated = _list_steps(settings.evaluate_every, step - owed) - {1}
                missing |= evaluated - {row["step"] for row in rows if _is_evaluation(row)}
            problem = _describe_damage(name, log, sorted(missing))
            problems += [] if problem is None else [problem]
        return problems


def read_metrics(folder: Path, name: str = METRICS_FILE) -> list[dict[str, Any]]:
    """Return all rows that a run has written."""
    return _read_log(folder / name).rows


def read_last_evaluation(folder: Path) -> dict[str, float]:
    """Return the metrics of the last evaluation of a run, by name; empty if there is none."""
    evaluations = [row for row in read_metrics(folder) if _is_evaluation(row)]
    if not evaluations:
        return {}
    prefix = "evaluation_"
    return {name.removeprefix(prefix): number for name, number in evaluations[-1].items() if name.startswith(prefix)}


class _Log(NamedTuple):
    """The valid rows of a file, the number of damaged lines, and whether the last line is incomplete."""

    rows: list[dict[str, Any]]
    damaged: int
    is_cut: bool


def _read_log(path: Path) -> _Log:
    """Return the content of a file, which another program may have damaged; a missing file has no rows."""
    *lines, end = (read_limited(path, MAX_LOG_BYTES) if path.exists() else b"").split(b"\n")
    rows = [row for row in map(_parse_row, lines) if row is not None]
    return _Log(rows, len(lines) - len(rows), is_cut=bool(end))


def _parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
        numbers = [float(number) for number in row.values() if not isinstance(number, bool | str)]
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    is_valid = len(numbers) == len(row) and type(row.get("step")) is int
    return row if is_valid else None


def _is_evaluation(row: dict[str, Any]) -> bool:
    return any(key.startswith("evaluation_") for key in row)


def _list_steps(every: int, step: int) -> set[int]:
    """Return the steps that have a line: the first, and then one every ``every`` steps up to ``step``."""
    return {1, *range(every, step + 1, every)} if step else set()


def _describe_damage(name: str, log: _Log, missing: list[int]) -> str | None:
    damage = []
    if log.damaged:
        damage.append(f"{log.damaged:,} damaged lines were removed")
    if missing:
        steps = f"{missing[0]:,}" if len(missing) == 1 else f"{missing[0]:,} to {missing[-1]:,}"
        damage.append(f"lines are missing (steps {steps}), and the run continues without them")
    if log.is_cut:
        damage.append("its last line was incomplete and was removed")
    return f"{name}: {'; '.join(damage)}" if damage else None


def _append_line(path: Path, row: Mapping[str, int | float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
