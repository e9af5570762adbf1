"""Read the config of a model without its tensors."""

from __future__ import annotations

from pathlib import Path

from jumok.models import Config
from jumok.models.registry import get_family

from .huggingface import get_dialect
from .load import load
from .resolve import resolve_model_path
from .tensor_files import read_json


def read_config(name: str | Path) -> Config:
    """Return the config of a model. The tensors of a folder are not read; a .gguf file is loaded.

    >>> read_config("tiny").width
    96
    """
    path = resolve_model_path(name)
    if path.suffix == ".gguf":
        return load(path).config
    stored = read_json(path, "config.json")
    if "family" not in stored:
        return get_dialect(stored.get("model_type")).from_hf_config(stored)
    stored.pop("labels", None)
    return get_family(stored["family"]).config_class.from_json(stored)
