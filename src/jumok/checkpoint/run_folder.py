"""The folder of a training run: its checkpoints, and the pointers ``last`` and ``best`` to two of them.

run.json                     the recipe, the request and the settings
metrics.jsonl, speed.jsonl   the measurements, one line every few steps
checkpoints/step-00000250/   a folder that jumok.load reads, with the optimizer's state beside it
last.json, best.json         {"checkpoint": "step-00000250"}
run.lock                     locked (flock) by the process that trains, also until a SIGKILL; says who that is
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import shlex
import shutil
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from jumok.errors import CheckpointError, TrainingError
from jumok.files import write_atomically

from .tensor_files import read_json

try:
    import fcntl
except ImportError:  # Windows has no flock; there a run's folder is not locked
    fcntl = None  # type: ignore[assignment]

RUN_FILE = "run.json"
LOCK_FILE = "run.lock"
MAX_HOLDER_BYTES = 4096
MAX_COMMAND_LENGTH = 200
UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some network file systems cannot lock
CHECKPOINTS_FOLDER = "checkpoints"
# the optional suffix: saving a step again writes a new folder before the old one is removed; -0 is saved before the
# evaluation of the step, and replaced by the name without a suffix after it
CHECKPOINT_NAME = re.compile(r"step-(\d{8,12})(?:-(\d{1,4}))?")
# The temporary names that Jumok creates. A user may keep other dot-files (.git, .notes.md) in a run's folder.
TEMPORARY_FILE = re.compile(
    r"\.[\w-]+\.(?:json|jsonl|md|png|wav|safetensors)\.[0-9a-f]{8}"  # files.replace_file
    r"|\.(?:tokens|tokenizer)\.\w{8}"  # files.create_folder_atomically
)
TEMPORARY_CHECKPOINT = re.compile(
    rf"\.gone-{CHECKPOINT_NAME.pattern}-[0-9a-f]{{8}}"  # remove_checkpoint
    rf"|\.{CHECKPOINT_NAME.pattern}\.\w{{8}}"  # create_folder_atomically
)


def is_run(folder: Path) -> bool:
    """Return True if a folder holds a training run."""
    return (folder / RUN_FILE).is_file()


def describe_missing_record(folder: Path) -> str | None:
    """Return what is wrong with a folder that has the checkpoints of a run but no run.json; None for other folders."""
    if is_run(folder) or not list_checkpoints(folder):
        return None
    return f"{folder} has checkpoints but no {RUN_FILE}, which holds the request of the run; restore it from a copy"


def get_checkpoint_folder(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return run / CHECKPOINTS_FOLDER / f"step-{step:08d}"


def find_unused_checkpoint_folder(run: Path, step: int, owed: bool = False) -> Path:
    """Return a folder name for a checkpoint that does not exist yet; its evaluation may be owed still."""
    first = get_checkpoint_folder(run, step)
    names = [first.name, *(f"{first.name}-{number}" for number in range(1, 10_000))]
    if owed:
        names.insert(0, f"{first.name}-0")
    return next(first.with_name(name) for name in names if not first.with_name(name).exists())


def list_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of every checkpoint, complete or damaged, the newest first."""
    parent = run / CHECKPOINTS_FOLDER
    if not parent.is_dir():
        return []
    checkpoints = []
    for folder in parent.iterdir():
        match = CHECKPOINT_NAME.fullmatch(folder.name)
        if match is not None and folder.is_dir():
            order = -1 if match[2] == "0" else int(match[2] or 0)
            checkpoints.append((int(match[1]), order, folder))
    return [(step, folder) for step, _, folder in sorted(checkpoints, reverse=True)]


