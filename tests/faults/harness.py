"""Kill a training run, look at what is left, let it go on, and compare it with one that was never killed.

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


def new_run(folder: Path) -> Path:
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True)
    (folder / run_folder.RUN_FILE).write_text("{}")
    return folder


def child(run: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """Train in a process of its own; its process id."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare()
        run_folder.remove_temporary_files(run)  # as every run that is taken up again does first
        outcome = fit(toy(**FIELDS), run)
        code = 0 if outcome.signal is None else 128 + outcome.signal
    except TrainingError:
        code = 3
    finally:
        os._exit(code)


def ended(number: int) -> int:
    """How the child ended: its exit code, or minus the signal that killed it."""
    _, status = os.waitpid(number, 0)
    return os.waitstatus_to_exitcode(status)


def killed_after(run: Path, seconds: float) -> int:
    number = child(run)
    time.sleep(seconds)
    os.kill(number, signal.SIGKILL)
    return ended(number)


def check_left(run: Path) -> None:
    """Whatever happened: every checkpoint that has its name is whole, and the run can be loaded if there is one."""
    found = run_folder.list_checkpoints(run)
    for _, place in found:
        manifest.verify_manifest(place)
    if found:
        jumok.load(run)


def check_end(run: Path, straight: Path) -> None:
    """The run went on to its end: bit for bit the one that never stopped, and no litter."""
    assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    for pointer in ("best", "last"):
        mine, theirs = run_folder.read_pointer(run, pointer), run_folder.read_pointer(straight, pointer)
        assert mine is not None and theirs is not None
        for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
            assert (mine / name).read_bytes() == (theirs / name).read_bytes(), f"{pointer}: {name}"
    left = list(run.rglob(".*"))
    assert not left, left
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in straight.iterdir())
    torch.manual_seed(0)
