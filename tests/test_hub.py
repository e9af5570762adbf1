"""Hub names in a cache of Hugging Face's layout, against huggingface_hub's own search of it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

import hostile
import jumok
from jumok.checkpoint import hub_cache
from jumok.checkpoint.resolve import resolve_model_path
from jumok.errors import CheckpointError

FIRST, SECOND = "1" * 40, "abcdef0123" * 4
NAME = "some-owner/a_model.v2"


def put(cache: Path, name: str, commit: str, source: Path, *references: str) -> Path:
    """A commit as the Hub's client leaves it: bytes in blobs by their hash, links in the snapshot, names in refs."""
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
    monkeypatch.chdir(tmp_path)  # no folder here has a hub's name
    hostile.good(tmp_path / "good")
    hostile.own(tmp_path / "own")
    made = tmp_path / "home" / "hub"
    put(made, NAME, FIRST, tmp_path / "own", "v1", "refs/pr/3")
    put(made, NAME, SECOND, tmp_path / "good", "main")
    monkeypatch.setenv("HF_HUB_CACHE", str(made))
    return made


@pytest.mark.parametrize(
    ("revision", "commit"),
    [("", SECOND), ("@main", SECOND), ("@v1", FIRST), ("@refs/pr/3", FIRST), (f"@{FIRST}", FIRST)],
)
def test_it_is_the_folder_that_hugging_face_finds(cache: Path, revision: str, commit: str) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    wanted = huggingface_hub.snapshot_download(
        NAME, revision=revision[1:] or None, cache_dir=cache, local_files_only=True
    )
    assert (
        resolve_model_path(NAME + revision)
        == Path(wanted)
        == cache / "models--some-owner--a_model.v2" / "snapshots" / commit
    )
    file = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=cache, revision=revision[1:] or None)
    assert Path(file) == resolve_model_path(NAME + revision) / "config.json"


def test_it_loads_through_the_links(cache: Path) -> None:
    loaded = jumok.load(NAME)
    assert loaded.family == "gpt" and loaded.tokenizer.decode(loaded.tokenizer.encode("abc")) == "abc"
    assert jumok.load(f"{NAME}@v1").tokenizer is None  # our own folder, with its manifest


def test_a_name_without_an_owner(cache: Path, tmp_path: Path) -> None:
    put(cache, "gpt2", FIRST, tmp_path / "good", "main")
    assert jumok.load("gpt2").family == "gpt"


