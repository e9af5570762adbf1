"""The list of models on this machine, which is all that the page can open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_client import PageClient

import jumok
from jumok.models.registry import FAMILIES, get_family
from jumok.web.model_list import list_models, read_declarations
from jumok.web.session import Session, Start


def test_what_families_read_is_known_without_importing_them() -> None:
    for name in FAMILIES:
        assert read_declarations().get(name, "text") == get_family(name).reads, name


def test_runs_and_model_folders_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jumok.save(jumok.load("tiny"), tmp_path / "runs" / "copied")
    (tmp_path / "runs" / "empty").mkdir()
    unfinished = tmp_path / "runs" / "unfinished"
    unfinished.mkdir()
    (unfinished / "run.json").write_text("{}")
    image_run = tmp_path / "runs" / "image-1" / "checkpoints" / "step-00000003"
    image_run.mkdir(parents=True)
    (tmp_path / "runs" / "image-1" / "run.json").write_text("{}")
    (image_run / "config.json").write_text(json.dumps({"family": "vit"}))
    damaged = tmp_path / "runs" / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_bytes(b"[" * 100_000)

    listed = list_models("tiny")
    assert list(listed)[:2] == ["tiny", "translator"]
    runs = {name: model.reads for name, model in listed.items() if name.startswith("runs/")}
    assert runs == {"runs/copied": "text", "runs/image-1": "image", "runs/damaged": "text"}

    session = Session(Start("tiny", "the cat"))
    client = PageClient(session)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)  # the names keep their meaning
    assert client.ask("run", model="runs/copied", text="the cat", edits=[])["model"]["family"] == "gpt"
    assert client.fail("run", model="runs/damaged", text="the cat", edits=[]).reason == "invalid"
    assert client.fail("run", model="runs/empty", text="the cat", edits=[]).reason == "invalid"
    session.close()


def test_start_model_is_the_first() -> None:
    assert next(iter(list_models("translator"))) == "translator"
    assert next(iter(list_models("some/folder"))) == "some/folder"
    loaded = jumok.load("tiny")
    for model in (loaded, loaded.model):
        first = next(iter(list_models(model).values()))
        assert (first.name, first.reads, first.source) == ("GPT", "text", model)


def test_only_text_of_the_start_reaches_the_start_model(tmp_path: Path) -> None:
    session = Session(Start("tiny", "the start"))
    client = PageClient(session)
    assert client.ask("run", model="tiny", text=None, edits=[])["text"] == "the start"
    assert client.fail("run", model="translator", text=None, edits=[]).reason == "invalid"
    session.close()
