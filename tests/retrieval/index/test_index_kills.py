"""Kill a process that indexes a folder at any moment: the next one ends with the index of a run that was never killed.

JUMOK_FAULTS=200 kills that often at random moments (``make faults``); the ordinary tests kill a few times. The children
are forked, so that torch is imported once for all of them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.points import die, strike_after, strike_before
from jumok.retrieval import open_index
from jumok.retrieval.store import build, index_version, passage_database
from jumok.retrieval.store.folder_index import inspect_index
from jumok.retrieval.store.index_version import locate_index, lock_index
from retrieval.index_folders import describe_contents, save_small_embedder, write_files, write_notes

KILLS = int(os.environ.get("JUMOK_FAULTS", "4"))
FILES = 40

pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture(autouse=True)
def _single_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads do not survive a fork."""
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "CHUNK", 8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_small_embedder(tmp_path_factory.mktemp("embedder") / "model")


def start_child(folder: Path, embedder: str, prepare: Callable[[], Any] = lambda: None) -> int:
    """Index a folder in a new process, after ``prepare``, and return its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        prepare()
        with open_index(folder, embedder=embedder) as index:
            contents = json.dumps(describe_contents(index), default=str)
            Path(f"{folder}-{os.getpid()}.json").write_text(contents)
        code = 0
    finally:
        os._exit(code)


def wait_for_child(process: int) -> int:
    """Return the child's exit code, or minus the signal that killed it."""
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def check_index(folder: Path, embedder: str, tmp_path: Path) -> None:
    """Assert that opening the index gives what a fresh build gives, and that nothing else is left on the disk."""
    with open_index(folder, embedder=embedder) as index:
        contents = describe_contents(index)
        assert index.status.notices == (), "a killed process leaves no damage"
        location = Path(index.status.location)
    assert len(list(location.glob("generation-*"))) == 1
    assert sorted(path.name for path in location.iterdir() if path.is_file()) == ["current.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(tmp_path / "fresh"))
        with open_index(folder, embedder=embedder, rebuild=True) as fresh:
            assert contents == describe_contents(fresh)


def change_files(folder: Path, turn: int) -> None:
    """Add, change and remove files."""
    write_files(folder, {f"numbers/{turn % FILES}.txt": f"Changed in turn {turn}.", f"new/{turn}.txt": f"New {turn}."})
    if turn > 2:
        (folder / "new" / f"{turn - 3}.txt").unlink(missing_ok=True)


POINTS: dict[str, Callable[[], None]] = {
    "after files are listed": lambda: strike_before(passage_database.PassageDatabase, "list_files", die),
    "after files are read": lambda: strike_after(build, "_read_files", die),
    "before vectors are stored": lambda: strike_before(passage_database.PendingVectors, "add", die),
    "after vectors are stored": lambda: strike_after(passage_database.PendingVectors, "add", die),
    "after BM25 is built": lambda: strike_after(build, "_build_bm25", die),
    "before the switch": lambda: strike_before(os, "replace", die),
    "after the switch": lambda: strike_after(os, "replace", die),
    "before old files are removed": lambda: strike_before(index_version, "remove_leftovers", die),
    "while old files are removed": lambda: strike_after(index_version, "remove_leftovers", die),
}


# each point during a first build and during an update; in the ordinary tests one of the two
CASES = [(point, is_update) for point in POINTS for is_update in (False, True)]
SOME_CASES = [(point, number % 2 == 0) for number, point in enumerate(POINTS)]


@pytest.mark.parametrize(("point", "is_update"), CASES if KILLS > 50 else SOME_CASES)
def test_kill_at_a_point(tmp_path: Path, embedder: str, point: str, is_update: bool) -> None:
    folder = write_notes(tmp_path / "notes", count=10)
    if is_update:
        open_index(folder, embedder=embedder).close()
        change_files(folder, 1)
    process = start_child(folder, embedder, POINTS[point])
    assert wait_for_child(process) == -signal.SIGKILL
    if is_update and list(POINTS).index(point) <= list(POINTS).index("before the switch"):
        status = inspect_index(folder)
        assert status is not None and status.changes.new == 1, "the old index is still there"
    check_index(folder, embedder, tmp_path)


def test_kill_at_random_moments(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes", count=FILES)
    start = time.monotonic()
    assert wait_for_child(start_child(folder, embedder)) == 0
    duration = time.monotonic() - start
    generator = random.Random(0)
    killed = 0
    for turn in range(KILLS):
        change_files(folder, turn)
        process = start_child(folder, embedder)
        time.sleep(generator.random() * duration)
        os.kill(process, signal.SIGKILL)
        killed += wait_for_child(process) == -signal.SIGKILL
        if turn % 2 or KILLS <= 4:  # sometimes the next process is killed too
            check_index(folder, embedder, tmp_path)
    assert killed


def test_two_processes_at_once(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes", count=FILES)
    for turn in range(2):
        processes = [start_child(folder, embedder) for _ in range(3)]
        assert [wait_for_child(process) for process in processes] == [0, 0, 0]
        contents = {Path(f"{folder}-{process}.json").read_text() for process in processes}
        assert len(contents) == 1
        check_index(folder, embedder, tmp_path)
        change_files(folder, turn)


def test_a_process_that_waits_says_so(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes")
    reported: list[str] = []
    has_waited = threading.Event()

    def report(sentence: str) -> None:
        reported.append(sentence)
        has_waited.set()

    opened: list[str] = []
    with lock_index(locate_index(folder), lambda sentence: None):
        thread = threading.Thread(
            target=lambda: opened.append(open_index(folder, embedder=None, report=report).status.action)
        )
        thread.start()
        assert has_waited.wait(60) and opened == []
    thread.join()
    assert opened == ["built"] and reported == ["another process is indexing this folder; waiting for it"]


def test_a_killed_process_does_not_keep_the_lock(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes")
    process = start_child(folder, embedder, lambda: strike_before(build, "_read_files", lambda: time.sleep(600)))
    location = locate_index(folder)
    while not list(location.glob("generation-*")):
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    assert wait_for_child(process) == -signal.SIGKILL
    check_index(folder, embedder, tmp_path)
