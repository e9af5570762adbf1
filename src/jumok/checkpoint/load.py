"""jumok.load: load a model, its tokenizer and its config from a folder, a GGUF file, a catalogue name or a hub name."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import torch

from jumok.data.images.preparation import PREPROCESSOR_FILE, Preparation
from jumok.data.tokenizers.speech_tokens import GENERATION_FILE, SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError, TokenizerError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.registry import get_family

from . import manifest
from .huggingface import get_dialect
from .loaded import Loaded, check_labels, check_speech_tokens, check_vocabulary, parse_id2label
from .name_table import IdentityTable, NameTable, build_on_meta, check_depth
from .resolve import resolve_model_path
from .tensor_files import TensorFiles, read_json, read_pickled_tensors, safe_join

# the files of a tokenizer; none of them may be a symlink that points outside the folder
TOKENIZER_FILES = (
    "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def load(name: str | Path, *, dtype: torch.dtype = torch.float32, pickled: bool = False, verify: bool = True) -> Loaded:
    """Load a model. Nothing is downloaded: ``jumok data get NAME`` does that.

    Args:
        name: A folder (Hugging Face or jumok format, or a training run), a .gguf file, a catalogue name, or the hub
            name of a model in the local Hugging Face cache.
        dtype: The dtype of the parameters.
        pickled: Read the parameters from the folder's pickled file (.bin, .pt, .pth or .ckpt), restricted to tensors
            (``weights_only``), instead of its .safetensors files.
        verify: Compare the files of a jumok folder with its SHA-256 manifest.

    Returns:
        The model in evaluation mode, with its tokenizer, config, image preparation and class labels.

    Raises:
        CheckpointError: If the files are missing, damaged or not supported.

    >>> loaded = load("tiny")
    >>> loaded.family, loaded.model.parameter_count
    ('gpt', 160800)
    """
    path = resolve_model_path(name)
    if path.suffix == ".gguf":
        from .gguf import load_gguf

        return load_gguf(path, dtype)

    stored = read_json(path, "config.json")
    is_own = "family" in stored
    if is_own and verify:
        if not safe_join(path, manifest.MANIFEST_FILE).is_file():
            raise CheckpointError(
                f"{path} has no {manifest.MANIFEST_FILE}, so damage cannot be detected; verify=False loads it anyway"
            )
        manifest.verify_manifest(path)
    model_class, config, table = _parse_config(stored)
    if pickled:
        tensors = read_pickled_tensors(path)
        names, read = list(tensors), tensors.__getitem__
    else:
        files = TensorFiles(path)
        names, read = files.names, files.read
    check_depth(dataclasses.asdict(config), len(names), path.name)
    model = build_on_meta(model_class, config, dtype, "config.json")
    table.load_parameters(model, names, read, path.name)

    if is_own:
        labels = None if stored.get("labels") is None else check_labels(stored["labels"], model)
    else:
        labels = parse_id2label(stored.get("id2label"), model)
    tokenizer: Tokenizer | None = None
    for file in TOKENIZER_FILES:
        safe_join(path, file)
    with contextlib.suppress(TokenizerError):
        tokenizer = Tokenizer.load(path)
        check_vocabulary(tokenizer, model)
    return Loaded(model.eval(), tokenizer, _load_preparation(path, model), labels, _load_speech_tokens(path, model))


def read_config(name: str | Path) -> Config:
    """Return the config of a model. The tensors of a folder are not read; a .gguf file is loaded.

    >>> read_config("tiny").width
    96
    """
    path = resolve_model_path(name)
    if path.suffix == ".gguf":
        return load(path).config
    return _parse_config(read_json(path, "config.json"))[1]


def _parse_config(stored: JSONObject) -> tuple[type[Model], Config, NameTable]:
    """Return the model class, its config and the names of its tensors, from a config.json of ours or Hugging Face's."""
    if "family" in stored:
        family = get_family(stored["family"])
        fields = {name: value for name, value in stored.items() if name != "labels"}
        return family, family.config_class.from_json(fields), IdentityTable()
    dialect = get_dialect(stored.get("model_type"))
    config = dialect.from_hf_config(stored)
    return dialect.model_class, config, dialect.build_name_table(config)


def _load_preparation(path: Path, model: Model) -> Preparation | None:
    """Return the folder's image preparation; by default, resize to the model's size with mean and deviation 0.5."""
    size, channels = model.image_size, model.image_channels
    if size is None or channels not in (1, 3):
        return None
    if safe_join(path, PREPROCESSOR_FILE).is_file():
        preparation = Preparation.from_json(read_json(path, PREPROCESSOR_FILE), channels)
        preparation.check_model_size(size)
        return preparation
    return Preparation(size, mean=(0.5,) * channels, std=(0.5,) * channels)


def _load_speech_tokens(path: Path, model: Model) -> SpeechTokens | None:
    """Return the special tokens of a speech model; without a file, it has only a start and an end."""
    if model.reads != "audio" or model.start_token is None or model.end_token is None:
        return None
    settings = read_json(path, GENERATION_FILE) if safe_join(path, GENERATION_FILE).is_file() else {}
    speech_tokens = SpeechTokens.from_json(settings, model.start_token, model.end_token)
    check_speech_tokens(speech_tokens, model)
    return speech_tokens
