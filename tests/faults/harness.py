"""Kill a training run, check what is on disk, resume it, and compare it with a run that was never killed.

The children are forked, so that torch is imported once for hundreds of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch

import jumok
from jumok.checkpoint import manifest, run_folder
from jumok.errors import TrainingError
from jumok.training import fit
from toys import toy

FIELDS = {"steps": 10, "evaluate_every": 3, "save_every": 2, "average": 0.5, "threads": 1}


def start_child(run: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """Train in a new process, after ``prepare``, and return its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare()
        run_folder.remove_temporary_files(run)  # as every resumed run does first
        outcome = fit(toy(**FIELDS), run)
        code = 0 if outcome.signal is None else 128 + outcome.signal
    except TrainingError:
        code = 3
    finally:
        os._exit(code)


def wait_for_child(process: int) -> int:
    """Return the child's exit code, or minus the signal that killed it."""
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def train_in_child(run: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """Train in a new process, and return its exit code."""
    return wait_for_child(start_child(run, prepare))


def kill_after(run: Path, seconds: float) -> int:
    """Train in a new process, kill it after some seconds, and return its exit code."""
    process = start_child(run)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    return wait_for_child(process)


def check_checkpoints(run: Path) -> None:
    """Assert that every checkpoint with a final name is complete, and that the run can be loaded if it has one."""
    checkpoints = run_folder.list_checkpoints(run)
    for _, checkpoint in checkpoints:
        manifest.verify_manifest(checkpoint)
    if checkpoints:
        jumok.load(run)


def check_finished_run(run: Path, straight: Path) -> None:
    """Assert that a run equals one that never stopped, bit for bit, and left no temporary files."""
    assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    for pointer in ("best", "last"):
        actual, expected = run_folder.read_pointer(run, pointer), run_folder.read_pointer(straight, pointer)
        assert actual is not None and expected is not None
        for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
            assert (actual / name).read_bytes() == (expected / name).read_bytes(), f"{pointer}: {name}"
    temporary = list(run.rglob(".*"))
    assert not temporary, temporary
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in straight.iterdir())
    torch.manual_seed(0)