def test_the_variables_are_hugging_face_s(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to a fresh Python, because huggingface_hub reads them once."""
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
    told = [{"HOME": home, "PATH": os.environ["PATH"], **one} for one in settings]
    ask = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    asked = [subprocess.Popen([sys.executable, "-c", ask], env=one, stdout=subprocess.PIPE, text=True) for one in told]
    for one, program in zip(told, asked, strict=True):
        for variable in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in one.items():
            monkeypatch.setenv(variable, value)
        assert str(hub_cache.locate_hub_cache()) == program.communicate(timeout=120)[0].strip(), one


def test_what_is_not_cached_is_said_plainly_and_nothing_is_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("somebody opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(CheckpointError, match=r"in Hugging Face's cache .* with: hf download someone/else$"):
        jumok.load("someone/else")
    with pytest.raises(CheckpointError, match=f"does not have revision v9 of .* hf download {NAME} --revision v9"):
        jumok.load(f"{NAME}@v9")
    with pytest.raises(CheckpointError, match=r"does not have revision 2{40}"):
        jumok.load(f"{NAME}@{'2' * 40}")
    monkeypatch.setattr(hub_cache, "find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match=r'hf download someone/else \(pip install "jumok\[hub\]"'):
        jumok.load("someone/else")
    with pytest.raises(CheckpointError, match=r"no folder or \.gguf file 'no-such'"):
        jumok.load("no-such")


@pytest.mark.parametrize(
    "name",
    ["../up", "a/../b", "a/b/c", "/etc", "~/x", "a--b/c", "a/b--c", "a\\b", "a/", "/b", "a b/c", "a/.b", "가/나"],
)
def test_other_names_are_no_hub_names(cache: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"there is no folder or .gguf file|neither a model folder"):
        resolve_model_path(name if name != "/etc" else "/no/such/etc")


@pytest.mark.parametrize(
    "revision", ["", "..", "../main", "a/../../b", "/main", "a//b", ".hidden", "a b", "x" * 20 + "/.."]
)
def test_other_revisions_are_none(cache: Path, revision: str) -> None:
    with pytest.raises(CheckpointError, match="is not a revision"):
        resolve_model_path(f"{NAME}@{revision}")


def _unreference(repository: Path) -> None:
    (repository / "refs" / "main").unlink()


def _no_references(repository: Path) -> None:
    shutil.rmtree(repository / "refs")


def _no_snapshot(repository: Path) -> None:
    shutil.rmtree(repository / "snapshots" / SECOND)


def _climbs(repository: Path) -> None:
    (repository / "refs" / "main").write_text("../../../good")


def _reference_leads_out(repository: Path) -> None:
    outside = repository.parent / "reference"
    outside.write_text(SECOND)
    (repository / "refs" / "main").unlink()
    (repository / "refs" / "main").symlink_to(outside)


def _snapshot_leads_out(repository: Path) -> None:
    shutil.rmtree(repository / "snapshots" / SECOND)
    (repository / "snapshots" / SECOND).symlink_to(repository.parents[2] / "good")


def _link(name: str, to: str) -> object:
    def change(repository: Path) -> None:
        path = repository / "snapshots" / SECOND / name
        path.unlink(missing_ok=True)
        path.symlink_to(to)

    return change


def _move(name: str, to: str) -> object:
    """The good bytes, elsewhere: whoever followed the link would find nothing wrong."""

    def change(repository: Path) -> None:
        path = repository / "snapshots" / SECOND / name
        other = Path(os.path.normpath(path.parent / to))
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, other)
        path.unlink()
        path.symlink_to(to)

    return change


def _blobs_lead_out(repository: Path) -> None:
    os.rename(repository / "blobs", repository.parent / "blobs")
    (repository / "blobs").symlink_to(repository.parent / "blobs")


def _blob_missing(repository: Path) -> None:
    (repository / "snapshots" / SECOND / "model.safetensors").resolve().unlink()


HOSTILE = {
    "no refs/main": (_unreference, "does not have revision main"),
    "no refs": (_no_references, "does not have revision main"),
    "no snapshot": (_no_snapshot, "does not have revision main"),
    "refs/main climbs": (_climbs, "does not hold a commit"),
    "refs/main leads out": (_reference_leads_out, "revision main of .* leads elsewhere"),
    "the snapshot leads out": (_snapshot_leads_out, "link that leads elsewhere"),
    "a blob is missing": (_blob_missing, "model.safetensors .* is a link to a missing file"),
    "a tokenizer's blob is missing": (_link("vocab.txt", "../../blobs/none"), "vocab.txt .* missing file"),
    "a link in a circle": (_link("config.json", "config.json"), r"a link in a circle|that is not there"),
    "another repository's blob": (_move("config.json", "../../../models--b--c/blobs/x"), "leads outside"),
    "another snapshot's file": (_move("config.json", f"../{FIRST}/stolen.json"), "leads outside"),
    "a reference": (_move("config.json", "../../refs/stolen"), "leads outside"),
    "beside the blobs": (_move("model.safetensors", "../../blobs-not/x"), "leads outside"),
    "outside": (_link("config.json", "/etc/hostname"), "leads outside"),
    "the blobs lead out": (_blobs_lead_out, "leads outside"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_links_lead_into_the_repository_s_own_blobs_or_nowhere(cache: Path, name: str) -> None:
    change, says = HOSTILE[name]
    assert jumok.load(NAME).family == "gpt"
    change(cache / "models--some-owner--a_model.v2")
    with pytest.raises(CheckpointError, match=says):
        jumok.load(NAME)


def test_blobs_beside_any_other_folder_are_outside(tmp_path: Path) -> None:
    hostile.good(tmp_path / "repository" / "snapshots" / "one")
    (tmp_path / "repository" / "blobs").mkdir()
    folder = tmp_path / "repository" / "snapshots" / "one"
    os.rename(folder / "config.json", tmp_path / "repository" / "blobs" / "x")
    (folder / "config.json").symlink_to("../../blobs/x")
    with pytest.raises(CheckpointError, match="leads outside"):
        jumok.load(folder)
