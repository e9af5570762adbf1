"""A model folder is hostile until proven otherwise: each of these is refused in a sentence, quickly, in little memory,
and nothing outside the folder is read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hostile
import hostile_types

# what each is done to
GOOD = (
    (hostile.good, hostile.FOLDERS),
    (hostile.own, hostile.OWN),
    (hostile.pictures, hostile.PICTURES),
    (hostile.own_pictures, hostile.OWN_PICTURES),
    (hostile_types.turning, hostile_types.TURNING),
    (hostile_types.sorting, hostile_types.SORTING),
)
CASES = {name: change for _, changes in GOOD for name, change in changes.items()}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    root = tmp_path_factory.mktemp("hostile")
    folders: dict[str, str] = {}
    for made, changes in GOOD:
        made(root / made.__name__)
        for name, change in changes.items():
            folder = root / f"case{len(folders)}"
            shutil.copytree(root / made.__name__, folder)
            change(folder)
            folders[str(folder)] = name
    command = [sys.executable, hostile.__file__, str(root / "good"), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {folders[row["folder"]]: row for row in rows}


@pytest.mark.xdist_group("hostile")
@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_in_a_sentence(told: dict[str, dict[str, Any]], name: str) -> None:
    row = told[name]
    assert row["kind"] == "refused", row
    assert len(row["said"].split()) >= 4 and "Traceback" not in row["said"] and len(row["said"]) < 700, row["said"]
    assert row["seconds"] < 2, row  # of this process's own time, whatever else the machine does
    assert row["bytes"] < 500 * 2**20, row
    assert not row["outside"], row


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40


def test_the_good_folders_load(tmp_path: Path) -> None:
    import jumok

    hostile.good(tmp_path / "good")
    hostile.own(tmp_path / "own")
    assert (
        jumok.load(tmp_path / "good").tokenizer.decode(jumok.load(tmp_path / "good").tokenizer.encode("abc")) == "abc"
    )
    assert jumok.load(tmp_path / "own").tokenizer is None
    hostile.own_pictures(tmp_path / "pictures")
    assert jumok.load(tmp_path / "pictures").labels == ("cat", "dog")
    hostile_types.turning(tmp_path / "turning")
    hostile_types.sorting(tmp_path / "sorting")
    turning = jumok.load(tmp_path / "turning")
    assert (turning.config.rotary_scaling, turning.config.windowed, turning.tokenizer.ends) == ("yarn", (1,), (0, 3))
    assert jumok.load(tmp_path / "sorting").config.classes == 3


def test_a_pickle_is_read_only_when_asked_for(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    import jumok
    from jumok.errors import CheckpointError

    hostile.good(tmp_path / "good")
    tensors = load_file(tmp_path / "good" / "model.safetensors")
    (tmp_path / "good" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "good" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickled=True"):
        jumok.load(tmp_path / "good")
    assert jumok.load(tmp_path / "good", pickled=True).family == "gpt"
    torch.save({"a": object}, tmp_path / "good" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"cannot be read as tensors|more than named tensors"):
        jumok.load(tmp_path / "good", pickled=True)
