"""Find hub names in a cache of Hugging Face's layout, and compare with huggingface_hub."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

import jumok
from hostile_files import folders as hostile
from jumok.checkpoint import resolve
from jumok.checkpoint.resolve import resolve_model_path
from jumok.errors import CheckpointError

FIRST, SECOND = "1" * 40, "abcdef0123" * 4
NAME = "some-owner/a_model.v2"


def add_to_cache(cache: Path, name: str, commit: str, source: Path, *references: str) -> Path:
    """Add a commit as the Hub's client does: files in blobs by their hash, links in the snapshot, names in refs."""
    repository = cache / f"models--{name.replace('/', '--')}"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / commit
    blobs.mkdir(parents=True, exist_ok=True)
    snapshot.mkdir(parents=True)
    for file in source.iterdir():
        blob = blobs / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    for reference in references:
        path = repository / "refs" / reference
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
    return snapshot


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)  # a folder without a hub's name
    hostile.write_good_folder(tmp_path / "good")
    hostile.write_own_folder(tmp_path / "own")
    cache_folder = tmp_path / "home" / "hub"
    add_to_cache(cache_folder, NAME, FIRST, tmp_path / "own", "v1", "refs/pr/3")
    add_to_cache(cache_folder, NAME, SECOND, tmp_path / "good", "main")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache_folder))
    return cache_folder


@pytest.mark.parametrize(
    ("revision", "commit"),
    [("", SECOND), ("@main", SECOND), ("@v1", FIRST), ("@refs/pr/3", FIRST), (f"@{FIRST}", FIRST)],
)
def test_snapshot_is_the_one_that_huggingface_hub_finds(cache: Path, revision: str, commit: str) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    expected = huggingface_hub.snapshot_download(
        NAME, revision=revision[1:] or None, cache_dir=cache, local_files_only=True
    )
    assert (
        resolve_model_path(NAME + revision)
        == Path(expected)
        == cache / "models--some-owner--a_model.v2" / "snapshots" / commit
    )
    file = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=cache, revision=revision[1:] or None)
    assert Path(file) == resolve_model_path(NAME + revision) / "config.json"


def test_model_loads_through_links(cache: Path) -> None:
    loaded = jumok.load(NAME)
    assert loaded.family == "gpt" and loaded.tokenizer.decode(loaded.tokenizer.encode("abc")) == "abc"
    assert jumok.load(f"{NAME}@v1").tokenizer is None  # our own folder, with its manifest


def test_name_without_an_owner_loads(cache: Path, tmp_path: Path) -> None:
    add_to_cache(cache, "gpt2", FIRST, tmp_path / "good", "main")
    assert jumok.load("gpt2").family == "gpt"


