"""The folder of a training run: what resuming removes, and what it leaves alone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jumok.checkpoint import run_folder
from jumok.data.token_shards import TokenShards, write_shards
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError, CheckpointError, DataError, DrawError
from jumok.files import create_folder_atomically, read_limited, replace_file, write_atomically
from jumok.retrieval.store.index_version import DamagedIndexError, open_current
from jumok.training.metrics_log import read_metrics

USER_FILES = (".git/config", ".notes.md", ".env", ".DS_Store", ".vscode/settings.json", ".backup.part", ".a.json.bak")


class Killed(BaseException):
    """Stands for SIGKILL, after which no handler runs."""


def iter_until_killed() -> Iterator[list[int]]:
    yield [1, 2, 3]
    raise Killed


def list_leftovers(run: Path) -> set[str]:
    return {path.name for folder in (run, run / "checkpoints") for path in folder.glob(".*")}


def test_users_dot_files_survive(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for folder in (tmp_path, checkpoints):
        for name in USER_FILES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")

    run_folder.remove_temporary_files(tmp_path)

    for folder in (tmp_path, checkpoints):
        assert all((folder / name).read_text() == "mine" for name in USER_FILES)


def test_every_temporary_name_of_ours_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = run_folder.get_checkpoint_folder(tmp_path, 250)
    checkpoint.mkdir(parents=True)

    def fail(*arguments: object, **settings: object) -> None:
        raise Killed

    # What a killed process leaves: nothing is renamed into place, and nothing is cleaned up.
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fail)
        patch.setattr("pathlib.Path.unlink", lambda *arguments, **settings: None)
        patch.setattr("shutil.rmtree", lambda *arguments, **settings: None)
        with pytest.raises(Killed):
            write_atomically(tmp_path / "run.json", "{}")
        with pytest.raises(Killed), create_folder_atomically(run_folder.get_checkpoint_folder(tmp_path, 500)):
            pass
        run_folder.remove_checkpoint(checkpoint)
        with pytest.raises(Killed):
            write_shards(iter_until_killed(), tmp_path / "tokens", 7)

    names = list_leftovers(tmp_path)
    assert len(names) == 4, names
    run_folder.remove_temporary_files(tmp_path)
    assert list_leftovers(tmp_path) == set()


def test_pointer_to_a_deleted_checkpoint_is_named(tmp_path: Path) -> None:
    best, last = tmp_path / "checkpoints/step-00000010", tmp_path / "checkpoints/step-00000020"
    for folder in (best, last):
        folder.mkdir(parents=True)
    run_folder.write_pointer(tmp_path, "best", best)
    run_folder.write_pointer(tmp_path, "last", last)
    assert run_folder.select_checkpoint(tmp_path) == best
    best.rmdir()
    with pytest.raises(CheckpointError, match=r"best.json .* names a checkpoint that is gone; load another .*00020"):
        run_folder.select_checkpoint(tmp_path)


READERS: dict[str, Callable[[Path], object]] = {
    "metrics.jsonl": lambda path: read_metrics(path.parent),
    "speed.jsonl": lambda path: read_metrics(path.parent, "speed.jsonl"),
    "index.json": lambda path: TokenShards(path.parent),
    "current.json": lambda path: open_current(path.parent),
    "best.json": lambda path: run_folder.read_pointer(path.parent, "best"),
    "limited": lambda path: read_limited(path, 100),
}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are files of Unix")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_not_read(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    if name == "best.json":  # not a file: no pointer
        assert READERS[name](path) is None
        return
    with pytest.raises((ArgumentError, DataError, DamagedIndexError), match=r"not a regular file|cannot be read"):
        READERS[name](path)


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = save_line_plot({"loss": [(1, 2.0), (2, 1.0)]}, tmp_path / "loss.png")
    before = picture.read_bytes()

    def fail(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        with pytest.raises(DrawError, match="No space left"):
            save_line_plot({"loss": [(1, 9.0), (2, 8.0)]}, picture)
    assert picture.read_bytes() == before and os.listdir(tmp_path) == ["loss.png"]

    (tmp_path / "long").write_bytes(b"x" * 1030)
    with pytest.raises(ArgumentError, match=r"has 1,030 bytes; the limit"):
        read_limited(tmp_path / "long", 1000)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are files of Unix")
def test_a_pipe_or_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with replace_file(tmp_path / "pipe") as path:
        assert path == tmp_path / "pipe"
    assert not (tmp_path / "pipe").is_file()
