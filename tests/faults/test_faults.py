"""A run that is killed anywhere, any number of times, is in the end the run that never stopped.

JUMOK_FAULTS=200 makes that many kills at random moments (``make faults``); the ordinary tests make a few.
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
from faults.harness import check_end, check_left, child, ended, killed_after, new_run
from faults.points import POINTS, die, nth
from jumok.checkpoint import manifest, run_folder
from jumok.training import fit
from toys import toy

MANY = int(os.environ.get("JUMOK_FAULTS", "4"))

pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads do not survive a fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that never stopped."""
    fit(toy(steps=1), new_run(tmp_path_factory.mktemp("first") / "run"))  # imports what is imported late
    run = new_run(tmp_path_factory.mktemp("straight") / "run")
    assert ended(child(run)) == 0
    return run


@pytest.mark.parametrize("time_of", [1, 2, 5] if MANY > 50 else [2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_inside_a_save(tmp_path: Path, straight: Path, point: str, time_of: int) -> None:
    run = new_run(tmp_path / "run")
    code = ended(child(run, lambda: POINTS[point](nth(time_of, die))))
    assert code in (-signal.SIGKILL, 0)  # 0: there are not so many of them in one run
    check_left(run)
    assert ended(child(run)) == 0
    check_end(run, straight)


def test_killed_before_any_best_is_pointed_to(tmp_path: Path, straight: Path) -> None:
    """The checkpoint is there, and says that it is the best one; who goes on from it must not leave the older one."""
    for time_of in range(1, 20):
        run = new_run(tmp_path / str(time_of))
        if ended(child(run, lambda count=time_of: POINTS["between the pointers"](nth(count, die)))) == 0:
            break
        assert ended(child(run)) == 0
        check_end(run, straight)
    assert 2 < time_of < 19


def test_every_point_is_reached(tmp_path: Path) -> None:
    for place, point in enumerate(POINTS):
        run = new_run(tmp_path / str(place))
        assert ended(child(run, lambda point=point: POINTS[point](nth(1, die)))) == -signal.SIGKILL, point


def test_killed_at_random_moments(tmp_path: Path, straight: Path) -> None:
    """Several kills a run, until it comes to its end by itself."""
    draw = random.Random(7)
    kills = runs_done = 0
    started = time.monotonic()
    assert ended(child(new_run(tmp_path / "timed"))) == 0
    whole = time.monotonic() - started
    while kills < MANY:
        run = new_run(tmp_path / f"run-{runs_done}")
        runs_done += 1
        for _ in range(4):
            code = killed_after(run, draw.uniform(0.02, whole))
            check_left(run)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
        assert ended(child(run)) == 0
        check_end(run, straight)
        shutil.rmtree(run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_saves_and_goes(tmp_path: Path, straight: Path, number: int) -> None:
    run = new_run(tmp_path / "run")
    one = child(run)
    while not run_folder.list_checkpoints(run):
        time.sleep(0.005)
    os.kill(one, number)
    code = ended(one)
    assert code in (128 + number, 0)
    check_left(run)
    assert ended(child(run)) == 0
    check_end(run, straight)


def test_a_full_disk(tmp_path: Path, straight: Path) -> None:
    """On a real file system that has room for two checkpoints and a half."""
    place = tmp_path / "small"
    place.mkdir()
    size = sum(path.stat().st_size for path in (straight / run_folder.CHECKPOINTS_FOLDER).rglob("*") if path.is_file())
    one = size // len(run_folder.list_checkpoints(straight))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={int(one * 2.5) // 4096 * 4096}", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        run = new_run(place / "run")
        code = ended(child(run))
        assert code == 3  # it says so and ends
        check_left(run)
        assert run_folder.list_checkpoints(run), "a checkpoint from before the disk was full is there"
        assert not [path for path in (run / run_folder.CHECKPOINTS_FOLDER).iterdir() if path.name.startswith(".")]
        jumok.load(run)
        moved = tmp_path / "roomy"
        shutil.copytree(run, moved)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert ended(child(moved)) == 0
    check_end(moved, straight)


def test_a_file_that_may_not_grow(tmp_path: Path, straight: Path) -> None:
    """The same on any machine: files above a size are refused by the system."""
    run = new_run(tmp_path / "run")
    largest = max(
        path.stat().st_size for path in (straight / run_folder.CHECKPOINTS_FOLDER).rglob("*") if path.is_file()
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, resource.RLIM_INFINITY))

    assert ended(child(run, limit)) == 3
    assert not run_folder.list_checkpoints(run) and not list((run / run_folder.CHECKPOINTS_FOLDER).iterdir())
    assert ended(child(run)) == 0
    check_end(run, straight)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_after_a_kill(tmp_path: Path, straight: Path, damage: str) -> None:
    """The newest checkpoint is damaged: the one before it serves."""
    run = new_run(tmp_path / "run")
    assert ended(child(run, lambda: POINTS["before the manifest"](nth(4, die)))) == -signal.SIGKILL
    newest = run_folder.list_checkpoints(run)[0][1]
    files = sorted(path for path in newest.iterdir() if path.name != manifest.MANIFEST_FILE)
    for path in files:
        copy = tmp_path / f"{damage}-{path.name}"
        shutil.copytree(run, copy)
        hurt = copy / path.relative_to(run)
        data = bytearray(hurt.read_bytes())
        if damage == "gone":
            hurt.unlink()
        elif damage == "cut":
            hurt.write_bytes(data[:-1])
        else:
            data[len(data) // 3] ^= 0x10
            hurt.write_bytes(data)
        assert ended(child(copy)) == 0, path.name
        check_end(copy, straight)
