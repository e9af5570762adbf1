"""Write and read the metrics of a run, one JSON object per line.

Numbers that the seed determines go to metrics.jsonl and measured times to speed.jsonl, so that two runs with the same
seed have equal metrics files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

METRICS_FILE = "metrics.jsonl"
SPEED_FILE = "speed.jsonl"


class MetricsLog:
    """Appends metrics to the files of a run; each line is written before the next step begins.

    Args:
        folder: The folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, step: int, **metrics: float) -> None:
        """Append metrics that the seed determines.

        Args:
            step: The number of updates so far.
            **metrics: Values by name.
        """
        _append_line(self.folder / METRICS_FILE, {"step": step, **metrics})

    def add_speed(self, step: int, **metrics: float) -> None:
        """Append measured speeds.

        Args:
            step: The number of updates so far.
            **metrics: Values by name.
        """
        _append_line(self.folder / SPEED_FILE, {"step": step, **metrics})

    def remove_after(self, step: int, evaluations: bool = False) -> None:
        """Remove incomplete lines and the lines of later steps, which will be computed again.

        Args:
            step: The last step whose lines stay.
            evaluations: Also remove the evaluation of this step itself.
        """
        for name in (METRICS_FILE, SPEED_FILE):
            path = self.folder / name
            if not path.exists():
                continue

            lines = []
            for line in _read_valid_lines(path):
                row = json.loads(line)
                is_evaluation = any(key.startswith("evaluation_") for key in row)
                is_repeated = evaluations and row["step"] == step and is_evaluation
                if row["step"] <= step and not is_repeated:
                    lines.append(line)

            replacement = path.with_name(f".{name}.new")
            replacement.write_text("".join(lines), encoding="utf-8")
            os.replace(replacement, path)


def read_metrics(folder: Path, name: str = METRICS_FILE) -> list[dict[str, Any]]:
    """Return all rows that a run has written.

    Args:
        folder: The folder of the run.
        name: The file: "metrics.jsonl" or "speed.jsonl".
    """
    path = folder / name
    return [json.loads(line) for line in _read_valid_lines(path)] if path.exists() else []


def _append_line(path: Path, row: Mapping[str, int | float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _read_valid_lines(path: Path) -> Iterator[str]:
    """Yield the lines that are complete: a killed process may leave half a line."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                if line.endswith("\n") and isinstance(json.loads(line)["step"], int):
                    yield line
            except (ValueError, KeyError, TypeError):
                continue
