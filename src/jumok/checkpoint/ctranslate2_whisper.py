"""Read a Whisper of several languages that was converted for CTranslate2, as faster-whisper uses it.

The catalogue pins the files by SHA-256, so their form is known. model.bin begins with a version, the name and revision
of the kind of model, and the number of variables. Each variable is its name, its rank, its shape, the number of its
type, the number of its bytes, and the bytes. Numbers have four bytes, a type and a rank one; a name comes after its
length, which has two bytes, and ends with a zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models.speech import Speech, SpeechConfig

from .loaded import Loaded
from .name_table import NameTable, build_on_meta
from .openai_whisper import LAST_FIRST_TIME, TIMES
from .tensor_files import read_json

MODEL_FILE = "model.bin"
FLOAT16 = 4  # the number of this type
LAYER_PARTS = {"gamma": "weight", "beta": "bias"}  # of a norm
JOINED_LAYERS = {
    "self_attention.linear_0": ("query", "key", "value"),
    "attention.linear_0": ("query",),
    "attention.linear_1": ("key", "value"),
}


def read_ctranslate2_model(entry: Path) -> Loaded:
    """Return the model in a folder with model.bin, config.json and tokenizer.json."""
    numbers, tensors = _read_variables(entry / MODEL_FILE)
    tokenizer = Tokenizer.load(entry).with_special_tokens(TIMES, {"end": "<|endoftext|>"})
    speech_tokens = _build_speech_tokens(tokenizer, read_json(entry, "config.json"))
    config = _build_config(numbers, tensors, speech_tokens)
    model = build_on_meta(Speech, config, torch.float16, MODEL_FILE)
    parts = _split_layers(tensors)
    _build_name_table().load_parameters(model, parts, parts.__getitem__, MODEL_FILE)
    return Loaded(model.eval(), tokenizer, speech_tokens=speech_tokens)


def _read_variables(path: Path) -> tuple[dict[str, int], dict[str, Tensor]]:
    """Return the numbers of model.bin, and its tensors, which share memory with the file."""
    content, position = np.memmap(path, np.uint8, "r"), 0

    def read_bytes(count: int) -> bytes:
        nonlocal position
        position += count
        return content[position - count : position].tobytes()

    def read_number(size: int) -> int:
        return int.from_bytes(read_bytes(size), "little")

    def read_name() -> str:
        return read_bytes(read_number(2))[:-1].decode()

    read_number(4), read_name(), read_number(4)
    numbers: dict[str, int] = {}
    tensors: dict[str, Tensor] = {}
    for _ in range(read_number(4)):
        name = read_name()
        shape = [read_number(4) for _ in range(read_number(1))]
        kind, size = read_number(1), read_number(4)
        if kind == FLOAT16:
            values = np.frombuffer(content, np.float16, size // 2, position)
            tensors[name] = torch.from_numpy(values.reshape(shape).copy())
            position += size
        else:
            numbers[name] = read_number(size)
    return numbers, tensors


def _build_config(numbers: dict[str, int], tensors: dict[str, Tensor], tokens: SpeechTokens) -> SpeechConfig:
    vocabulary, width = tensors["decoder/embeddings/weight"].shape
    stacks = ("encoder", "decoder")
    layers = [
        sum(name.startswith(stack) and name.endswith("ffn/linear_0/bias") for name in tensors) for stack in stacks
    ]
    hidden = [len(tensors[f"{stack}/layer_0/ffn/linear_0/bias"]) for stack in stacks]
    return SpeechConfig(
        mel_bins=tensors["encoder/conv1/weight"].shape[1],
        source_length=len(tensors["encoder/position_encodings/encodings"]),
        target_length=len(tensors["decoder/position_encodings/encodings"]),
        vocabulary=vocabulary,
        width=width,
        layers=layers[0],
        decoder_layers=layers[1],
        heads=numbers["encoder/num_heads"],
        decoder_heads=numbers["decoder/num_heads"],
        hidden=hidden[0],
        decoder_hidden=hidden[1],
        start=tokens.start,
        end=tokens.end,
        pad=tokens.end,
    )


def _build_speech_tokens(tokenizer: Tokenizer, settings: dict[str, Any]) -> SpeechTokens:
    names = ("startoftranscript", "endoftext", "transcribe", "translate", "notimestamps", "startofprev")
    start, end, transcribe, translate, no_timestamps, previous = (
        tokenizer.encode(f"<|{name}|>", special=False)[0] for name in names
    )
    languages = {tokenizer.id_to_token(token_id).strip("<|>"): token_id for token_id in settings["lang_ids"]}
    return SpeechTokens(
        start=start,
        end=end,
        languages=languages,
        transcribe=transcribe,
        translate=translate,
        no_timestamps=no_timestamps,
        previous=previous,
        suppressed=tuple(settings["suppress_ids"]),
        suppressed_first=tuple(settings["suppress_ids_begin"]),
        last_first_time=LAST_FIRST_TIME,
        alignment_heads=tuple((layer, head) for layer, head in settings["alignment_heads"]),
    )


def _split_layers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with query, key and value apart, and names as PyTorch writes them."""
    parts: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.replace("/", ".").rpartition(".")
        part = LAYER_PARTS.get(part, part)
        for end, pieces in JOINED_LAYERS.items():
            if layer.endswith(f".{end}"):
                block = layer.removesuffix(end.rpartition(".")[2])
                parts |= {
                    f"{block}{piece}.{part}": rows
                    for piece, rows in zip(pieces, tensor.chunk(len(pieces)), strict=True)
                }
                break
        else:
            parts[f"{layer}.{part}"] = tensor
    return parts


def _build_name_table() -> NameTable:
    rules = {
        "first_convolution": "encoder.conv1",
        "second_convolution": "encoder.conv2",
        "source_positions": "encoder.position_encodings.encodings",
        "encoder_norm": "encoder.layer_norm",
        "embedding": "decoder.embeddings",
        "positions.table.weight": "decoder.position_encodings.encodings",
        "decoder_norm": "decoder.layer_norm",
    }
    no_biases = []  # zeros: Whisper's keys have no bias
    self_attention = {"attention": ("self_attention", 1)}
    stacks = {"encoder": self_attention, "decoder": {**self_attention, "cross": ("attention", 2)}}
    for stack, attentions in stacks.items():
        block = f"{stack}.layer_{{}}."
        rules |= {
            f"{stack}.{{}}.feedforward.inner": f"{block}ffn.linear_0",
            f"{stack}.{{}}.feedforward.outer": f"{block}ffn.linear_1",
            f"{stack}.{{}}.feedforward_norm": f"{block}ffn.layer_norm",
        }
        for part, (attention, output) in attentions.items():
            for name in ("query", "key", "value"):
                rules[f"{stack}.{{}}.{part}.projection.{name}"] = f"{block}{attention}.{name}"
            rules[f"{stack}.{{}}.{part}.output"] = f"{block}{attention}.linear_{output}"
            rules[f"{stack}.{{}}.{part}_norm"] = f"{block}{attention}.layer_norm"
            no_biases.append(f"{block}{attention}.key.bias")
    return NameTable(rules, no_biases)
