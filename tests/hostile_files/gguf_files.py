"""Hostile GGUF files, written byte by byte: each claims or nests something else that a reader should not follow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10
FORMATS = {U32: "I", F32: "f", BOOL: "?", U64: "Q"}
Field = tuple[str, int, Any]


def pack_text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pack_value(kind: int, content: Any) -> bytes:
    """Pack a value; an array is (kind of elements, elements), or (kind, count, bytes) to lie about its length."""
    if kind == STRING:
        return pack_text(content)
    if kind == ARRAY and len(content) == 3:
        return struct.pack("<IQ", content[0], content[1]) + bytes(content[2])
    if kind == ARRAY:
        return struct.pack("<IQ", content[0], len(content[1])) + b"".join(pack_value(content[0], e) for e in content[1])
    return struct.pack("<" + FORMATS[kind], content)


FIELDS: list[Field] = [
    ("general.architecture", STRING, "llama"),
    ("llama.context_length", U32, 8),
    ("llama.embedding_length", U32, 4),
    ("llama.block_count", U32, 1),
    ("llama.attention.head_count", U32, 2),
    ("llama.feed_forward_length", U32, 8),
    ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ("tokenizer.ggml.model", STRING, "gpt2"),
    ("tokenizer.ggml.pre", STRING, "gpt-2"),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "ab"])),
    ("tokenizer.ggml.merges", ARRAY, (STRING, ["a b"])),
]
TENSORS: dict[str, list[int]] = {
    "token_embd.weight": [4, 3], "output_norm.weight": [4], "blk.0.attn_norm.weight": [4],
    "blk.0.attn_q.weight": [4, 4], "blk.0.attn_k.weight": [4, 4], "blk.0.attn_v.weight": [4, 4],
    "blk.0.attn_output.weight": [4, 4], "blk.0.ffn_norm.weight": [4], "blk.0.ffn_gate.weight": [4, 8],
    "blk.0.ffn_up.weight": [4, 8], "blk.0.ffn_down.weight": [8, 4],
}  # fmt: skip


def write_gguf(
    *changed: Field,
    extra: bytes = b"",
    extra_fields: int = 0,
    tensors: dict[str, list[int]] | None = None,
    type: int = 0,
) -> bytes:
    """Return a small Llama as GGUF with some fields changed or added; ``extra`` is appended to the fields."""
    fields = {field[0]: field for field in (*FIELDS, *changed)}
    tensors = TENSORS if tensors is None else tensors
    counts = struct.pack("<IQQ", 3, len(tensors), len(fields) + extra_fields)
    packed = [
        pack_text(name) + struct.pack("<I", kind) + pack_value(kind, content) for name, kind, content in fields.values()
    ]
    entries, offset, length = [], 0, 0
    for name, shape in tensors.items():
        entries.append(pack_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset % 2**60))
        length = offset + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        offset = -(-length // 32) * 32
    head = b"GGUF" + counts + b"".join(packed) + extra + b"".join(entries)
    return head + bytes(-len(head) % 32) + bytes(min(offset, 10**6))


def nest(depth: int) -> bytes:
    """Return an array of an array of an array ..."""
    return b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(depth)) + struct.pack("<IQ", U32, 0)


def add_raw_field(kind: int, content: bytes) -> bytes:
    return pack_text("x") + struct.pack("<I", kind) + content


def change_shape(name: str, *shape: int) -> dict[str, list[int]]:
    return {**TENSORS, name: list(shape)}


QUICK: dict[str, tuple[Callable[[], bytes], str]] = {
    "a width of 2**31": (lambda: write_gguf(("llama.embedding_length", U64, 2**31)), "token_embd.weight has 4 columns"),
    "a width of 2**62": (lambda: write_gguf(("llama.embedding_length", U64, 2**62)), "width|embedding_length"),
    "a hidden width of 2**31": (lambda: write_gguf(("llama.feed_forward_length", U64, 2**31)), "impossible|give \\["),
    "2**31 heads": (lambda: write_gguf(("llama.attention.head_count", U64, 2**31)), "heads"),
    "a head width of 2**31": (lambda: write_gguf(("llama.attention.key_length", U64, 2**31)), "has shape"),
    "a billion blocks": (lambda: write_gguf(("llama.block_count", U32, 10**9)), "1,000,000,000 blocks"),
    "a context of 2**60": (lambda: write_gguf(("llama.context_length", U64, 2**60)), "length"),
    "a width that is text": (lambda: write_gguf(("llama.embedding_length", STRING, "4")), "width"),
    "a width that is an array": (lambda: write_gguf(("llama.embedding_length", ARRAY, (U32, [4]))), "width"),
    "a thousand nested arrays": (
        lambda: write_gguf(extra=add_raw_field(ARRAY, nest(1000)), extra_fields=1),
        "only numbers and strings",
    ),
    "a million empty arrays": (
        lambda: write_gguf(("x", ARRAY, (ARRAY, 10**6, struct.pack("<IQ", U32, 0) * 10**6))),
        "only numbers and strings",
    ),
    "an array of 2**60 numbers": (lambda: write_gguf(("x", ARRAY, (U32, 2**60, b""))), "the limit for its header"),
    "an array of 2**60 strings": (lambda: write_gguf(("x", ARRAY, (STRING, 2**60, b""))), "the limit for its header"),
    "an array of an unknown type": (lambda: write_gguf(("x", ARRAY, (77, 1, b"abc"))), "array of type 77"),
    "a text of 2**60 bytes": (
        lambda: write_gguf(extra=add_raw_field(STRING, struct.pack("<Q", 2**60)), extra_fields=1),
        "a string of 1,152,921,504,606,846,976 bytes",
    ),
    "a name of a megabyte": (lambda: write_gguf(("x" * 10**6, U32, 1)), "a string of 1,000,000 bytes"),
    "a field twice": (
        lambda: write_gguf(extra=add_raw_field(U32, bytes(4)) * 2, extra_fields=2),
        "has the field 'x' twice",
    ),
    "a tensor name of a megabyte": (lambda: write_gguf(tensors={"x" * 10**6: [4]}), "a string of 1,000,000 bytes"),
    "an unknown type of field": (lambda: write_gguf(extra=add_raw_field(99, b""), extra_fields=1), "unknown type 99"),
    "2**60 fields": (lambda: write_gguf()[:16] + struct.pack("<Q", 2**60) + write_gguf()[24:], "the limit is 100,000"),
    "2**60 tensors": (lambda: write_gguf()[:8] + struct.pack("<Q", 2**60) + write_gguf()[16:], "the limit is 100,000"),
    "more fields than there are": (lambda: write_gguf(extra_fields=5), "damaged|unknown type|string of"),
    "an alignment of 0": (lambda: write_gguf(("general.alignment", U32, 0)), "invalid alignment: 0"),
    "an alignment of a megabyte of text": (lambda: write_gguf(("general.alignment", STRING, "x" * 10**6)), "invalid"),
    "an architecture of 1 MB": (lambda: write_gguf(("general.architecture", STRING, "x" * 10**6)), "supported: l"),
    "a tensor of terabytes": (lambda: write_gguf(tensors=change_shape("output_norm.weight", 2**40)), "incomplete"),
    "a tensor of 2**63 rows": (
        lambda: write_gguf(tensors=change_shape("token_embd.weight", 4, 2**62)),
        "impossible shape",
    ),
    "a tensor of no rows": (lambda: write_gguf(tensors=change_shape("token_embd.weight", 4, 0)), "vocabulary"),
    "no embedding": (lambda: write_gguf(tensors={"output_norm.weight": [4]}), "no tensor token_embd.weight"),
    "an unknown quantisation": (lambda: write_gguf(type=99), "unknown type 99"),
    "quantized in blocks that do not fit": (lambda: write_gguf(type=2), "impossible shape"),
    "integers for weights": (lambda: write_gguf(type=26), "int32|I32"),
    "version 99": (lambda: b"GGUF" + struct.pack("<I", 99) + write_gguf()[8:], "version 99"),
    "an empty file": (lambda: b"", "too short"),
    "text": (lambda: b"this is not a model, but it is long enough to be one", "first four bytes"),
    "cut in the header": (lambda: write_gguf()[:300], "damaged|longer than its header"),
    "cut in the tensors": (lambda: write_gguf()[:-300], "incomplete"),
    "a vocabulary of numbers": (lambda: write_gguf(("tokenizer.ggml.tokens", ARRAY, (U32, [1, 2, 3]))), "strings"),
    "a vocabulary that is text": (lambda: write_gguf(("tokenizer.ggml.tokens", STRING, "abc")), "list of strings"),
    "a token twice": (lambda: write_gguf(("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "a", "b"]))), "duplicate"),
    "a merge of nothing": (lambda: write_gguf(("tokenizer.ggml.merges", ARRAY, (STRING, [""]))), "merge 0"),
    "an end token of 2**60": (lambda: write_gguf(("tokenizer.ggml.eos_token_id", U64, 2**60)), "the eos token is"),
    "an end token that is text": (lambda: write_gguf(("tokenizer.ggml.eos_token_id", STRING, "a")), "tokenizer"),
    "a tokenizer of another kind": (lambda: write_gguf(("tokenizer.ggml.model", STRING, "bert")), "of type 'bert'"),
    "an unknown pre-tokenizer": (lambda: write_gguf(("tokenizer.ggml.pre", STRING, "x" * 10**6)), "pre-tokenizer"),
    "a vocabulary far above the model's": (
        lambda: write_gguf(
            ("tokenizer.ggml.tokens", ARRAY, (STRING, [*(f"t{i}" for i in range(2000)), "a", "b", "ab"]))
        ),
        "ids up to 2,002, but the model has 3 tokens",
    ),
}  # fmt: skip

SLOW: dict[str, tuple[Callable[[], bytes], str]] = {
    "four million empty strings": (
        lambda: write_gguf(("x", ARRAY, (STRING, 4 * 10**6, bytes(32 * 10**6)))),
        "4,000,004 values; the limit for its header",
    ),
    "a hundred arrays of a million bytes": (
        lambda: write_gguf(*[(f"x{i}", ARRAY, (0, 10**6, bytes(10**6))) for i in range(100)]),
        "values; the limit for its header",
    ),
    "three million strings, within the limit": (
        lambda: write_gguf(("tokenizer.ggml.tokens", ARRAY, (STRING, 2_900_000, bytes(8 * 2_900_000)))),
        "duplicate tokens",
    ),
    "a hundred thousand fields": (
        lambda: write_gguf(*[(f"x{i}", U32, 1) for i in range(99_000)], ("general.architecture", STRING, "y")),
        "architecture 'y'",
    ),
}
