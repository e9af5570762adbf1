"""GGUF files of the Llama line; quantised tensors are spread out by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.models import GPT, GPTConfig, llama_config

from .errors import CheckpointError
from .gguf_header import TensorPlace, read_header
from .loaded import Loaded
from .rename import Rule, Table, joined

ROWS_AT_ONCE = 2048  # a vocabulary's table spread out in one piece would need several times its size


def load_gguf(path: Path, dtype: torch.dtype) -> Loaded:
    """The model and its tokenizer."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError:
        raise CheckpointError('reading GGUF needs one more package: pip install "jumok[gguf]"') from None
    from jumok.data.tokenizer import Tokenizer

    sizes = {int(kind): pair for kind, pair in GGML_QUANT_SIZES.items()}
    fields, places = read_header(path, sizes)
    config = _config(path, fields, places)

    def read(name: str) -> Tensor:
        place = places[name]
        block, length = sizes[place.kind]
        *rows, columns = place.shape
        stored = (*rows, columns // block * length)
        raw = np.memmap(path, np.uint8, "r", place.start, stored)
        kind = GGMLQuantizationType(place.kind)
        numbers = torch.empty(place.shape, dtype=dtype)
        try:
            for start in range(0, stored[0], ROWS_AT_ONCE) if len(stored) > 1 else (0,):
                part = slice(start, start + ROWS_AT_ONCE) if len(stored) > 1 else slice(None)
                numbers[part] = torch.from_numpy(dequantize(np.array(raw[part]), kind))
        except (NotImplementedError, ValueError) as wrong:
            raise CheckpointError(f"{path.name}: {name!r} is {kind.name}, which cannot be read: {wrong}") from None
        return _unpermuted(name, numbers, config)

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
    heads = take("attention.head_count")
    return llama_config(
        vocabulary=places["token_embd.weight"].shape[0],
        length=take("context_length"),
        width=take("embedding_length"),
        layers=take("block_count"),
        heads=heads,
        groups=take("attention.head_count_kv", heads),
        hidden=take("feed_forward_length"),
        rotary_base=take("rope.freq_base", 10_000.0),
        epsilon=take("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in places,
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
    return Table(rules, ["rope_freqs.weight"])
