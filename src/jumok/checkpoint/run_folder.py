"""The folder of a training run: its checkpoints, and the pointers ``last`` and ``best`` among them.

run.json                     the recipe, what was asked of it, the settings
metrics.jsonl, speed.jsonl   the numbers of every few steps
checkpoints/step-00000250/   a folder that jumok.load reads, and what training needs beside it
last.json, best.json         {"checkpoint": "step-00000250"}
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from pathlib import Path

from jumok.errors import CheckpointError

from .tensor_files import read_json

RUN_FILE = "run.json"
CHECKPOINTS_FOLDER = "checkpoints"
NAME = re.compile(
    r"step-(\d{8,12})(?:-(\d{1,4}))?"
)  # one step may be saved again: the old one goes when the new one is there


def is_run(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file()


def get_checkpoint_folder(run: Path, step: int) -> Path:
    return run / CHECKPOINTS_FOLDER / f"step-{step:08d}"


def find_unused_checkpoint_folder(run: Path, step: int) -> Path:
    """A name for a checkpoint of this step that no folder has."""
    first = get_checkpoint_folder(run, step)
    names = [first, *(first.with_name(f"{first.name}-{again}") for again in range(1, 10_000))]
    return next(one for one in names if not one.exists())


def list_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every checkpoint, the newest first; whole or damaged."""
    place = run / CHECKPOINTS_FOLDER
    if not place.is_dir():
        return []
    named = [(NAME.fullmatch(one.name), one) for one in place.iterdir() if one.is_dir()]
    found = [(int(match[1]), int(match[2] or 0), one) for match, one in named if match is not None]
    return [(step, one) for step, _, one in sorted(found, reverse=True)]


def read_pointer(run: Path, pointer: str) -> Path | None:
    """The checkpoint that ``best`` or ``last`` points to; None where there is none."""
    if not (run / f"{pointer}.json").is_file():
        return None
    name = read_json(run, f"{pointer}.json").get("checkpoint")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CheckpointError(f"{pointer}.json in {run} does not name a checkpoint; it is damaged")
    place = run / CHECKPOINTS_FOLDER / name
    return place if place.is_dir() else None


def select_checkpoint(run: Path) -> Path:
    """The checkpoint that is meant by the run's folder: the best one, else the last."""
    for pointer in ("best", "last"):
        place = read_pointer(run, pointer)
        if place is not None:
            return place
    for _, place in list_checkpoints(run):
        return place
    raise CheckpointError(f"the run in {run} has no checkpoint yet; let it train until its first save")


def write_pointer(run: Path, pointer: str, checkpoint: Path) -> None:
    """Let ``pointer`` name this checkpoint; at every moment it names the old one or the new one."""
    write_atomically(run / f"{pointer}.json", json.dumps({"checkpoint": checkpoint.name}) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """A file that is there as it was or as it shall be, never in between."""
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with made.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def remove_checkpoint(checkpoint: Path) -> None:
    """Gone at once under its name, then bit by bit."""
    gone = checkpoint.with_name(f".gone-{checkpoint.name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        checkpoint.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def remove_temporary_files(run: Path) -> None:
    """Take away what a killed process left half written."""
    for place in (run, run / CHECKPOINTS_FOLDER):
        for left in place.glob(".*") if place.is_dir() else ():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
