"""List the models that the page can choose; it can open no others. This module does not import torch."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jumok.data import catalogue
from jumok.defaults import INCLUDED_MODELS, LOADABLE_MODELS
from jumok.errors import JumokError
from jumok.files import read_limited

from .messages import Reads

RUNS_FOLDER = "runs"
CHECKPOINTS_FOLDER = "checkpoints"  # of a run
MAX_RUNS = 50  # training runs in the list, the newest first
MAX_CHECKPOINTS = 50
MAX_CONFIG_BYTES = 1_000_000
DECLARATION = re.compile(r'^    family = "(\w+)"\n(?:    .*\n)*?    reads = "(\w+)"$', re.MULTILINE)
AUDIO_MODELS = ("whisper-tiny-en", "whisper-base")  # of the catalogue
START_TITLE = "model of this notebook"


@dataclass(frozen=True)
class ListedModel:
    """A model that the page can choose; ``source`` is a catalogue name, the path of a folder or file, or a model."""

    name: str
    title: str
    reads: Reads
    source: Any
    checkpoints: tuple[str, ...] = ()  # names of the folders of a training run, the newest first


def list_models(start: Any) -> dict[str, ListedModel]:
    """Return the models by name: the start model first, then those of the package, the catalogue and ./runs."""
    models = [_describe_start(start)]
    models += [ListedModel(name, texts["title"], "text", name) for name, texts in INCLUDED_MODELS.items()]
    models += [
        ListedModel(name, name, _read_kind_of_name(name), name) for name in LOADABLE_MODELS if _is_in_cache(name)
    ]
    models += _list_runs(Path(RUNS_FOLDER))
    by_name: dict[str, ListedModel] = {}
    for model in models:
        by_name.setdefault(model.name, model)
    return by_name


def _describe_start(start: Any) -> ListedModel:
    if not isinstance(start, str | os.PathLike):
        return ListedModel(_name_model_class(start), START_TITLE, _read_kind_of_object(start), start)
    name = os.fspath(start)
    if name in INCLUDED_MODELS:
        return ListedModel(name, INCLUDED_MODELS[name]["title"], "text", name)
    if name in LOADABLE_MODELS:
        return ListedModel(name, name, _read_kind_of_name(name), name)
    path = Path(name)
    source = str(path.absolute()) if path.exists() else name  # the notebook may change its folder later
    return ListedModel(name, path.name or name, _read_kind_of_folder(path), source, _list_checkpoints(path))


def _name_model_class(model: Any) -> str:
    """Return the name of a model's class, or of the model inside what ``jumok.load`` returned."""
    return type(getattr(model, "model", model) if hasattr(model, "tokenizer") else model).__name__


def _read_kind_of_object(model: Any) -> Reads:
    """Return what a model or a loaded model reads, as far as it says."""
    for owner in (model, getattr(model, "model", None)):
        reads = getattr(owner, "reads", None)
        if isinstance(reads, str):
            return simplify_reads(reads)
    return "image" if getattr(model, "main_input_name", "input_ids") == "pixel_values" else "text"


def simplify_reads(reads: str) -> Reads:
    """Return what the page calls it: regions and the inputs of other models of transformers are images."""
    names: dict[str, Reads] = {"text": "text", "numbers": "numbers", "audio": "audio"}
    return names.get(reads, "image")


@cache
def read_declarations() -> dict[str, str]:
    """Return what each family declares to read, from the source of its class: importing it would import torch."""
    sources = sorted((Path(__file__).parent.parent / "models").rglob("*.py"))
    return {
        family: reads for path in sources for family, reads in DECLARATION.findall(path.read_text(encoding="utf-8"))
    }


def _read_kind_of_name(name: str) -> Reads:
    return "audio" if name in AUDIO_MODELS else "text"


def _is_in_cache(name: str) -> bool:
    try:
        return catalogue.locate_entry(name) is not None
    except (JumokError, OSError):
        return False


def _list_runs(parent: Path) -> list[ListedModel]:
    """Return the training runs and model folders in a folder, the newest first."""
    try:
        folders = [folder for folder in parent.iterdir() if folder.is_dir() and _find_config(folder) is not None]
        folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    except OSError:
        return []
    return [
        ListedModel(
            f"{parent}/{folder.name}",
            folder.name,
            _read_kind_of_folder(folder),
            str(folder.absolute()),
            _list_checkpoints(folder),
        )
        for folder in folders[:MAX_RUNS]
    ]


def _list_checkpoints(folder: Path) -> tuple[str, ...]:
    """Return the names of a run's checkpoints, the newest first; a folder that is no run has none."""
    if not (folder / "run.json").is_file():
        return ()
    configs = (folder / CHECKPOINTS_FOLDER).glob("step-*/config.json")
    return tuple(sorted((config.parent.name for config in configs), reverse=True)[:MAX_CHECKPOINTS])


def find_checkpoint(models: dict[str, ListedModel], name: str) -> ListedModel | None:
    """Return a checkpoint of a listed run by its name, such as "runs/mine/checkpoints/step-00000250"."""
    run, _, checkpoint = name.rpartition(f"/{CHECKPOINTS_FOLDER}/")
    listed = models.get(run)
    if listed is None or checkpoint not in listed.checkpoints:
        return None
    source = str(Path(listed.source) / CHECKPOINTS_FOLDER / checkpoint)
    return ListedModel(name, f"{listed.title}, {checkpoint}", listed.reads, source)


def _find_config(folder: Path) -> Path | None:
    """Return the config.json of a model folder, or of the newest checkpoint of a training run; None without one."""
    if (folder / "config.json").is_file():
        return folder / "config.json"
    if not (folder / "run.json").is_file():
        return None
    return max(folder.glob("checkpoints/step-*/config.json"), default=None)


def _read_kind_of_folder(folder: Path) -> Reads:
    """Return what the model in a folder reads, by its config.json; "text" if that cannot be read."""
    try:
        path = _find_config(folder)
        if path is None:
            return "text"
        config = json.loads(read_limited(path, MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return "text"
    if not isinstance(config, dict):
        return "text"
    family = config.get("family")
    if isinstance(family, str):
        return simplify_reads(read_declarations().get(family, "text"))
    if config.get("model_type") == "whisper":
        return "audio"
    return "image" if "image_size" in config or "vision_config" in config else "text"
