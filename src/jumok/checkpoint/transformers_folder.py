"""Open model folders that none of our families holds, with transformers: safely, and without random parameters.

No code of the folder is run, only safetensors files are read, none outside the folder, and nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.transformers_tokenizer import load_text_tokenizer
from jumok.errors import ArgumentError, CheckpointError, CheckpointWarning, JumokError, TokenizerError, shorten
from jumok.fields import JSONObject
from jumok.reporting import Report

from .huggingface import DIALECTS
from .load import load
from .loaded import Loaded
from .name_table import check_depth
from .resolve import resolve_model_path
from .tensor_files import INDEX_FILE, TensorFiles, list_pickled_files, read_json, safe_join

INPUT_KINDS = {"input_ids": "text", "pixel_values": "image"}
NAMES_SHOWN = 4  # parameters that a message lists
# A file may store some parameters once (tied embeddings) or not at all (a head); more means that the config is wrong.
MAX_SIZE_RATIO = 4
SMALL_MODEL = 10_000_000  # parameters that may be missing from any file; the message about them names them


@dataclass(frozen=True)
class LoadedTransformers:
    """A model of transformers and the files that belong to it."""

    model: Any  # a PreTrainedModel in evaluation mode
    tokenizer: TextTokenizer | None  # None if the folder has none
    folder: Path

    @property
    def family(self) -> str:
        """The name of the model's class."""
        return type(self.model).__name__

    @property
    def reads(self) -> str:
        """What the model reads: "text", "image", or the name of another main argument, such as "input_features"."""
        name = str(self.model.main_input_name)
        return INPUT_KINDS.get(name, name)

    def require_tokenizer(self) -> TextTokenizer:
        """Return the tokenizer."""
        if self.tokenizer is None:
            raise ArgumentError(
                f"{self.folder} has no tokenizer, so {self.family} cannot read a text; copy the tokenizer's files into "
                "the folder (tokenizer.save_pretrained)"
            )
        return self.tokenizer


def warn_about_checkpoint(message: str) -> None:
    """Report a sentence about a folder as a ``CheckpointWarning``."""
    warnings.warn(message, CheckpointWarning, stacklevel=4)  # the caller of Lens(...)


def open_model(name: str | Path, report: Report = warn_about_checkpoint) -> Loaded | LoadedTransformers:
    """Open a model for the lens: with one of our families, or with transformers where none holds it.

    ``report`` receives a sentence for parameters that are missing or not used.
    """
    path = resolve_model_path(name)
    if path.suffix == ".gguf":
        return load(path)
    stored = read_json(path, "config.json")
    if "family" in stored:
        return load(path)
    if str(stored.get("model_type")) not in DIALECTS:
        return load_with_transformers(path, stored, report)
    try:
        return load(path)
    except CheckpointError as error:
        # a variant that our family does not implement, such as BertForQuestionAnswering; or a damaged folder
        messages: list[str] = []
        with contextlib.suppress(JumokError):
            loaded = load_with_transformers(path, stored, messages.append)
            if not messages:  # every tensor has its place
                return loaded
        raise error from None


def load_with_transformers(folder: Path, stored: JSONObject, report: Report) -> LoadedTransformers:
    """Load a model folder with transformers."""
    try:
        package = importlib.import_module("transformers")
    except ImportError:
        raise CheckpointError(
            f"none of Jumok's families holds model_type {shorten(repr(stored.get('model_type')))} "
            f"({', '.join(sorted(DIALECTS))}); transformers opens other models: "
            'pip install "jumok[transformers]"'
        ) from None
    config_class = _find_config_class(package, folder, stored)
    names = stored.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    architecture = first if isinstance(first, str) and first.isidentifier() else None
    quantization = stored.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise CheckpointError(
            f"the parameters in {folder} are quantized ({str(method)[:40]}); open the model with transformers "
            "yourself, and pass it to jumok.Lens(model)"
        )
    files = _check_folder(folder, architecture or "AutoModel")
    # a layer may have no parameters of its own (ALBERT)
    check_depth(stored, len(files.names), folder.name, layers_per_tensor=16)
    with quiet_transformers():
        try:
            config = config_class.from_dict(_remove_code_references(stored))
        except Exception as error:  # an untrusted config may fail anywhere
            raise CheckpointError(f"transformers cannot read config.json in {folder}: {_describe(error)}") from None
        model_class = _find_model_class(package, config, architecture, folder)
        _check_size(getattr(model_class, "from_config", model_class), config, files, folder)
        model, missing, messages = _load_parameters(model_class, config, folder)
        if missing:
            model, messages = _load_base_model(package, config, folder, type(model), missing)
        elif model_class is package.AutoModel:
            name = type(model).__name__
            messages.insert(0, f"{folder} names no class of transformers, so {name} is used, which has no head")
        for message in messages:
            report(message)
        tokenizer: TextTokenizer | None = None
        try:
            tokenizer = load_text_tokenizer(folder)
        except TokenizerError as error:
            if (folder / "tokenizer_config.json").is_file():
                report(str(error))
        return LoadedTransformers(model, tokenizer, folder)


