"""Open the folder of a run for writing: create or check it, lock it, and store the request before data is prepared."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from jumok.checkpoint import run_folder
from jumok.checkpoint.run_lock import LOCK_FILE, lock_run
from jumok.errors import ArgumentError, JumokError, TrainingError
from jumok.training import World
from jumok.training.resume import describe_differences

from .data_files import describe_change, describe_files
from .request import TrainingRequest
from .run_record import read_record, refuse_other_folders, write_record


def find_free_folder(recipe: str) -> Path:
    """Return the first of runs/RECIPE-1, runs/RECIPE-2, ... that does not exist."""
    number = 1
    while Path(f"runs/{recipe}-{number}").exists():
        number += 1
    return Path(f"runs/{recipe}-{number}")


def format_resume_command(folder: Path, processes: int = 1, parallel: str | None = None) -> str:
    """Return the command that continues a run, quoted for a shell.

    >>> format_resume_command(Path("runs/my book"), 2)
    "jumok train --resume 'runs/my book' --processes 2"
    """
    command = f"jumok train --resume {shlex.quote(str(folder))}"
    if processes > 1:
        command += f" --processes {processes}" + (" --parallel fsdp" if parallel == "fsdp" else "")
    return command


@contextlib.contextmanager
def open_new_run(request: TrainingRequest, world: World) -> Iterator[list[Path]]:
    """Create and lock the folder of a run and store the request in it; the lock ends with the context.

    A folder whose run was interrupted before its data was prepared is continued by the same request.

    Yields:
        The folders to remove if the request turns out to be invalid; empty if the run is continued.
    """
    if not world.is_main:
        yield []
        return
    folder = request.folder
    new_folders = [folder, *(path for path in folder.parents if not path.exists())]
    _is_interrupted_run(request)
    data_files = describe_files(request.data)
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True, exist_ok=True)

    with lock_run(folder):
        run_folder.remove_temporary_files(folder)
        if _is_interrupted_run(request):  # again: another process may have written there before the lock
            request.report(f"continuing {folder}, whose data was not prepared completely")
            yield []
        else:
            write_record(request, data_files)
            yield new_folders


@contextlib.contextmanager
def open_existing_run(folder: Path, world: World) -> Iterator[None]:
    """Lock the folder of a run, and remove the temporary files of a killed process; the lock ends with the context."""
    refuse_other_folders(folder)
    if not world.is_main:
        yield
        return
    with lock_run(folder):
        run_folder.remove_temporary_files(folder)
        yield


@contextlib.contextmanager
def remove_if_invalid(folders: list[Path]) -> Iterator[None]:
    """Remove new folders after a user's mistake. After Ctrl-C, or if another process of the run has ended, they stay,
    and the run can be continued.
    """
    try:
        yield
    except (JumokError, OSError):
        if folders:
            shutil.rmtree(folders[0], ignore_errors=True)
        with contextlib.suppress(OSError):  # another process may have created files in a parent meanwhile
            for path in folders[1:]:
                path.rmdir()
        raise


def _is_interrupted_run(request: TrainingRequest) -> bool:
    """Return True if the folder holds the same request without prepared data, and False if it is unused.

    Raises ArgumentError or TrainingError if it is used otherwise.
    """
    folder = request.folder
    if not folder.exists() or _is_unused(folder):
        return False
    refusal = ArgumentError(f"{folder} already exists; choose another folder with --out (out= in Python)")
    if not run_folder.is_run(folder):
        raise refusal
    try:
        record = read_record(folder, request.report)
    except TrainingError:
        raise refusal from None
    resume = f"resume it: {format_resume_command(folder)}"
    if record.data_facts is not None:
        raise ArgumentError(f"{folder} already exists; {resume}; or choose another folder with --out (out= in Python)")
    differences = describe_differences(record.request.to_json(), json.loads(json.dumps(request.to_json())))
    if differences:
        raise ArgumentError(
            f"{folder} holds an interrupted run with a different request ({differences}); {resume}, or choose another "
            "folder with --out"
        )
    refuse_changed_data(describe_change(record.data_files, request.data), folder)
    return True


def refuse_changed_data(change: str | None, folder: Path) -> None:
    """Raise TrainingError if data that must be read again has changed."""
    if change is not None:
        raise TrainingError(
            f"{change} since the run in {folder} started, and the run has not stored its data; restore the data, or "
            "start a new run in another folder"
        )


def _is_unused(folder: Path) -> bool:
    """Return True for a folder that is empty, or that a process left before it stored its request."""
    if not folder.is_dir():
        return False
    for path in folder.iterdir():
        is_empty = path.name == run_folder.CHECKPOINTS_FOLDER and path.is_dir() and not any(path.iterdir())
        if not (is_empty or path.name == LOCK_FILE or run_folder.TEMPORARY_FILE.fullmatch(path.name)):
            return False
    return True