def read_pointer(run: Path, pointer: str) -> Path | None:
    """Return the checkpoint that a pointer names; None if there is no pointer, or its checkpoint is gone."""
    if not (run / f"{pointer}.json").is_file():
        return None
    try:
        name = read_json(run, f"{pointer}.json").get("checkpoint")
    except CheckpointError:
        name = None
    if not isinstance(name, str) or not CHECKPOINT_NAME.fullmatch(name):
        raise CheckpointError(f"{pointer}.json in {run} is damaged: it does not name a checkpoint")
    folder = run / CHECKPOINTS_FOLDER / name
    return folder if folder.is_dir() else None


def select_checkpoint(run: Path) -> Path:
    """Return the checkpoint to load from a run: the best, else the last, else the newest."""
    checkpoints = [folder for _, folder in list_checkpoints(run)]
    for pointer in ("best", "last"):
        try:
            # twice: a running training may replace the pointer and remove its old checkpoint between the two reads
            folder = read_pointer(run, pointer) or read_pointer(run, pointer)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; repair it with: jumok train --resume {shlex.quote(str(run))}") from None
        if folder is not None:
            return folder
        if (run / f"{pointer}.json").is_file() and checkpoints:
            raise CheckpointError(
                f"{pointer}.json in {run} names a checkpoint that is gone; load another one by its path: "
                f"{checkpoints[0]}"
            )
    for folder in checkpoints:
        return folder
    raise CheckpointError(f"the run in {run} has no checkpoint yet; let it train until its first save")


def write_pointer(run: Path, pointer: str, checkpoint: Path) -> None:
    """Atomically point ``best`` or ``last`` to another checkpoint."""
    write_atomically(run / f"{pointer}.json", json.dumps({"checkpoint": checkpoint.name}) + "\n")


def remove_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that an interruption leaves no incomplete folder under its name."""
    renamed = checkpoint.with_name(f".gone-{checkpoint.name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        checkpoint.rename(renamed)
        shutil.rmtree(renamed, ignore_errors=True)


def remove_temporary_files(run: Path) -> None:
    """Remove the temporary files and folders that a killed process left behind, and nothing else."""
    for folder, pattern in ((run, TEMPORARY_FILE), (run / CHECKPOINTS_FOLDER, TEMPORARY_CHECKPOINT)):
        if not folder.is_dir():
            continue
        for path in folder.glob(".*"):
            if not pattern.fullmatch(path.name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder while the context is open. Loading a model from the folder needs no lock."""
    handle = _acquire_lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            (folder / LOCK_FILE).unlink(missing_ok=True)  # before the lock ends, while no other process can hold it
            os.close(handle)


def _acquire_lock(folder: Path) -> int | None:
    """Return the open and locked file; None where files cannot be locked."""
    if fcntl is None:
        return None
    path = folder / LOCK_FILE
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(handle, path):
                os.ftruncate(handle, 0)  # a killed process may have left its description
                os.write(handle, json.dumps(_describe_this_process()).encode())
                return handle
        except BlockingIOError:
            holder = _describe_holder(os.read(handle, MAX_HOLDER_BYTES))
            os.close(handle)
            raise TrainingError(
                f"{folder} is being trained by {holder}; wait until it has finished or stop it, or use another folder"
            ) from None
        except OSError as error:
            os.close(handle)
            if error.errno in UNSUPPORTED:
                return None
            raise
        os.close(handle)  # its last holder removed the file between our open and our lock


def _is_current(handle: int, path: Path) -> bool:
    """Return True if the folder still has the file that was opened."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _describe_this_process() -> dict[str, str | int]:
    name = Path(sys.argv[0]).name
    command = shlex.join(["jumok" if name == "__main__.py" else name, *sys.argv[1:]])
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        "command": command[:MAX_COMMAND_LENGTH],
    }


def _describe_holder(content: bytes) -> str:
    """Return who holds the lock, from the content of the locked file."""
    try:
        holder = json.loads(content)
        description = f"process {holder['pid']} on {holder['host']} since {holder['since']} ({holder['command']})"
    except (ValueError, KeyError, TypeError):  # it has just been locked, and nothing is written yet
        return "another process"
    return description[: 2 * MAX_COMMAND_LENGTH]
