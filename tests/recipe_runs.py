"""Helpers for tests of the language recipes: small data, short runs, and the comparison of two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jumok.checkpoint import run_folder
from jumok.recipes import TrainingRequest, get_recipe, start_run
from jumok.training import Outcome, TrainingTask
from jumok.training.displays import ProgressDisplay
from toys import skip_plots

SHORT = {"steps": 6, "batch": 4, "evaluate_every": 3, "save_every": 2, "log_every": 1, "warmup": 1}
SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}


def train(
    recipe: str,
    folder: Path,
    data: Path | None,
    display: ProgressDisplay | None = None,
    *,
    start: Path | None = None,
    skip_bad: bool = False,
    **changes: Any,
) -> Outcome:
    """Start a run without plots."""
    request = TrainingRequest(
        recipe,
        folder,
        None if data is None else str(data),
        None if start is None else str(start),
        changes,
        skip_bad,
    )
    with skip_plots():
        return start_run(request, display=display)


def create_task(recipe: str, folder: Path, data: Path, changes: dict[str, Any]) -> TrainingTask:
    """Build the task of a recipe without training it."""
    folder.mkdir()
    return get_recipe(recipe).build(TrainingRequest(recipe, folder, str(data), changes=changes))


def load_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return report


def assert_same_run(run: Path, expected: Path) -> None:
    """Assert that two runs have bitwise equal parameters, optimizer states, metrics and reports."""
    assert (run / "metrics.jsonl").read_text() == (expected / "metrics.jsonl").read_text()
    last, expected_last = (run_folder.read_pointer(folder, "last") for folder in (run, expected))
    assert last is not None and expected_last is not None and last.name == expected_last.name
    for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
        assert (last / name).read_bytes() == (expected_last / name).read_bytes(), name
    assert load_report(run) == load_report(expected)


def write_book(folder: Path) -> Path:
    """Write 200 short paragraphs into two files of a folder."""
    animals, verbs, things = ("cat", "dog", "owl", "고양이"), ("sat", "slept", "sang"), ("mat", "roof", "hill")
    paragraphs = [
        f"In year {number} the {animals[number % 4]} {verbs[number % 3]}\non the {things[number % 5 % 3]} and was glad."
        for number in range(200)
    ]
    (folder / "a.txt").write_text("\n\n".join(paragraphs[:120]) + "\n", encoding="utf-8")
    (folder / "b.txt").write_text("\n\n".join(paragraphs[120:]) + "\n", encoding="utf-8")
    return folder


def write_pairs(path: Path) -> Path:
    """Write 120 pairs of an English and a Korean text."""
    lines = [f"Open file {number}\t파일 {number} 열기" for number in range(60)]
    lines += [f"Close window {number}\t창 {number} 닫기" for number in range(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
