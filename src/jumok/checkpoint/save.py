"""jumok.save: a model as a folder that Hugging Face's transformers load, or as our own checksummed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from jumok.errors import ArgumentError
from jumok.models import Model

from . import manifest
from .huggingface import dialect_of
from .rename import SameNames

FORMATS = ("jumok", "huggingface")


def save(model: Model, folder: str | Path, format: str = "jumok", tokenizer: Any = None) -> Path:
    """Write ``model`` (and its tokenizer) into a new folder; it appears there whole or not at all."""
    if format not in FORMATS:
        raise ArgumentError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    target = Path(folder)
    if format == "huggingface":
        dialect = dialect_of(model)
        config, tensors = dialect.config_json(model), dialect.table(model.config).dump(model)
        config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    else:
        config, tensors = model.config.to_json(), SameNames().dump(model)
    with manifest.new_folder(target) as made:
        save_file(
            {name: tensor.cpu() for name, tensor in tensors.items()}, made / "model.safetensors", {"format": "pt"}
        )
        (made / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save(made)
        if format == "jumok":
            manifest.write(made)
    return target