def test_cache_location_follows_the_variables_of_huggingface_hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare in fresh processes, because huggingface_hub reads the variables once."""
    import subprocess
    import sys

    pytest.importorskip("huggingface_hub")
    home = str(cache.parent)
    settings: list[dict[str, str]] = [
        {"HF_HOME": home},
        {"HF_HUB_CACHE": str(cache)},
        {"HUGGINGFACE_HUB_CACHE": str(cache)},
        {"HF_HUB_CACHE": str(cache), "HUGGINGFACE_HUB_CACHE": "/nowhere", "HF_HOME": "/nowhere"},
        {"HUGGINGFACE_HUB_CACHE": str(cache), "HF_HOME": "/nowhere"},
        {"XDG_CACHE_HOME": home},
        {"HF_HOME": "~/models"},
        {"HF_HOME": "$HOME/models"},
        {},
    ]
    environments = [{"HOME": home, "PATH": os.environ["PATH"], **environment} for environment in settings]
    script = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    programs = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for environment in environments
    ]
    for environment, program in zip(environments, programs, strict=True):
        for variable in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        for variable, setting in environment.items():
            monkeypatch.setenv(variable, setting)
        assert str(resolve.locate_hub_cache()) == program.communicate(timeout=120)[0].strip(), environment


def test_missing_models_raise_and_nothing_is_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(CheckpointError, match=r"Hugging Face cache .* with: hf download someone/else$"):
        jumok.load("someone/else")
    with pytest.raises(CheckpointError, match=f"does not have revision v9 of .* hf download {NAME} --revision v9"):
        jumok.load(f"{NAME}@v9")
    with pytest.raises(CheckpointError, match=r"does not have revision 2{40}"):
        jumok.load(f"{NAME}@{'2' * 40}")
    monkeypatch.setattr(resolve, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match=r'hf download someone/else \(pip install "jumok\[hub\]"'):
        jumok.load("someone/else")
    with pytest.raises(CheckpointError, match=r"no folder or \.gguf file 'no-such'"):
        jumok.load("no-such")


@pytest.mark.parametrize(
    "name",
    ["../up", "a/../b", "a/b/c", "/etc", "~/x", "a--b/c", "a/b--c", "a\\b", "a/", "/b", "a b/c", "a/.b", "가/나"],
)
def test_invalid_names_are_not_hub_names(cache: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder or .gguf file|neither a model folder"):
        resolve_model_path(name if name != "/etc" else "/no/such/etc")


@pytest.mark.parametrize(
    "revision", ["", "..", "../main", "a/../../b", "/main", "a//b", ".hidden", "a b", "x" * 20 + "/.."]
)
def test_invalid_revisions_are_refused(cache: Path, revision: str) -> None:
    with pytest.raises(CheckpointError, match="is not a valid revision"):
        resolve_model_path(f"{NAME}@{revision}")


def _remove_main_reference(repository: Path) -> None:
    (repository / "refs" / "main").unlink()


def _remove_references(repository: Path) -> None:
    shutil.rmtree(repository / "refs")


def _remove_snapshot(repository: Path) -> None:
    shutil.rmtree(repository / "snapshots" / SECOND)


def _write_climbing_reference(repository: Path) -> None:
    (repository / "refs" / "main").write_text("../../../good")


def _link_reference_outside(repository: Path) -> None:
    outside = repository.parent / "reference"
    outside.write_text(SECOND)
    (repository / "refs" / "main").unlink()
    (repository / "refs" / "main").symlink_to(outside)


def _link_snapshot_outside(repository: Path) -> None:
    shutil.rmtree(repository / "snapshots" / SECOND)
    (repository / "snapshots" / SECOND).symlink_to(repository.parents[2] / "good")


def _link(name: str, to: str) -> object:
    def change(repository: Path) -> None:
        path = repository / "snapshots" / SECOND / name
        path.unlink(missing_ok=True)
        path.symlink_to(to)

    return change


def _move(name: str, to: str) -> object:
    """Move a valid file elsewhere and link to it: following the link would succeed."""

    def change(repository: Path) -> None:
        path = repository / "snapshots" / SECOND / name
        destination = Path(os.path.normpath(path.parent / to))
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, destination)
        path.unlink()
        path.symlink_to(to)

    return change


def _move_blobs_outside(repository: Path) -> None:
    os.rename(repository / "blobs", repository.parent / "blobs")
    (repository / "blobs").symlink_to(repository.parent / "blobs")


def _remove_blob(repository: Path) -> None:
    (repository / "snapshots" / SECOND / "model.safetensors").resolve().unlink()


HOSTILE = {
    "no refs/main": (_remove_main_reference, "does not have revision main"),
    "no refs": (_remove_references, "does not have revision main"),
    "no snapshot": (_remove_snapshot, "does not have revision main"),
    "refs/main climbs": (_write_climbing_reference, "does not hold a commit"),
    "refs/main points outside": (_link_reference_outside, "revision main of .* points outside the cache"),
    "the snapshot points outside": (_link_snapshot_outside, "symlink that points outside the cache"),
    "a blob is missing": (_remove_blob, "model.safetensors .* is a symlink to a missing file"),
    "a tokenizer's blob is missing": (_link("vocab.txt", "../../blobs/none"), "vocab.txt .* missing file"),
    "a circular symlink": (_link("config.json", "config.json"), r"a circular symlink|missing file"),
    "another repository's blob": (_move("config.json", "../../../models--b--c/blobs/x"), "points outside"),
    "another snapshot's file": (_move("config.json", f"../{FIRST}/stolen.json"), "points outside"),
    "a reference": (_move("config.json", "../../refs/stolen"), "points outside"),
    "beside the blobs": (_move("model.safetensors", "../../blobs-not/x"), "points outside"),
    "outside": (_link("config.json", "/etc/hostname"), "points outside"),
    "the blobs folder points outside": (_move_blobs_outside, "points outside"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_links_out_of_the_repository_are_refused(cache: Path, name: str) -> None:
    change, message = HOSTILE[name]
    assert jumok.load(NAME).family == "gpt"
    change(cache / "models--some-owner--a_model.v2")
    with pytest.raises(CheckpointError, match=message):
        jumok.load(NAME)


def test_blobs_beside_an_ordinary_folder_are_outside(tmp_path: Path) -> None:
    hostile.write_good_folder(tmp_path / "repository" / "snapshots" / "one")
    (tmp_path / "repository" / "blobs").mkdir()
    folder = tmp_path / "repository" / "snapshots" / "one"
    os.rename(folder / "config.json", tmp_path / "repository" / "blobs" / "x")
    (folder / "config.json").symlink_to("../../blobs/x")
    with pytest.raises(CheckpointError, match="points outside"):
        jumok.load(folder)
