"""The lock of a run's folder: one writer at a time, no trace after a crash, and readers are not concerned."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jumok.checkpoint import run_folder
from jumok.checkpoint.run_folder import LOCK_FILE, lock_run
from jumok.errors import TrainingError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def fork(work: Callable[[], None]) -> int:
    """Run a function in a new process, and return its id; the exit code is 1 if the function raises."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def start_holder(folder: Path) -> int:
    """Start a process that locks a folder and keeps the lock."""

    def hold() -> None:
        with lock_run(folder):
            (folder / "locked").touch()
            time.sleep(60)

    process = fork(hold)
    while not (folder / "locked").exists():
        time.sleep(0.005)
    return process


def test_second_writer_is_refused_and_sees_the_holder(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    try:
        sentence = rf"is being trained by process {process} on .+ since 20.+ \("
        with pytest.raises(TrainingError, match=sentence) as refusal, lock_run(tmp_path):
            pass
        assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 600
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == process, "its description stays behind"
    with lock_run(tmp_path):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK_FILE).exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[1]", b"{}", b"x" * 10_000])
def test_damaged_description_does_not_matter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK_FILE).write_bytes(content)
    with lock_run(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(content)
        with pytest.raises(TrainingError, match="is being trained by another process; wait"), lock_run(tmp_path):
            pass


def test_never_two_holders(tmp_path: Path) -> None:
    """Six processes lock and unlock at once; each removes the file while others wait for it."""

    def count() -> None:
        done = 0
        while done < 20:
            try:
                with lock_run(tmp_path):
                    os.close(
                        os.open(tmp_path / "inside", os.O_CREAT | os.O_EXCL)
                    )  # fails if another process holds the lock
                    (tmp_path / "inside").unlink()
                    done += 1
            except TrainingError:
                time.sleep(0.0002)

    processes = [fork(count) for _ in range(6)]
    assert [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes] == [0] * 6


def test_file_removed_by_its_last_holder_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, calls = run_folder.fcntl.flock, iter(range(100))

    def remove_and_lock(handle: int, operation: int) -> None:
        if next(calls) == 0:  # the holder ends between our open and our lock
            (tmp_path / LOCK_FILE).unlink()
        flock(handle, operation)

    monkeypatch.setattr(run_folder.fcntl, "flock", remove_and_lock)
    with lock_run(tmp_path):
        assert next(calls) == 2, "it was opened again"
        with pytest.raises(TrainingError, match="is being trained"), lock_run(tmp_path):
            pass


def test_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), lock_run(tmp_path):
        pass
    assert precious.read_text() == "mine"


def test_resuming_leaves_the_lock_alone(tmp_path: Path) -> None:
    with lock_run(tmp_path):
        run_folder.remove_temporary_files(tmp_path)
        assert (tmp_path / LOCK_FILE).exists()


def test_system_without_flock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fcntl", None)
        importlib.reload(run_folder)
        with run_folder.lock_run(tmp_path), run_folder.lock_run(tmp_path):
            assert not (tmp_path / LOCK_FILE).exists()
    importlib.reload(run_folder)
