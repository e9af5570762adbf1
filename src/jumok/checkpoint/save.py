"""jumok.save: write a model in Hugging Face format, which transformers can load, or in jumok format with checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from jumok.data.images.preparation import PREPROCESSOR_FILE, Preparation
from jumok.data.tokenizers.speech_tokens import GENERATION_FILE, SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.defaults import FORMATS
from jumok.errors import ArgumentError, CheckpointError, describe_type
from jumok.fields import JSONObject, JSONValue
from jumok.files import create_folder_atomically
from jumok.models import Model

from . import manifest
from .huggingface import find_dialect_for
from .loaded import Loaded, check_labels, check_speech_tokens
from .name_table import IdentityTable, build_on_meta


def save(
    model: Model | Loaded,
    folder: str | Path,
    format: str = "jumok",
    tokenizer: Tokenizer | None = None,
    preparation: Preparation | None = None,
    labels: Sequence[str] | None = None,
    speech_tokens: SpeechTokens | None = None,
) -> Path:
    """Write a model into a new folder. If writing fails, no folder is left behind.

    Args:
        model: A model, or the ``Loaded`` that ``load`` returned, whose tokenizer, preparation and labels are saved too.
        folder: The folder; it must not exist, or be empty.
        format: "jumok" (with checksums) or "huggingface" (which transformers can load).
        tokenizer: The tokenizer to write beside the model.
        preparation: How images are prepared.
        labels: The names of the classes, in order.
        speech_tokens: The special tokens of a speech model.

    Returns:
        The folder.

    Raises:
        ArgumentError: If the format is unknown, or ``model`` is not a model.
        CheckpointError: If the folder exists, the model is quantized, Hugging Face has no such model, or the labels do
            not fit.
    """
    if format not in FORMATS:
        raise ArgumentError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    if not isinstance(model, Model | Loaded):
        raise ArgumentError(
            f"save takes a jumok model or the result of jumok.load, not {describe_type(model)}; for example "
            'save(model, "folder")'
        )

    loaded = model if isinstance(model, Loaded) else Loaded(model)
    files: dict[str, Any] = {
        "tokenizer": tokenizer,
        "preparation": preparation,
        "labels": labels,
        "speech_tokens": speech_tokens,
    }
    loaded = replace(loaded, **{name: file for name, file in files.items() if file is not None})

    _check_complete(loaded.model)
    if format == "huggingface":
        config, tensors = _convert_to_hugging_face(loaded)
    else:
        config, tensors = _describe_model(loaded), IdentityTable().collect_tensors(loaded.model)

    target = Path(folder)
    with create_folder_atomically(target) as temporary:
        _write_files(temporary, loaded, config, tensors)
        if format == "jumok":
            manifest.write_manifest(temporary)
        elif loaded.tokenizer is not None:
            _adapt_tokenizer(temporary, loaded.tokenizer, config, loaded.model.task)
    return target


def _check_complete(model: Model) -> None:
    """Raise CheckpointError unless the model has the parameters that its config describes, which a loader expects."""
    expected = dict(build_on_meta(type(model), model.config, torch.float32, "the config").named_parameters())
    missing = sorted(expected.keys() - dict(model.named_parameters()).keys())
    if missing:
        raise CheckpointError(
            f"{len(missing)} of the {len(expected)} parameters of this {model.family} model are missing, such as "
            f"{missing[0]}, so that nothing could load it; if it is quantized, save it before quantize(), and quantize "
            "it again after loading"
        )


def list_restrictions(model: Model, format: str) -> list[str]:
    """Return sentences on what the saved model cannot do, although ours can."""
    if (
        format != "huggingface"
        or find_dialect_for(model.config).to_hf_config(model.config).get("summary_type") != "mean"
    ):
        return []
    return [
        "this classifier averages the tokens of a text, and transformers averages padding too: give it one text at a "
        "time (the exported tokenizer has no padding token, so that transformers refuses to pad)"
    ]


def write_model_files(folder: Path, loaded: Loaded, tensors: Mapping[str, Tensor]) -> None:
    """Write all files of the jumok format except the manifest, which training writes after further files; its tensors
    may be a running average of the parameters."""
    _write_files(folder, loaded, _describe_model(loaded), tensors)


def _describe_model(loaded: Loaded) -> JSONObject:
    """Return the content of config.json in jumok format."""
    config = loaded.config.to_json()
    if loaded.labels is not None:
        config["labels"] = list(check_labels(loaded.labels, loaded.model))
    return config


def _convert_to_hugging_face(loaded: Loaded) -> tuple[JSONObject, dict[str, Tensor]]:
    """Return config.json and the tensors as Hugging Face stores them."""
    model, dialect = loaded.model, find_dialect_for(loaded.config)
    config = dialect.to_hf_config(model.config)
    config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    if loaded.labels is not None:
        names = check_labels(loaded.labels, model)
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
    if model.task == "continue":
        config |= _describe_end_tokens(loaded.tokenizer)
    return config, dialect.build_name_table(model.config).collect_tensors(model)


def _describe_end_tokens(tokenizer: Tokenizer | None) -> JSONObject:
    """Return what stops transformers; None without an end token, as its defaults (2 for Llama) may be other tokens."""
    ends = [] if tokenizer is None else list(tokenizer.ends)
    begin = None if tokenizer is None else tokenizer.begin
    return {"bos_token_id": begin, "eos_token_id": ends[0] if len(ends) == 1 else ends or None}


def _write_files(folder: Path, loaded: Loaded, config: JSONObject, tensors: Mapping[str, Tensor]) -> None:
    """Write what both formats have: parameters, config, tokenizer, image preparation and speech tokens."""
    write_tensors(folder / "model.safetensors", tensors)
    _write_json(folder / "config.json", config)
    if loaded.tokenizer is not None:
        loaded.tokenizer.save(folder)
    if loaded.preparation is not None:
        _write_json(folder / PREPROCESSOR_FILE, loaded.preparation.to_json())
    if loaded.speech_tokens is not None and loaded.model.context_length is not None:
        check_speech_tokens(loaded.speech_tokens, loaded.model)
        _write_json(folder / GENERATION_FILE, loaded.speech_tokens.to_json(loaded.model.context_length))


def _adapt_tokenizer(folder: Path, tokenizer: Tokenizer, config: JSONObject, task: str) -> None:
    """Change the tokenizer's settings so that transformers passes the model only what it was trained on."""
    if task == "continue" and tokenizer.ends:  # transformers does not read the end from the tokenizer
        _write_json(folder / GENERATION_FILE, _describe_end_tokens(tokenizer))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
        if name == "tokenizer_config.json":
            # By default a tokenizer also returns segments, which GPT-2 and XLM would add to their embeddings.
            settings["model_input_names"] = ["input_ids", "attention_mask"]
        if config.get("summary_type") == "mean":  # it would average padding too
            settings.pop("pad_token", None)
        _write_json(folder / name, settings)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device into a safetensors file."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path, {"format": "pt"})


def _write_json(path: Path, content: Mapping[str, JSONValue]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
