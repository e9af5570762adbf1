"""Read and write run.json: the request of a run and, once its data is prepared, the settings and facts about the data.

The request is written before the data is prepared, so that a run that is killed meanwhile can be continued.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok import __version__
from jumok.checkpoint import run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError, CheckpointError, TrainingError
from jumok.files import write_atomically
from jumok.training import Task
from jumok.training.precision import TYPES

from .request import TrainingRequest


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json.

    Attributes:
        data_files: The user's data files, as ``describe_files`` returned them; None without files.
        data_facts: Facts about the prepared data; None if the run ended before its data was prepared.
        threads: The number of threads that the run used; None if it has not trained yet, or trained on a GPU.
        precision: The dtype of matrix products that the run used; None if it has not trained yet.
    """

    request: TrainingRequest
    data_files: dict[str, Any] | None
    data_facts: dict[str, Any] | None
    threads: int | None = None
    precision: str | None = None


def write_record(request: TrainingRequest, data_files: dict[str, Any] | None, task: Task | None = None) -> None:
    """Write run.json."""
    metadata = {**request.to_json(), "version": __version__, "data_files": data_files}
    if task is not None:
        metadata |= {
            "settings": task.settings.to_json(),
            "model": task.model.config.to_json(),
            "data_facts": dict(task.data),
        }
    write_json(request.folder / run_folder.RUN_FILE, metadata)


def refuse_other_folders(folder: Path) -> None:
    """Raise ArgumentError if a folder has no run.json."""
    if run_folder.is_run(folder):
        return
    problem = run_folder.describe_missing_record(folder)
    if problem is None:
        raise ArgumentError(f"{folder} is not the folder of a training run: it has no {run_folder.RUN_FILE}")
    newest = shlex.quote(str(run_folder.list_checkpoints(folder)[0][1]))
    raise ArgumentError(f"{problem}, or start a new run from the newest one: jumok train RECIPE --from {newest}")


def read_record(folder: Path, report: Callable[[str], None]) -> RunRecord:
    """Read run.json."""
    refuse_other_folders(folder)
    try:
        metadata = read_json(folder, run_folder.RUN_FILE)
        request = TrainingRequest.from_json(metadata, folder, report)
        facts = [metadata.get(name) for name in ("data_files", "data_facts")]
        if not all(isinstance(content, dict | None) for content in facts):
            raise ArgumentError("data_files or data_facts is not an object")
        if facts[1] is None and run_folder.list_checkpoints(folder):
            raise ArgumentError("data_facts is missing")
    except (ArgumentError, CheckpointError) as error:
        raise TrainingError(
            f"{folder / run_folder.RUN_FILE} is damaged and cannot be rebuilt ({str(error)[:200]}); restore it from a "
            f"copy, or start a new run from the model: jumok train RECIPE --from {shlex.quote(str(folder))}"
        ) from None
    return RunRecord(request, facts[0], facts[1], _read_threads(metadata), _read_precision(metadata))


def _read_threads(metadata: dict[str, Any]) -> int | None:
    threads = _read_setting(metadata, "threads")
    return threads if type(threads) is int and threads > 0 else None  # bool is a subclass of int


def _read_precision(metadata: dict[str, Any]) -> str | None:
    precision = _read_setting(metadata, "precision")
    return precision if isinstance(precision, str) and precision in TYPES else None


def _read_setting(metadata: dict[str, Any], name: str) -> Any:
    settings = metadata.get("settings")
    return settings.get(name) if isinstance(settings, dict) else None


def store_resumed_settings(folder: Path, threads: int, steps: int | None) -> None:
    """Write the settings of a resumed run into its run.json, so that the next ``--resume`` keeps them.

    Args:
        steps: The new number of updates, instead of the old number or epochs; None = as before. A number that the run
            has already reached is not stored: there is nothing to do.
    """
    metadata = read_json(folder, run_folder.RUN_FILE)
    if not isinstance(metadata.get("settings"), dict):
        return
    settings, changes = metadata["settings"] | {"threads": threads}, dict(metadata["changes"])
    done = max((step for step, _ in run_folder.list_checkpoints(folder)), default=0)
    if steps is not None and steps > done:
        settings |= {"steps": steps, "epochs": None}
        changes = {name: value for name, value in changes.items() if name != "epochs"} | {"steps": steps}
    if (settings, changes) != (metadata["settings"], metadata["changes"]):
        write_json(folder / run_folder.RUN_FILE, metadata | {"settings": settings, "changes": changes})


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
