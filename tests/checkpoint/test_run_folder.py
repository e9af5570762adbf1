"""The folder of a training run: what resuming removes, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jumok.checkpoint import run_folder
from jumok.checkpoint.manifest import create_folder_atomically
from jumok.data.token_store.token_shards import write_shards
from jumok.errors import CheckpointError

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
            run_folder.write_atomically(tmp_path / "run.json", "{}")
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
