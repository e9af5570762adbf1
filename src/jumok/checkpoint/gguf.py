"""Load GGUF files of Llama-style models, Qwen and Gemma 3; the gguf package dequantises the tensors."""

from __future__ import annotations

from pathlib import Path
from types import EllipsisType

import numpy as np
import torch
from torch import Tensor

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.layers import Llama3Scaling
from jumok.models import GPT, GPTConfig, llama_config

from .gguf_header import StoredTensor, read_header
from .huggingface.llama import MAX_FACTOR, parse_rotary
from .loaded import Loaded, check_vocabulary
from .name_table import NameTable, Rule, build_on_meta

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
WINDOW_PATTERN, WINDOW_BASE = 6, 10_000.0  # of Gemma 3: not in the file
ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_LENGTH = 8192  # Llama 3.1's context length before scaling, which the file does not store
ROWS_PER_CHUNK = 2048  # dequantising a whole embedding at once would need several times its memory


def load_gguf(path: Path, dtype: torch.dtype) -> Loaded:
    """Load a model and its tokenizer from a GGUF file."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError:
        raise CheckpointError('reading GGUF files needs the gguf package: pip install "jumok[gguf]"') from None

    block_sizes = {int(number): sizes for number, sizes in GGML_QUANT_SIZES.items()}
    metadata, tensors = read_header(path, block_sizes)

    def read_stored(name: str, dtype: torch.dtype) -> Tensor:
        stored = tensors[name]
        numbers_per_block, bytes_per_block = block_sizes[stored.type_number]
        *rows, columns = stored.shape
        size = (*rows, columns // numbers_per_block * bytes_per_block)
        raw = np.memmap(path, np.uint8, "r", stored.start, size)
        quantization = GGMLQuantizationType(stored.type_number)
        tensor = torch.empty(stored.shape, dtype=dtype)
        try:
            for start in range(0, size[0], ROWS_PER_CHUNK) if len(size) > 1 else (0,):
                part = slice(start, start + ROWS_PER_CHUNK) if len(size) > 1 else slice(None)
                tensor[part] = torch.from_numpy(dequantize(np.array(raw[part]), quantization))
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"{path.name}: {name!r} cannot be dequantized from {quantization.name}: {error}"
            ) from None
        return tensor

    architecture = str(metadata.get("general.architecture"))
    config = _parse_config(path, architecture, metadata, tensors)
    if ROPE_FACTORS in tensors:
        config = _add_llama3_scaling(path, config, read_stored(ROPE_FACTORS, torch.float32))

    def read(name: str) -> Tensor:
        stored = read_stored(name, dtype)
        return undo_permutation(name, stored, config) if architecture == "llama" else stored

    model = build_on_meta(GPT, config, dtype, path.name)
    build_name_table().load_parameters(model, tensors, read, path.name)
    tokenizer = Tokenizer.from_gguf(metadata)
    check_vocabulary(tokenizer, model)
    return Loaded(model.eval(), tokenizer)


def _parse_config(path: Path, architecture: str, metadata: JSONObject, tensors: dict[str, StoredTensor]) -> GPTConfig:
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{path.name} has architecture {architecture[:40]!r}; supported: {', '.join(ARCHITECTURES)}"
        )

    def take(name: str, default: JSONValue | EllipsisType = ...) -> JSONValue:
        if f"{architecture}.{name}" in metadata:
            return metadata[f"{architecture}.{name}"]
        if isinstance(default, EllipsisType):
            raise CheckpointError(f"{path.name} has no field {architecture}.{name}")
        return default

    if "token_embd.weight" not in tensors:
        raise CheckpointError(f"{path.name} has no tensor token_embd.weight")
    heads, length = take("attention.head_count"), take("context_length")
    hf_config = {"max_position_embeddings": length, "rope_theta": take("rope.freq_base", None)}
    config = llama_config(
        vocabulary=tensors["token_embd.weight"].shape[0],
        width=take("embedding_length"),
        layers=take("block_count"),
        heads=heads,
        groups=take("attention.head_count_kv", heads),
        head_width=take("attention.key_length", None),
        hidden=take("feed_forward_length"),
        epsilon=take("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in tensors,
        attention_bias="blk.0.attn_q.bias" in tensors,
        query_key_norm="blk.0.attn_q_norm.weight" in tensors,
        **{"length": length, **_parse_rotary(path, architecture, metadata, hf_config)},
    )
    if config.layers > len(tensors):  # checked before the blocks are built: a damaged file may claim millions
        raise CheckpointError(f"{path.name} claims {config.layers:,} blocks, but holds {len(tensors)} tensors")
    columns = tensors["token_embd.weight"].shape[-1]
    if config.width != columns:
        raise CheckpointError(
            f"{path.name} has {architecture}.embedding_length = {config.width:,}, but token_embd.weight has "
            f"{columns:,} columns"
        )
    head_width = config.head_width or config.width // config.heads
    for name in ("rope.dimension_count", "attention.value_length"):
        stored = take(name, head_width)
        if stored != head_width:
            raise CheckpointError(
                f"{path.name} has {architecture}.{name} = {str(stored)[:40]}; only the head width, {head_width}, is "
                "supported"
            )
    if architecture != "gemma3":
        return config
    window, layers = take("attention.sliding_window"), range(config.layers)
    windowed = [layer for layer in layers if (layer + 1) % WINDOW_PATTERN]
    return config.replace(
        activation="gelu_tanh",
        output_norm=True,
        scaled_embedding=True,
        window=window,
        windowed=None if len(windowed) == len(layers) else tuple(windowed),
        rotary_window_base=WINDOW_BASE,
    )


def _parse_rotary(path: Path, architecture: str, metadata: JSONObject, hf_config: JSONObject) -> JSONObject:
    """Return the rotary fields of our config. GGUF uses the names that Hugging Face's configs use for scaling types."""
    prefix = f"{architecture}.rope.scaling."
    scaling = {name.removeprefix(prefix): value for name, value in metadata.items() if name.startswith(prefix)}
    rope_type = scaling.pop("type", "linear" if scaling.get("factor") else "none")  # llama.cpp's default
    scaling.pop("finetuned", None)
    factor, length = scaling.pop("factor", None), scaling.pop("original_context_length", None)
    if rope_type not in ("none", "linear", "yarn") or scaling or f"{architecture}.rope.scale_linear" in metadata:
        raise CheckpointError(
            f"{path.name} has an unsupported rotary position scaling: {str(rope_type)[:40]} "
            f"{', '.join(sorted(scaling))[:200]}"
        )
    if rope_type == "none":
        return parse_rotary(hf_config)
    rope_scaling = {"rope_type": rope_type, "factor": factor, "original_max_position_embeddings": length}
    return parse_rotary({**hf_config, "rope_scaling": rope_scaling})


