"""The run's numbers, one line of JSON an entry. What a seed fixes goes into one file, what the clock says into another,
so that two runs of one seed have equal files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
SPEED = "speed.jsonl"


class MetricsLog:
    """Appends lines; every line is on its way to the disk before the next step begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, step: int, **numbers: float) -> None:
        _append(self.folder / METRICS, {"step": step, **numbers})

    def add_speed(self, step: int, **numbers: float) -> None:
        _append(self.folder / SPEED, {"step": step, **numbers})

    def forget_after(self, step: int, evaluations: bool = False) -> None:
        """Take back what was told of later steps, which will be computed again; and a line that was cut off.
        evaluations: also the evaluation of this step itself."""
        for name in (METRICS, SPEED):
            path = self.folder / name
            if not path.exists():
                continue
            kept = [
                line
                for line in _whole_lines(path)
                if (told := json.loads(line))["step"] <= step
                and not (evaluations and told["step"] == step and any(key.startswith("evaluation_") for key in told))
            ]
            made = path.with_name(f".{name}.new")
            made.write_text("".join(kept), encoding="utf-8")
            os.replace(made, path)


def _append(path: Path, told: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def _whole_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                if line.endswith("\n") and isinstance(json.loads(line)["step"], int):
                    yield line
            except (ValueError, KeyError, TypeError):
                continue


def read_metrics(folder: Path, name: str = METRICS) -> list[dict[str, Any]]:
    """All lines of a run so far."""
    path = folder / name
    return [json.loads(line) for line in _whole_lines(path)] if path.exists() else []