def _find_config_class(package: ModuleType, folder: Path, stored: JSONObject) -> Any:
    """Return the config class of a model_type."""
    model_type = stored.get("model_type")
    if isinstance(model_type, str) and model_type in package.CONFIG_MAPPING:
        return package.CONFIG_MAPPING[model_type]
    name = shorten(repr(model_type))
    if model_type is None:
        raise CheckpointError(f"config.json in {folder} has no model_type; is it the folder of a model?")
    if "auto_map" in stored:
        raise CheckpointError(
            f"{folder} needs Python code of its own for model_type {name} (auto_map in config.json), which is not run"
        )
    raise CheckpointError(
        f"neither Jumok nor transformers {package.__version__} has model_type {name}; a newer version "
        "of transformers may have it"
    )


def _find_model_class(package: ModuleType, config: Any, architecture: str | None, folder: Path) -> Any:
    """Return the class that config.json names, if transformers has it; else AutoModel, which has no head."""
    named = getattr(package, architecture, None) if architecture is not None else None
    if not inspect.isclass(named) or not issubclass(named, package.PreTrainedModel):
        return package.AutoModel
    config_class = getattr(named, "config_class", None)
    if config_class is None or not isinstance(config, config_class):
        raise CheckpointError(
            f"config.json in {folder} names {architecture}, which is not a class of model_type {config.model_type!r}"
        )
    return named


def _check_folder(folder: Path, architecture: str) -> TensorFiles:
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


def _remove_code_references(stored: JSONObject) -> JSONObject:
    """Return a config without the entries that name Python code of the folder ("auto_map"), at any depth."""
    return {
        name: _remove_code_references(entry) if isinstance(entry, dict) else entry
        for name, entry in stored.items()
        if name not in ("auto_map", "custom_pipelines")
    }


def _check_size(build: Any, config: Any, files: TensorFiles, folder: Path) -> None:
    """Refuse a config that describes a far larger model than the files hold, before memory is allocated for it."""
    try:
        with torch.device("meta"):
            model = build(config)
        needed = sum(parameter.numel() for parameter in model.parameters())
    except Exception:  # from_pretrained builds it again, and its error is reported
        return
    stored = 0
    for path in files.paths:
        with safe_open(str(path), framework="pt") as file:
            stored += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    if needed > max(MAX_SIZE_RATIO * stored, stored + SMALL_MODEL):
        raise CheckpointError(
            f"config.json describes {needed:,} parameters, but the files in {folder.name} hold {stored:,}"
        )


def _load_parameters(model_class: Any, config: Any, folder: Path) -> tuple[nn.Module, list[str], list[str]]:
    """Return a model, the names of its parameters that no file holds, and messages about what is not used."""
    try:
        model, loading = model_class.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            attn_implementation="eager",  # all models have it, and config.json must not choose a kernel to download
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below; the error of transformers does not name them
        )
    except Exception as error:  # untrusted files may fail anywhere
        raise CheckpointError(f"transformers cannot open {folder}: {_describe(error)}") from None
    name = type(model).__name__
    if loading["mismatched_keys"] or loading["error_msgs"]:
        if loading["mismatched_keys"]:
            tensor, stored, expected = min(loading["mismatched_keys"], key=str)
            misfit = f"{str(tensor)[:80]} is {list(stored)} in the file and {list(expected)} in the model"
        else:
            misfit = str(loading["error_msgs"][0])[:200]
        raise CheckpointError(f"the tensors in {folder} do not fit {name}: {misfit}")
    messages: list[str] = []
    unused = sorted(loading["unexpected_keys"])
    if unused:
        messages.append(f"{name} does not use {_list_names(unused)} in {folder}")
    # the pooler of a model without a head changes neither attentions nor hidden states; a head may read it
    has_head = model.base_model is not model
    pooler = [key for key in loading["missing_keys"] if "pooler" in key.split(".") and not has_head]
    if pooler:
        messages.append(f"{folder} holds no tensors for the pooler of {name}; its pooled output is not valid")
    return model.eval(), sorted(set(loading["missing_keys"]) - set(pooler)), messages


def _load_base_model(
    package: ModuleType, config: Any, folder: Path, model_class: type, missing: list[str]
) -> tuple[nn.Module, list[str]]:
    """Load the model without the head that no file holds; refuse it if more than the head is missing."""
    model, still_missing, messages = _load_parameters(package.AutoModel, config, folder)
    if still_missing or isinstance(model, model_class):
        raise CheckpointError(
            f"{folder} holds no tensors for {_list_names(missing)} of {model_class.__name__}; they would be random "
            "numbers, so the model is not opened"
        )
    message = (
        f"{folder} holds no tensors for the head of {model_class.__name__} ({_list_names(missing)}); "
        f"{type(model).__name__} is used, which has no head"
    )
    return model, [message, *messages]


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Turn off the progress bars and log messages of transformers, which are for its own users."""
    logging = importlib.import_module("transformers.utils.logging")
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _list_names(names: list[str]) -> str:
    """Return the first names, and how many there are."""
    shown = ", ".join(name[:80] for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN:,} more"


def _describe(error: Exception) -> str:
    """Return the first line of an error of transformers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
