"""Several processes and their launcher: signals as a terminal sends them, kills at any moment, and mistakes.

``make faults`` (JUMOK_FAULTS=200) runs all of it; the ordinary tests start processes as seldom as possible.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jumok.checkpoint import manifest, run_folder
from jumok.checkpoint.run_folder import lock_run

pytestmark = [
    pytest.mark.xdist_group("launcher"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc"),
]

LOOPS = 4
only_faults = pytest.mark.skipif(int(os.environ.get("JUMOK_FAULTS", "4")) <= 50, reason="make faults runs it")
FIELDS = ("save_every=20", "evaluate_every=1000", "precision=float32", "width=16", "hidden=16")
OPTIONS = [*(f"--set={field}" for field in FIELDS), "--threads", "1", "--processes", "2"]


def start_jumok(*words: str) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a shell does."""
    command = [sys.executable, "-m", "jumok", *words]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip


def list_members(group: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = path.read_text().rpartition(") ")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            members.append(int(path.parent.name))
    return members


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def list_messages(error: str) -> list[str]:
    progress = ("step ", "evaluation at ", "training into ")
    return [line for line in error.splitlines() if line and not line.startswith(progress)]


def check_run(run: Path, process: subprocess.Popen[str]) -> None:
    """Assert that no process is left, that the folder is free and that its checkpoints are complete."""
    wait_for(lambda: not list_members(process.pid), 10)
    if run.is_dir():
        with lock_run(run):
            for _, checkpoint in run_folder.list_checkpoints(run):
                manifest.verify_manifest(checkpoint)


@only_faults
def test_ctrl_c_in_a_terminal_saves_and_stops(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the launcher and to all of its processes."""
    run = tmp_path / "my run"
    process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
    wait_for(lambda: run_folder.list_checkpoints(run))
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    messages = list_messages(error)
    assert process.returncode == 128 + signal.SIGINT and len(messages) == 1, error
    step = run_folder.list_checkpoints(run)[0][0]
    sentence, _, command = messages[0].partition("; continue with: ")
    assert sentence == f"stopped at step {step:,}"
    check_run(run, process)

    # the printed command continues the run, and a second signal ends it immediately
    process = start_jumok(*shlex.split(command)[1:])
    wait_for(lambda: run_folder.list_checkpoints(run)[0][0] > step)
    os.kill(process.pid, signal.SIGSTOP)  # so that both signals are there when it continues
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    check_run(run, process)


@only_faults
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_launcher_ends_at_any_moment(tmp_path: Path, number: int) -> None:
    generator = random.Random(number)
    for loop in range(LOOPS):
        run = tmp_path / f"run-{loop}"
        process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
        time.sleep(generator.uniform(0.3, 9.0))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        _, error = process.communicate(timeout=60)
        assert process.returncode in (-number, 128 + number), error
        assert "Traceback" not in error or len(error) < 3000, error  # before the command is imported, Python reports
        assert len(list_messages(error)) <= 1 or "Traceback" in error, error
        check_run(run, process)


def test_mistake_is_one_sentence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_jumok("train", "numbers", "--out", str(run), "--batch", "7", *OPTIONS)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert error.splitlines()[-1] == "jumok: a batch of 7 cannot be split evenly into 2 parts; change batch", error
    assert len(list_messages(error)) == 1 and not list_members(process.pid)
    assert not run.exists(), "the same command with another batch can use the folder"


def test_process_killed_before_anything_is_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
    wait_for(lambda: (run / "run.json").exists())
    ranks = [number for number in list_members(process.pid) if number != process.pid]
    os.kill(max(ranks), signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    messages = list_messages(error)
    assert len(messages) == 1 and "was killed by SIGKILL; " in messages[0], error
    assert f"Continue with: jumok train --resume {run} --processes 2" in messages[0]
    check_run(run, process)
