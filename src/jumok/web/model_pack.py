"""Pack a model for a page that computes by itself: its files as one gzip stream, which page/src/engine reads."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.checkpoint.name_table import IdentityTable
from jumok.checkpoint.transformers_folder import LoadedTransformers
from jumok.errors import ArgumentError
from jumok.lab.steps.formula_steps import TEXTS
from jumok.lens.describe.sentence_margins import ANNOTATIONS
from jumok.translation import read_templates

MAX_MEGABYTES = 20  # of the parameters in a page
FAMILIES = ("gpt", "transformer")
#: of the computation of a head with a dot product; the page chooses those that fit an attention
STEP_TEXTS = (
    *("one_query", "one_key", "one_product", "scaled", "model_scale", "no_bias", "biased", "no_mask", "one_mask"),
    *("one_softmax", "one_value", "one_sum"),
)
MESSAGES = ("lens", "attention", "page", "advice")  # groups of translation.toml with what a page that computes may say
LARGEST_HALF = 65504.0
ADVICE = "leave out --live, or open the page with --open"

AnyLoaded = Loaded | LoadedTransformers


def explain_missing_engine(loaded: AnyLoaded) -> str | None:
    """Return a sentence why no page can compute a model by itself; None if it can."""
    if not isinstance(loaded, Loaded) or loaded.family not in FAMILIES:
        family = loaded.family if isinstance(loaded, Loaded) else type(loaded.model).__name__
        return (
            f"a live page computes models of the families {' and '.join(FAMILIES)}, but this one is {family}; {ADVICE}"
        )
    if loaded.tokenizer is None:
        return "a live page needs a tokenizer, but this model has none; save the model with its tokenizer"
    size = sum(2 * parameter.numel() for parameter in loaded.model.parameters()) / 1e6
    if size > MAX_MEGABYTES:
        return (
            f"a live page contains at most {MAX_MEGABYTES} MB of parameters, but this model has {size:,.0f} MB as "
            f"16-bit numbers; {ADVICE}"
        )
    return None


def pack_model(loaded: AnyLoaded, quantize: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None) -> str:
    """Return a model as base64 of one gzip stream, which ``jumok.mountLive`` and the pages of ``--live`` read.

    The stream is the length of a head (4 bytes, little-endian), the head in JSON, and a safetensors file of 16-bit
    numbers. The head has config and tokenizer, the texts that the page shows about the model's computation, and the
    Korean of messages.
    With ``quantize``, such as ``jumok.generate.quantize.quantize_rows``, a matrix NAME is stored as the 8-bit integers
    that it returns, and the scales of its rows as NAME.scales.

    Raises:
        ArgumentError: If no page can compute the model.
    """
    if (problem := explain_missing_engine(loaded)) is not None:
        raise ArgumentError(problem)
    assert isinstance(loaded, Loaded)
    tensors = {}
    for name, tensor in IdentityTable().collect_tensors(loaded.model).items():
        if quantize is not None and tensor.ndim == 2:
            tensors[name], tensors[f"{name}.scales"] = quantize(tensor.detach().cpu())
        else:
            tensors[name] = _shrink(tensor)
    with tempfile.TemporaryDirectory() as folder:
        files = loaded.require_tokenizer().save(folder)
        tokenizer, specials = (_read_json(files / name) for name in ("tokenizer.json", "tokenizer_config.json"))
    specials.pop("chat_template", None)  # the page continues texts
    head = {
        "config": loaded.config.to_json(),
        "tokenizer": tokenizer,
        "specials": specials,
        "ends": list(loaded.require_tokenizer().ends),
        "sentences": ANNOTATIONS,
        "texts": {language: {name: TEXTS(name).select(language) for name in STEP_TEXTS} for language in ("en", "ko")},
        "messages": read_templates(*MESSAGES),
    }
    encoded = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 4)
    content = struct.pack("<I", len(encoded)) + encoded + save_tensors(tensors)
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _shrink(tensor: Tensor) -> Tensor:
    """Return a tensor as 16-bit numbers, if they have its range."""
    tensor = tensor.detach().cpu().contiguous()
    if not tensor.is_floating_point() or bool(tensor.abs().max() > LARGEST_HALF):
        return tensor.float()
    return tensor if tensor.dtype == torch.bfloat16 else tensor.half()


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
