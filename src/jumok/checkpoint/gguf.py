"""GGUF files of the Llama line; quantised tensors are spread out by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.errors import CheckpointError
from jumok.layers import Llama3Scaling
from jumok.models import GPT, GPTConfig, llama_config

from .gguf_header import TensorPlace, read_header
from .huggingface import rope
from .loaded import Loaded
from .name_table import Rule, Table, joined

ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_LENGTH = 8192  # of the texts that all models with such factors were trained on, before their rotation was scaled
ROWS_AT_ONCE = 2048  # a vocabulary's table spread out in one piece would need several times its size


def load_gguf(path: Path, dtype: torch.dtype) -> Loaded:
    """The model and its tokenizer."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError:
        raise CheckpointError('reading GGUF needs one more package: pip install "jumok[gguf]"') from None
    from jumok.data.tokenizers.tokenizer import Tokenizer

    sizes = {int(kind): pair for kind, pair in GGML_QUANT_SIZES.items()}
    fields, places = read_header(path, sizes)

    def stored(name: str, dtype: torch.dtype) -> Tensor:
        place = places[name]
        block, length = sizes[place.kind]
        *rows, columns = place.shape
        size = (*rows, columns // block * length)
        raw = np.memmap(path, np.uint8, "r", place.start, size)
        kind = GGMLQuantizationType(place.kind)
        numbers = torch.empty(place.shape, dtype=dtype)
        try:
            for start in range(0, size[0], ROWS_AT_ONCE) if len(size) > 1 else (0,):
                part = slice(start, start + ROWS_AT_ONCE) if len(size) > 1 else slice(None)
                numbers[part] = torch.from_numpy(dequantize(np.array(raw[part]), kind))
        except (NotImplementedError, ValueError) as wrong:
            raise CheckpointError(f"{path.name}: {name!r} is {kind.name}, which cannot be read: {wrong}") from None
        return numbers

    config = _config(path, fields, places)
    if ROPE_FACTORS in places:
        config = _slowed(path, config, stored(ROPE_FACTORS, torch.float32))

    def read(name: str) -> Tensor:
        return _unpermuted(name, stored(name, dtype), config)

    with torch.device("meta"):
        model = GPT(config).to(dtype)
    _table(config).load(model, places, read, path.name)
    return Loaded(model.eval(), Tokenizer.from_gguf(fields), config, model.family)


def _config(path: Path, fields: dict[str, Any], places: dict[str, TensorPlace]) -> GPTConfig:
    kind = fields.get("general.architecture")
    if kind != "llama":
        raise CheckpointError(f"{path.name} is of the architecture {str(kind)[:40]!r}; only 'llama' is supported")

    def take(name: str, default: Any = ...) -> Any:
        if f"llama.{name}" not in fields and default is ...:
            raise CheckpointError(f"{path.name} does not say llama.{name}")
        return fields.get(f"llama.{name}", default)

    if "token_embd.weight" not in places:
        raise CheckpointError(f"{path.name} has no tensor token_embd.weight")
    heads, width, length = take("attention.head_count"), take("embedding_length"), take("context_length")
    rotary = _rotary(path, fields, {"max_position_embeddings": length, "rope_theta": take("rope.freq_base", None)})
    config = llama_config(
        vocabulary=places["token_embd.weight"].shape[0],
        width=width,
        layers=take("block_count"),
        heads=heads,
        groups=take("attention.head_count_kv", heads),
        head_width=take("attention.key_length", None),
        hidden=take("feed_forward_length"),
        epsilon=take("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in places,
        **{"length": length, **rotary},
    )
    if config.layers > len(places):  # before anybody builds them
        raise CheckpointError(f"{path.name} says it has {config.layers:,} blocks, and holds {len(places)} tensors")
    head_width = config.head_width or config.width // config.heads
    for name in ("rope.dimension_count", "attention.value_length"):
        if take(name, head_width) != head_width:
            told = f"{path.name} has llama.{name} = {str(take(name))[:40]}"
            raise CheckpointError(f"{told}; only {head_width}, the width of a head, is supported")
    return config


def _rotary(path: Path, fields: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The rotary fields of our config; what they mean is what they mean in Hugging Face's."""
    prefix = "llama.rope.scaling."
    told = {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}
    kind = told.pop("type", "linear" if told.get("factor") else "none")  # as llama.cpp has it
    told.pop("finetuned", None)
    factor, length = told.pop("factor", None), told.pop("original_context_length", None)
    if kind not in ("none", "linear", "yarn") or told or "llama.rope.scale_linear" in fields:
        raise CheckpointError(
            f"{path.name} scales its rotary positions in a way that is not known here: {str(kind)[:40]} "
            f"{', '.join(sorted(told))[:200]}"
        )
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": length}
    return rope.read({**theirs, **({} if kind == "none" else {"rope_scaling": scaling})})


def _slowed(path: Path, config: GPTConfig, found: Tensor) -> GPTConfig:
    """Llama 3.1's scaling, of which the file says only by how much each pair is slower."""
    pairs = (config.head_width or config.width // config.heads) // 2
    refused = CheckpointError(f"{path.name}: its {ROPE_FACTORS} are of no scaling that is known here")
    if found.shape != (pairs,) or config.rotary_scaling != "none":
        raise refused
    factor = float(found.max())
    if not 1 <= factor <= rope.LARGEST:  # not a number, too
        raise refused
    scaling = Llama3Scaling(factor, LLAMA3_LENGTH)
    frequencies = 1.0 / config.rotary_base ** (torch.arange(pairs) / pairs)
    slower = frequencies / scaling.scale_frequencies(frequencies, config.rotary_base)
    if not torch.allclose(found, slower, rtol=1e-3):
        raise refused
    return config.replace(
        rotary_scaling="llama3",
        rotary_factor=factor,
        rotary_length=LLAMA3_LENGTH,
        rotary_slow=scaling.slow,
        rotary_fast=scaling.fast,
    )


def _unpermuted(name: str, numbers: Tensor, config: GPTConfig) -> Tensor:
    """llama.cpp rotates neighbouring numbers and reorders the rows of query and key for it; back to halves."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return numbers
    heads = config.heads if name.endswith("attn_q.weight") else config.groups or config.heads
    rows, columns = numbers.shape
    if rows % (2 * heads):
        raise CheckpointError(f"{name!r} has {rows} rows, which do not divide into {heads} heads of pairs")
    return numbers.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _table(config: GPTConfig) -> Table:
    maps = [f"blk.{{}}.attn_{name}" for name in "qkv"]
    gate = ["blk.{}.ffn_gate", "blk.{}.ffn_up"]
    rules = [
        Rule("embedding.weight", ("token_embd.weight",)),
        Rule("blocks.{}.attention_norm.weight", ("blk.{}.attn_norm.weight",)),
        *joined("blocks.{}.attention.projection.joined", maps, ()),
        Rule("blocks.{}.attention.output.weight", ("blk.{}.attn_output.weight",)),
        Rule("blocks.{}.feedforward_norm.weight", ("blk.{}.ffn_norm.weight",)),
        *joined("blocks.{}.feedforward.inner", gate, ()),
        Rule("blocks.{}.feedforward.outer.weight", ("blk.{}.ffn_down.weight",)),
        Rule("norm.weight", ("output_norm.weight",)),
        Rule("output.weight", ("output.weight",)),
    ]
    return Table(rules, [ROPE_FACTORS])  # read with the config
