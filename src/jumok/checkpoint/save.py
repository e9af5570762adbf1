"""jumok.save: write a model in Hugging Face format, which transformers can load, or in jumok format with checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from jumok.data.images.preparation import PREPROCESSOR_FILE, Preparation
from jumok.data.tokenizers.speech_tokens import GENERATION_FILE, SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.defaults import FORMATS
from jumok.errors import ArgumentError, CheckpointError, describe_type
from jumok.fields import JSONObject, JSONValue
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
    if isinstance(model, Loaded):
        tokenizer = model.tokenizer if tokenizer is None else tokenizer
        preparation = model.preparation if preparation is None else preparation
        labels = model.labels if labels is None else labels
        speech_tokens = model.speech_tokens if speech_tokens is None else speech_tokens
        model = model.model
    if not isinstance(model, Model):
        raise ArgumentError(
            f"save takes a jumok model or the result of jumok.load, not {describe_type(model)}; for example "
            'save(model, "folder")'
        )

    _check_complete(model)
    if format == "huggingface":
        config, tensors = _convert_to_hugging_face(model, labels)
        if model.task == "continue":
            config |= _describe_end_tokens(tokenizer)
    else:
        config, tensors = _describe_model(model, labels), IdentityTable().collect_tensors(model)

    target = Path(folder)
    with manifest.create_folder_atomically(target) as temporary:
        _write_files(temporary, config, tensors, tokenizer, preparation)
        _write_speech_tokens(temporary, model, speech_tokens)
        if format == "jumok":
            manifest.write_manifest(temporary)
        elif tokenizer is not None:
            if model.task == "continue" and tokenizer.ends:  # transformers does not read the end from the tokenizer
                _write_json(temporary / GENERATION_FILE, _describe_end_tokens(tokenizer))
            _adapt_tokenizer_settings(temporary, averages_padding=config.get("summary_type") == "mean")
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


def write_model_files(
    folder: Path,
    model: Model,
    tensors: Mapping[str, Tensor],
    *,
    tokenizer: Tokenizer | None = None,
    preparation: Preparation | None = None,
    labels: Sequence[str] | None = None,
    speech_tokens: SpeechTokens | None = None,
) -> None:
    """Write all files of the jumok format except the manifest; training adds more files before it writes the manifest.

    Args:
        tensors: The parameters to write, by name; training passes a running average here instead of the model's own.
    """
    _write_files(folder, _describe_model(model, labels), tensors, tokenizer, preparation)
    _write_speech_tokens(folder, model, speech_tokens)


def _describe_model(model: Model, labels: Sequence[str] | None) -> JSONObject:
    """Return the content of config.json in jumok format."""
    config = model.config.to_json()
    if labels is not None:
        config["labels"] = list(check_labels(labels, model))
    return config


def _convert_to_hugging_face(model: Model, labels: Sequence[str] | None) -> tuple[JSONObject, dict[str, Tensor]]:
    """Return config.json and the tensors as Hugging Face stores them."""
    dialect = find_dialect_for(model.config)
    tensors = dialect.build_name_table(model.config).collect_tensors(model)
    config = dialect.to_hf_config(model.config)
    config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    if labels is not None:
        names = check_labels(labels, model)
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
    return config, tensors


def _describe_end_tokens(tokenizer: Tokenizer | None) -> JSONObject:
    """Return what stops transformers; None without an end token, as its defaults (2 for Llama) may be other tokens."""
    ends = [] if tokenizer is None else list(tokenizer.ends)
    begin = None if tokenizer is None else tokenizer.begin
    return {"bos_token_id": begin, "eos_token_id": ends[0] if len(ends) == 1 else ends or None}


def _write_files(
    folder: Path,
    config: JSONObject,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    preparation: Preparation | None,
) -> None:
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", {"format": "pt"})
    _write_json(folder / "config.json", config)
    if tokenizer is not None:
        tokenizer.save(folder)
    if preparation is not None:
        _write_json(folder / PREPROCESSOR_FILE, preparation.to_json())


def _write_speech_tokens(folder: Path, model: Model, speech_tokens: SpeechTokens | None) -> None:
    if speech_tokens is None or model.context_length is None:
        return
    check_speech_tokens(speech_tokens, model)
    _write_json(folder / GENERATION_FILE, speech_tokens.to_json(model.context_length))


def _adapt_tokenizer_settings(folder: Path, *, averages_padding: bool) -> None:
    """Change the tokenizer's settings so that transformers passes the model only what it was trained on."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
        if name == "tokenizer_config.json":
            # By default a tokenizer also returns segments, which GPT-2 and XLM would add to their embeddings.
            settings["model_input_names"] = ["input_ids", "attention_mask"]
        if averages_padding:
            settings.pop("pad_token", None)
        _write_json(folder / name, settings)


def _write_json(path: Path, content: Mapping[str, JSONValue]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
