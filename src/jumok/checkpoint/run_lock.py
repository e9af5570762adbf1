"""Lock the folder of a training run, so that only one process at a time writes into it.

The lock belongs to the process (flock) and ends with it, also after SIGKILL. The file that is locked says who holds it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from jumok.errors import TrainingError

try:
    import fcntl
except ImportError:  # Windows has no flock; there a run's folder is not locked
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = "run.lock"
MAX_HOLDER_BYTES = 4096
MAX_COMMAND_LENGTH = 200
UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # some network file systems cannot lock


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
