"""Check a model folder before transformers reads it: no code, nothing pickled, no file outside, no absurd sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from jumok.errors import CheckpointError
from jumok.fields import JSONObject

from .tensor_files import INDEX_FILE, TensorFiles, list_pickled_files, safe_join

# A file may store some parameters once (tied embeddings) or not at all (a head); more means that the config is wrong.
MAX_SIZE_RATIO = 4
SMALL_MODEL = 10_000_000  # parameters that may be missing from any file; the message about them names them


def check_folder(folder: Path, architecture: str) -> TensorFiles:
    """Check the files of a folder, and return its tensors."""
    for path in folder.iterdir():
        if path.is_symlink() or path.is_file():
            safe_join(folder, path.name)
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} holds an adapter, not a whole model; merge it into its base model first "
            "(merge_and_unload() of peft), and save the result with save_pretrained"
        )
    has_tensors = any((folder / name).is_file() for name in ("model.safetensors", INDEX_FILE))
    pickled = list_pickled_files(folder)
    if not has_tensors and pickled:
        raise CheckpointError(
            f"{folder} holds its parameters only as a pickled file ({pickled[0].name}), which can run code and is "
            "not read; if you trust the file, convert it in Python: "
            f'transformers.{architecture}.from_pretrained("{folder}").save_pretrained("NEW-FOLDER"), and copy the '
            "tokenizer files"
        )
    return TensorFiles(folder)


def check_config(folder: Path, stored: JSONObject) -> None:
    """Refuse a config whose model needs more than plain parameters."""
    quantization = stored.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise CheckpointError(
            f"the parameters in {folder} are quantized ({str(method)[:40]}); open the model with transformers "
            "yourself, and pass it to jumok.Lens(model)"
        )


def remove_code_references(stored: JSONObject) -> JSONObject:
    """Return a config without the entries that name Python code of the folder ("auto_map"), at any depth."""
    return {
        name: remove_code_references(entry) if isinstance(entry, dict) else entry
        for name, entry in stored.items()
        if name not in ("auto_map", "custom_pipelines")
    }


def count_stored_numbers(files: TensorFiles) -> int:
    """Return how many numbers the tensors of a folder hold together, read from the headers of the files."""
    total = 0
    for path in files.paths:
        with safe_open(str(path), framework="pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def check_size(build: Any, config: Any, files: TensorFiles, folder: Path) -> None:
    """Refuse a config that describes a far larger model than the files hold, before memory is allocated for it."""
    try:
        with torch.device("meta"):
            model = build(config)
        needed = sum(parameter.numel() for parameter in model.parameters())
    except Exception:  # from_pretrained builds it again, and its error is reported
        return
    stored = count_stored_numbers(files)
    if needed > max(MAX_SIZE_RATIO * stored, stored + SMALL_MODEL):
        raise CheckpointError(
            f"config.json describes {needed:,} parameters, but the files in {folder.name} hold {stored:,}"
        )
