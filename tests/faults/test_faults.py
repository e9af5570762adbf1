"""A run that is killed anywhere, any number of times, ends as the run that never stopped.

JUMOK_FAULTS=200 kills that often at random moments (``make faults``); the ordinary tests kill a few times.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import jumok
from faults.harness import (
    check_checkpoints,
    check_finished_run,
    kill_after,
    start_child,
    train_in_child,
    wait_for_child,
)
from faults.points import POINTS, die, on_call
from jumok.checkpoint import manifest, run_folder
from jumok.training import fit
from toys import new_run, toy

KILLS = int(os.environ.get("JUMOK_FAULTS", "4"))

pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture(scope="module", autouse=True)
def _single_thread() -> Iterator[None]:
    """Threads do not survive a fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    fit(toy(steps=1), new_run(tmp_path_factory.mktemp("first") / "run"))  # imports what is imported on first use
    run = new_run(tmp_path_factory.mktemp("straight") / "run")
    assert train_in_child(run) == 0
    return run


def list_file_sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("call", [1, 2, 5] if KILLS > 50 else [2])
@pytest.mark.parametrize("point", POINTS)
def test_kill_during_a_save(tmp_path: Path, straight: Path, point: str, call: int) -> None:
    run = new_run(tmp_path / "run")
    code = train_in_child(run, lambda: POINTS[point](on_call(call, die)))
    assert code in (-signal.SIGKILL, 0)  # 0: the point is reached less often in one run
    check_checkpoints(run)
    assert train_in_child(run) == 0
    check_finished_run(run, straight)


def test_kill_before_the_best_pointer_is_written(tmp_path: Path, straight: Path) -> None:
    """The new checkpoint says that it is the best; a resumed run must point to it and not to the older one."""
    for call in range(1, 20):
        run = new_run(tmp_path / str(call))
        if train_in_child(run, lambda call=call: POINTS["between the pointers"](on_call(call, die))) == 0:
            break
        assert train_in_child(run) == 0
        check_finished_run(run, straight)
    assert 2 < call < 19


def test_every_point_is_reached(tmp_path: Path) -> None:
    for index, point in enumerate(POINTS):
        run = new_run(tmp_path / str(index))
        assert train_in_child(run, lambda point=point: POINTS[point](on_call(1, die))) == -signal.SIGKILL, point


def test_kills_at_random_moments(tmp_path: Path, straight: Path) -> None:
    """Several kills for each run, until it ends by itself."""
    generator = random.Random(7)
    kills = runs = 0
    started_at = time.monotonic()
    assert train_in_child(new_run(tmp_path / "timed")) == 0
    duration = time.monotonic() - started_at
    while kills < KILLS:
        run = new_run(tmp_path / f"run-{runs}")
        runs += 1
        for _ in range(4):
            code = kill_after(run, generator.uniform(0.02, duration))
            check_checkpoints(run)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
        assert train_in_child(run) == 0
        check_finished_run(run, straight)
        shutil.rmtree(run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_stops(tmp_path: Path, straight: Path, number: int) -> None:
    run = new_run(tmp_path / "run")
    process = start_child(run)
    while not run_folder.list_checkpoints(run):
        time.sleep(0.005)
    os.kill(process, number)
    assert wait_for_child(process) in (128 + number, 0)
    check_checkpoints(run)
    assert train_in_child(run) == 0
    check_finished_run(run, straight)


def test_full_disk(tmp_path: Path, straight: Path) -> None:
    """On a real file system that has space for two and a half checkpoints."""
    disk = tmp_path / "small"
    disk.mkdir()
    size = sum(list_file_sizes(straight / run_folder.CHECKPOINTS_FOLDER))
    checkpoint_size = size // len(run_folder.list_checkpoints(straight))
    disk_size = int(checkpoint_size * 2.5) // 4096 * 4096
    mount = ["mount", "-t", "tmpfs", "-o", f"size={disk_size}", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        run = new_run(disk / "run")
        assert train_in_child(run) == 3, "it stops with a TrainingError"
        check_checkpoints(run)
        assert run_folder.list_checkpoints(run), "the checkpoint before the disk was full is complete"
        names = [path.name for path in (run / run_folder.CHECKPOINTS_FOLDER).iterdir()]
        assert not [name for name in names if name.startswith(".")]
        jumok.load(run)
        moved = tmp_path / "moved"
        shutil.copytree(run, moved)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert train_in_child(moved) == 0
    check_finished_run(moved, straight)


def test_file_size_limit(tmp_path: Path, straight: Path) -> None:
    """The same on any machine: the system refuses files above a size."""
    run = new_run(tmp_path / "run")
    largest = max(list_file_sizes(straight / run_folder.CHECKPOINTS_FOLDER))

    def limit_file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, resource.RLIM_INFINITY))

    assert train_in_child(run, limit_file_size) == 3
    assert not run_folder.list_checkpoints(run) and not list((run / run_folder.CHECKPOINTS_FOLDER).iterdir())
    assert train_in_child(run) == 0
    check_finished_run(run, straight)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_after_a_kill(tmp_path: Path, straight: Path, damage: str) -> None:
    """The newest checkpoint is damaged: the run resumes from the one before it."""
    run = new_run(tmp_path / "run")
    assert train_in_child(run, lambda: POINTS["before the manifest"](on_call(4, die))) == -signal.SIGKILL
    newest = run_folder.list_checkpoints(run)[0][1]
    files = sorted(path for path in newest.iterdir() if path.name != manifest.MANIFEST_FILE)
    for path in files:
        copy = tmp_path / f"{damage}-{path.name}"
        shutil.copytree(run, copy)
        damaged = copy / path.relative_to(run)
        content = bytearray(damaged.read_bytes())
        if damage == "gone":
            damaged.unlink()
        elif damage == "cut":
            damaged.write_bytes(content[:-1])
        else:
            content[len(content) // 3] ^= 0x10
            damaged.write_bytes(content)
        assert train_in_child(copy) == 0, path.name
        check_finished_run(copy, straight)
