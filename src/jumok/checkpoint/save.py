"""jumok.save: a model as a folder that Hugging Face's transformers load, or as our own checksummed one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from jumok.data.images.preparation import PREPROCESSOR_FILE as PREPARATION
from jumok.data.images.preparation import Preparation
from jumok.errors import ArgumentError
from jumok.models import Model

from . import manifest
from .huggingface import dialect_of
from .loaded import Loaded, check_labels
from .name_table import SameNames

FORMATS = ("jumok", "huggingface")


def save(
    model: Model | Loaded,
    folder: str | Path,
    format: str = "jumok",
    tokenizer: Any = None,
    preparation: Preparation | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write ``model`` into a new folder, with its tokenizer, how it wants its images, and the names of its classes,
    where there are any; what was loaded brings its own. The folder appears whole or not at all."""
    if format not in FORMATS:
        raise ArgumentError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    if isinstance(model, Loaded):
        tokenizer = model.tokenizer if tokenizer is None else tokenizer
        preparation = model.preparation if preparation is None else preparation
        labels = model.labels if labels is None else labels
        model = model.model
    if not isinstance(model, Model):
        raise ArgumentError(
            f"save takes a model of jumok's, or what load gave, not {type(model).__name__}; as in "
            'save(model, "folder")'
        )
    target = Path(folder)
    if format == "huggingface":
        dialect = dialect_of(model)
        config, tensors = dialect.config_json(model), dialect.table(model.config).dump(model)
        config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    else:
        config, tensors = model.config.to_json(), SameNames().dump(model)
    if labels is not None:
        config |= _named(check_labels(labels, model.config), format)
    with manifest.create_folder_atomically(target) as made:
        _fill(made, config, tensors, tokenizer, preparation)
        if format == "jumok":
            manifest.write_manifest(made)
    return target


def write_model_files(
    made: Path,
    model: Model,
    tensors: dict[str, Tensor],
    *,
    tokenizer: Any = None,
    preparation: Preparation | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Write our own format into a folder that is being made, all but its manifest: training puts more files into it.
    ``tensors`` are the parameters, which may be others than the model's own."""
    config = model.config.to_json()
    if labels is not None:
        config |= _named(check_labels(labels, model.config), "jumok")
    _fill(made, config, tensors, tokenizer, preparation)


def _fill(
    made: Path, config: dict[str, Any], tensors: dict[str, Tensor], tokenizer: Any, preparation: Preparation | None
) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, made / "model.safetensors", {"format": "pt"})
    _write(made / "config.json", config)
    if tokenizer is not None:
        tokenizer.save(made)
    if preparation is not None:
        _write(made / PREPARATION, preparation.to_json())


def _named(labels: tuple[str, ...], format: str) -> dict[str, Any]:
    if format == "jumok":
        return {"labels": labels}
    return {
        "id2label": {str(place): name for place, name in enumerate(labels)},
        "label2id": {name: place for place, name in enumerate(labels)},
    }


def _write(path: Path, told: dict[str, Any]) -> None:
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
