"""Load hostile model folders: each is refused with a message, quickly, in little memory, reading no other files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostile_files import folder_types as hostile_types
from hostile_files import folders as hostile

# the function that writes a good folder, and the changes to it
GOOD = (
    (hostile.write_good_folder, hostile.FOLDERS),
    (hostile.write_own_folder, hostile.OWN),
    (hostile.write_image_folder, hostile.IMAGES),
    (hostile.write_own_image_folder, hostile.OWN_IMAGES),
    (hostile_types.write_rotary_folder, hostile_types.ROTARY),
    (hostile_types.write_classifier_folder, hostile_types.CLASSIFIER),
)
SLOW = ("a million labels", "three hundred thousand labels")  # seconds to write
ALL = int(os.environ.get("JUMOK_FAULTS", "0")) > 50
CASES = {name: change for _, changes in GOOD for name, change in changes.items() if ALL or name not in SLOW}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    root = tmp_path_factory.mktemp("hostile")
    folders: dict[str, str] = {}
    for make_folder, changes in GOOD:
        make_folder(root / make_folder.__name__)
        for name, change in changes.items():
            if name not in CASES:
                continue
            folder = root / f"case{len(folders)}"
            shutil.copytree(root / make_folder.__name__, folder)
            change(folder)
            folders[str(folder)] = name
    command = [sys.executable, hostile.__file__, str(root / "write_good_folder"), *folders]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, completed.stderr[-2000:]
    rows = [json.loads(line) for line in completed.stdout.splitlines()]
    return {folders[row["folder"]]: row for row in rows}


@pytest.mark.xdist_group("hostile")
@pytest.mark.parametrize("name", CASES)
def test_hostile_folder_is_refused(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    row = outcomes[name]
    assert row["kind"] == "refused", row
    assert len(row["message"].split()) >= 4 and "Traceback" not in row["message"] and len(row["message"]) < 700, row[
        "message"
    ]
    assert row["seconds"] < 2, row  # CPU time of the process, independent of the machine's load
    assert row["bytes"] < 500 * 2**20, row
    assert not row["outside"], row


def test_there_are_at_least_100_cases() -> None:
    assert len(CASES) >= 100


def test_good_folders_load(tmp_path: Path) -> None:
    import jumok

    hostile.write_good_folder(tmp_path / "good")
    hostile.write_own_folder(tmp_path / "own")
    assert (
        jumok.load(tmp_path / "good").tokenizer.decode(jumok.load(tmp_path / "good").tokenizer.encode("abc")) == "abc"
    )
    assert jumok.load(tmp_path / "own").tokenizer is None
    hostile.write_own_image_folder(tmp_path / "pictures")
    assert jumok.load(tmp_path / "pictures").labels == ("cat", "dog")
    hostile_types.write_rotary_folder(tmp_path / "rotary")
    hostile_types.write_classifier_folder(tmp_path / "classifier")
    rotary = jumok.load(tmp_path / "rotary")
    assert (rotary.config.rotary_scaling, rotary.config.windowed, rotary.tokenizer.ends) == ("yarn", (1,), (0, 3))
    assert jumok.load(tmp_path / "classifier").config.classes == 3


def test_pickle_is_read_only_with_pickled(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    import jumok
    from jumok.errors import CheckpointError

    hostile.write_good_folder(tmp_path / "good")
    tensors = load_file(tmp_path / "good" / "model.safetensors")
    (tmp_path / "good" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "good" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickled=True"):
        jumok.load(tmp_path / "good")
    assert jumok.load(tmp_path / "good", pickled=True).family == "gpt"
    (tmp_path / "good" / "training_args.ckpt").write_bytes(b"")
    assert jumok.load(tmp_path / "good", pickled=True).family == "gpt"
    for suffix in (".pt", ".pth", ".ckpt"):
        (tmp_path / suffix).mkdir()
        shutil.copy(tmp_path / "good" / "config.json", tmp_path / suffix)
        torch.save(tensors, tmp_path / suffix / f"model{suffix}")
        with pytest.raises(CheckpointError, match="pickled=True"):
            jumok.load(tmp_path / suffix)
        assert jumok.load(tmp_path / suffix, pickled=True).family == "gpt"
    torch.save({"a": object}, tmp_path / "good" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"cannot be read as tensors|other than named tensors"):
        jumok.load(tmp_path / "good", pickled=True)