def _add_llama3_scaling(path: Path, config: GPTConfig, factors: Tensor) -> GPTConfig:
    """Return a config with Llama 3.1's scaling, derived from the factor that the file stores per rotated pair."""
    pairs = (config.head_width or config.width // config.heads) // 2
    unsupported = CheckpointError(f"{path.name}: the values of {ROPE_FACTORS} do not match Llama 3.1's scaling")
    if factors.shape != (pairs,) or config.rotary_scaling != "none":
        raise unsupported
    factor = float(factors.max())
    if not 1 <= factor <= MAX_FACTOR:  # NaN fails too
        raise unsupported
    scaling = Llama3Scaling(factor, LLAMA3_LENGTH)
    frequencies = 1.0 / config.rotary_base ** (torch.arange(pairs) / pairs)
    expected = frequencies / scaling.scale_frequencies(frequencies, config.rotary_base)
    if not torch.allclose(factors, expected, rtol=1e-3):
        raise unsupported
    return config.replace(
        rotary_scaling="llama3",
        rotary_factor=factor,
        rotary_length=LLAMA3_LENGTH,
        rotary_slow=scaling.slow,
        rotary_fast=scaling.fast,
    )


def undo_permutation(name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
    """Undo llama.cpp's reordering of query and key rows: it rotates adjacent pairs, our layers rotate two halves."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return tensor
    heads = config.heads if name.endswith("attn_q.weight") else config.groups or config.heads
    rows, columns = tensor.shape
    if rows % (2 * heads):
        raise CheckpointError(f"{name!r} has {rows} rows, which cannot be split evenly into {heads} heads of pairs")
    return tensor.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def build_name_table() -> NameTable:
    """Return the names of a language model's tensors in a GGUF file, as llama.cpp gives them."""
    rules: dict[str, str | Rule] = {
        "embedding": "token_embd",
        "blocks.{}.attention_norm": "blk.{}.attn_norm",
        "blocks.{}.attention.projection.joined": Rule([f"blk.{{}}.attn_{name}" for name in "qkv"]),
        "blocks.{}.attention.query_norm": "blk.{}.attn_q_norm",
        "blocks.{}.attention.key_norm": "blk.{}.attn_k_norm",
        "blocks.{}.attention.output": "blk.{}.attn_output",
        "blocks.{}.attention.output_norm": "blk.{}.post_attention_norm",
        "blocks.{}.feedforward_norm": "blk.{}.ffn_norm",
        "blocks.{}.feedforward.inner": Rule(["blk.{}.ffn_gate", "blk.{}.ffn_up"]),
        "blocks.{}.feedforward.outer": "blk.{}.ffn_down",
        "blocks.{}.feedforward_output_norm": "blk.{}.post_ffw_norm",
        "norm": "output_norm",
        "output": "output",
    }
    return NameTable(rules, [ROPE_FACTORS])  # ignored here: _add_llama3_scaling has read it already
