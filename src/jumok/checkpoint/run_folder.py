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

from .errors import CheckpointError
from .tensor_files import read_json

RUN = "run.json"
CHECKPOINTS = "checkpoints"
NAME = re.compile(
    r"step-(\d{8,12})(?:-(\d{1,4}))?"
)  # one step may be saved again: the old one goes when the new one is there


def is_run(folder: Path) -> bool:
    return (folder / RUN).is_file()


def folder_of(run: Path, step: int) -> Path:
    return run / CHECKPOINTS / f"step-{step:08d}"


def free(run: Path, step: int) -> Path:
    """A name for a checkpoint of this step that no folder has."""
    first = folder_of(run, step)
    names = [first, *(first.with_name(f"{first.name}-{again}") for again in range(1, 10_000))]
    return next(one for one in names if not one.exists())


def checkpoints(run: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every checkpoint, the newest first; whole or damaged."""
    place = run / CHECKPOINTS
    if not place.is_dir():
        return []
    named = [(NAME.fullmatch(one.name), one) for one in place.iterdir() if one.is_dir()]
    found = [(int(match[1]), int(match[2] or 0), one) for match, one in named if match is not None]
    return [(step, one) for step, _, one in sorted(found, reverse=True)]


def pointed(run: Path, pointer: str) -> Path | None:
    """The checkpoint that ``best`` or ``last`` points to; None where there is none."""
    if not (run / f"{pointer}.json").is_file():
        return None
    name = read_json(run, f"{pointer}.json").get("checkpoint")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CheckpointError(f"{pointer}.json in {run} does not name a checkpoint; it is damaged")
    place = run / CHECKPOINTS / name
    return place if place.is_dir() else None


def usable(run: Path) -> Path:
    """The checkpoint that is meant by the run's folder: the best one, else the last."""
    for pointer in ("best", "last"):
        place = pointed(run, pointer)
        if place is not None:
            return place
    for _, place in checkpoints(run):
        return place
    raise CheckpointError(f"the run in {run} has no checkpoint yet; let it train until its first save")


def point(run: Path, pointer: str, checkpoint: Path) -> None:
    """Let ``pointer`` name this checkpoint; at every moment it names the old one or the new one."""
    write_whole(run / f"{pointer}.json", json.dumps({"checkpoint": checkpoint.name}) + "\n")


def write_whole(path: Path, text: str) -> None:
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


def remove(checkpoint: Path) -> None:
    """Gone at once under its name, then bit by bit."""
    gone = checkpoint.with_name(f".gone-{checkpoint.name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        checkpoint.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def sweep(run: Path) -> None:
    """Take away what a killed process left half written."""
    for place in (run, run / CHECKPOINTS):
        for left in place.glob(".*") if place.is_dir() else ():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
