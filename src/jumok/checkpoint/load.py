"""jumok.load: a model, its tokenizer and its config from a folder, a GGUF file, a catalogue name or a hub name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from jumok.data.images import preparation
from jumok.data.images.preparation import Preparation
from jumok.errors import CheckpointError
from jumok.models import Config, Model
from jumok.models.registry import get_family

from . import manifest
from .huggingface import Reading, dialect
from .loaded import Loaded, check_labels, read_id2label
from .name_table import SameNames
from .tensor_files import TensorFiles, read_json, read_pickled_tensors, safe_join

# what a tokenizer is read from; none of them may be a link that leads outside
TOKENIZER_FILES = (
    "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def load(name: str | Path, *, dtype: torch.dtype = torch.float32, pickled: bool = False, verify: bool = True) -> Loaded:
    """From a folder (Hugging Face's or ours), a .gguf file, a name of the catalogue, or a hub name that is cached.

    dtype: the parameters' number type. pickled: also read .bin or .pt (tensors alone). verify: check our own folders
    against their SHA-256 manifest. Nothing is fetched: ``jumok data get NAME`` does that.
    """
    from .resolve import resolve_model_path

    path = resolve_model_path(name)
    if path.suffix == ".gguf":
        from .gguf import load_gguf

        return load_gguf(path, dtype)
    told = read_json(path, "config.json")
    own = "family" in told
    if own and verify:
        if not safe_join(path, manifest.MANIFEST_FILE).is_file():
            raise CheckpointError(
                f"{path} has lost its {manifest.MANIFEST_FILE} and may be damaged; verify=False reads it anyway"
            )
        manifest.verify_manifest(path)
    named = told.pop("labels", None) if own else told.get("id2label")
    reading = _own(told) if own else dialect(told.get("model_type")).reading(told)
    labels = _labels(named, own, reading.config)
    prepared = _preparation(path, reading.config)
    if pickled:
        tensors = read_pickled_tensors(path)
        names, read = list(tensors), tensors.__getitem__
    else:
        files = TensorFiles(path)
        names, read = files.names, files.read
    _check_depth(reading.config, len(names), path.name)
    model = _empty(reading, dtype)
    reading.table.load(model, names, read, path.name)
    return Loaded(model.eval(), _tokenizer(path), reading.config, model.family, prepared, labels)


def _own(told: dict[str, Any]) -> Reading:
    model = get_family(told["family"])
    return Reading(model, model.config_class.from_json(told), SameNames())


def _labels(named: Any, own: bool, config: Config) -> tuple[str, ...] | None:
    if own:
        return None if named is None else check_labels(named, config)
    return read_id2label(named, config)


def _preparation(path: Path, config: Config) -> Preparation | None:
    """How the model wants its images: as the folder says, or its size, with a mean and a deviation of 0.5."""
    image, channels = getattr(config, "image", None), getattr(config, "channels", None)
    if image is None or channels not in (1, 3) or getattr(config, "source", "patches") != "patches":
        return None
    if safe_join(path, preparation.PREPROCESSOR_FILE).is_file():
        return Preparation.from_json(read_json(path, preparation.PREPROCESSOR_FILE), channels)
    rows, columns = image
    return Preparation((rows, columns), mean=(0.5,) * channels, std=(0.5,) * channels)


def _check_depth(config: Config, tensors: int, what: str) -> None:
    """No more layers than tensors: building a model of a million layers takes hours, however empty they are."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        layers = sum(value) if isinstance(value, tuple) else value
        if field.name.endswith(("layers", "depths")) and isinstance(layers, int) and layers > tensors:
            raise CheckpointError(f"config.json says {layers:,} {field.name}, but {what} holds {tensors} tensors")


def _empty(reading: Reading, dtype: torch.dtype) -> Model:
    """The model without its parameters: those come from the file, and are in memory once."""
    try:
        with torch.device("meta"):
            model = reading.model(reading.config)
    except RuntimeError as wrong:  # sizes that no tensor can have
        raise CheckpointError(f"config.json describes a model that cannot be: {str(wrong)[:200]}") from None
    return model.to(dtype)


def _tokenizer(path: Path) -> Any:
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.errors import TokenizerError

    for name in TOKENIZER_FILES:
        safe_join(path, name)
    try:
        return Tokenizer.load(path)
    except TokenizerError:
        return None
