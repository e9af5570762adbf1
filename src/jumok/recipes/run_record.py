"""The folder of a run: create or check it, lock it, and read and write run.json.

run.json has the request and, once the data is prepared, the settings and facts about the data. The request is written
before the data is prepared, so that a run that is killed meanwhile can be continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jumok import __version__
from jumok.checkpoint import run_folder
from jumok.checkpoint.run_folder import LOCK_FILE, lock_run
from jumok.checkpoint.tensor_files import read_json
from jumok.data.readers.file_list import list_files
from jumok.errors import ArgumentError, CheckpointError, JumokError, TrainingError
from jumok.files import write_atomically
from jumok.reporting import Report
from jumok.training import TrainingTask, World
from jumok.training.precision import TYPES
from jumok.training.resume import describe_differences

from .request import TrainingRequest

MAX_HASHED_BYTES = 16 * 2**30  # the content of more data is not hashed; then names, sizes and times decide


def find_free_folder(recipe: str) -> Path:
    """Return the first of runs/RECIPE-1, runs/RECIPE-2, ... that does not exist."""
    folders = (Path(f"runs/{recipe}-{number}") for number in itertools.count(1))
    return next(folder for folder in folders if not folder.exists())


def format_resume_command(folder: Path, processes: int = 1, parallel: str | None = None) -> str:
    """Return the command that continues a run, quoted for a shell.

    >>> format_resume_command(Path("runs/my book"), 2)
    "jumok train --resume 'runs/my book' --processes 2"
    """
    command = f"jumok train --resume {shlex.quote(str(folder))}"
    if processes > 1:
        command += f" --processes {processes}" + (" --parallel fsdp" if parallel == "fsdp" else "")
    return command


class NewRun(NamedTuple):
    """What ``describe_files`` returned for the user's data, and the folders to remove if the request is invalid."""

    data_files: dict[str, Any] | None = None
    new_folders: Sequence[Path] = ()


@contextlib.contextmanager
def open_new_run(request: TrainingRequest, world: World) -> Iterator[NewRun]:
    """Create and lock the folder of a run and store the request in it; the lock ends with the context.

    A folder whose run was interrupted before its data was prepared is continued by the same request.
    """
    if not world.is_main:
        yield NewRun()
        return
    folder = request.folder
    new_folders = [folder, *(path for path in folder.parents if not path.exists())]
    _is_interrupted_run(request)
    data_files = describe_files(request.data)
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True, exist_ok=True)

    with lock_run(folder):
        run_folder.remove_temporary_files(folder)
        if _is_interrupted_run(request):  # again: another process may have written there before the lock
            request.show_message(f"continuing {folder}, whose data was not prepared completely")
            yield NewRun(data_files)
        else:
            write_record(request, data_files)
            yield NewRun(data_files, new_folders)


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
def remove_if_invalid(folders: Sequence[Path]) -> Iterator[None]:
    """Remove new folders after a user's mistake. After Ctrl-C, or if another process has ended, they stay."""
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
        record = read_record(folder, request.show_message)
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


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json."""

    request: TrainingRequest
    data_files: dict[str, Any] | None  # as describe_files returned them; None without files
    data_facts: dict[str, Any] | None  # None if the run ended before its data was prepared
    threads: int | None = None  # None if the run has not trained yet, or trained on a GPU
    precision: str | None = None  # the dtype of matrix products; None if the run has not trained yet


def write_record(request: TrainingRequest, data_files: dict[str, Any] | None, task: TrainingTask | None = None) -> None:
    """Write run.json."""
    metadata = {**request.to_json(), "version": __version__, "data_files": data_files}
    if task is not None:
        metadata |= {"settings": task.settings.to_json(), "model": task.model.config.to_json()}
        metadata |= {"data_facts": dict(task.data)}
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


def read_record(folder: Path, show_message: Report) -> RunRecord:
    """Read run.json."""
    refuse_other_folders(folder)
    try:
        metadata = read_json(folder, run_folder.RUN_FILE)
        request = TrainingRequest.from_json(metadata, folder, show_message)
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
    settings = metadata.get("settings")
    stored = settings if isinstance(settings, dict) else {}
    threads, precision = stored.get("threads"), stored.get("precision")
    threads = threads if type(threads) is int and threads > 0 else None  # bool is a subclass of int
    precision = precision if isinstance(precision, str) and precision in TYPES else None
    return RunRecord(request, facts[0], facts[1], threads, precision)


def store_resumed_settings(folder: Path, threads: int, steps: int | None) -> None:
    """Write the settings of a resumed run into its run.json, so that the next ``--resume`` keeps them.

    A number of steps that the run has already reached is not stored: there is nothing to do.
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


def describe_files(data: str | None) -> dict[str, Any] | None:
    """Return the number, size and hashes of data files; None if the data is not a file or folder on this machine."""
    if data is None or not Path(data).exists():
        return None
    files = _list_regular_files(data)
    size = sum(path.stat().st_size for path in files)
    content = hashlib.sha256()
    for path in files if size <= MAX_HASHED_BYTES else ():
        content.update(f"{path.relative_to(data)}\0".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            content.update(hashlib.file_digest(file, "sha256").digest())
    return {
        "files": len(files),
        "bytes": size,
        "stamps": _hash_stamps(data, files),
        "sha256": content.hexdigest() if size <= MAX_HASHED_BYTES else None,
    }


def describe_change(recorded: dict[str, Any] | None, data: str | None) -> str | None:
    """Return how data files differ from what ``describe_files`` recorded; None if equal or not recorded."""
    if recorded is None or data is None:
        return None
    if not Path(data).exists():
        return f"{data} no longer exists"
    if _hash_stamps(data, _list_regular_files(data)) == recorded.get("stamps"):
        return None
    current = describe_files(data)
    assert current is not None
    if current["sha256"] is not None and current["sha256"] == recorded.get("sha256"):
        return None  # the files were copied or touched, but have the same content
    before, now = (f"files: {facts.get('files')}, bytes: {facts.get('bytes')}" for facts in (recorded, current))
    return f"{data} has changed" + (f" ({before}; now {now})" if before != now else "")


def _list_regular_files(path: str) -> list[Path]:
    """List the files that can be hashed: a pipe would block, and be empty when the recipe reads it."""
    return [file for file in list_files(path) if file.is_file()]


def _hash_stamps(root: str, files: list[Path]) -> str:
    """Return a hash of names, sizes and times, which is computed without reading the files."""
    stats = [(path.relative_to(root), path.stat()) for path in files]
    lines = "".join(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n" for name, stat in stats)
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
