"""Read the header of a GGUF file: its metadata, and the shapes, types and offsets of its tensors.

The gguf package's own reader takes seconds to read a vocabulary and trusts every length in the file, so this module
reads the header itself. The package's tables of types and its dequantization are used unchanged.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue

MAX_HEADER_BYTES = 128 * 2**20
MAX_VALUES = 3_000_000  # in all arrays together; the largest real vocabularies have half of it
MAX_NAME_BYTES = 1000  # of a field or tensor; the specification allows 65,535 and 64
MAX_ENTRIES = 100_000  # of tensors, and of metadata fields
# GGUF's value types: number -> struct format; 8 is a string, 9 an array
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class StoredTensor(NamedTuple):
    """A tensor in the file, with the offset of its first byte and its length in bytes."""

    shape: tuple[int, ...]
    type_number: int
    start: int
    length: int


class _Cursor:
    """A position in the header that advances as values are read; every read is checked against the header's end."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        if path.stat().st_size < 24:
            raise CheckpointError(f"{path.name} is too short to be a GGUF file")
        with path.open("rb") as file:  # mapped, not read: most of the file is tensors
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.end = min(len(self.bytes), MAX_HEADER_BYTES)
        self.at = 0
        self.array_values = 0

    def read_numbers(self, form: str, count: int) -> list[int | float]:
        size = struct.calcsize(f"<{count}{form}")
        if self.at + size > self.end:
            raise CheckpointError(f"{self.name} ends in the middle of its header; the file is damaged")
        numbers = struct.unpack_from(f"<{count}{form}", self.bytes, self.at)
        self.at += size
        return list(numbers)

    def read_integer(self, form: str) -> int:
        return int(self.read_numbers(form, 1)[0])

    def read_text(self, limit: int = MAX_HEADER_BYTES) -> str:
        return self.read_texts(1, limit)[0]

    def read_texts(self, count: int, limit: int = MAX_HEADER_BYTES) -> list[str]:
        # one loop over local variables, and int.from_bytes instead of struct: a vocabulary has 100,000 strings
        texts: list[str] = []
        at, end, source = self.at, self.end, self.bytes
        for _ in range(count):
            length = int.from_bytes(source[at : at + 8], "little")
            at += 8
            if length > min(end - at, limit):
                raise CheckpointError(
                    f"{self.name} claims a string of {length:,} bytes, longer than its header or the limit for a name"
                )
            texts.append(source[at : at + length].decode("utf-8", errors="replace"))
            at += length
        self.at = at
        return texts

    def read_value(self, type_number: int) -> JSONValue:
        if type_number == STRING:
            return self.read_text()
        if type_number == ARRAY:
            return self.read_array()
        if type_number not in NUMBERS:
            raise CheckpointError(f"{self.name} has a field of unknown type {type_number}; the file is damaged")
        return self.read_numbers(NUMBERS[type_number], 1)[0]

    def read_array(self) -> JSONValue:
        element_type, count = self.read_integer("I"), self.read_integer("Q")
        self.array_values += count
        if self.array_values > MAX_VALUES:
            raise CheckpointError(
                f"{self.name} claims arrays of {self.array_values:,} values; the limit for its header is {MAX_VALUES:,}"
            )
        if element_type in NUMBERS:
            return self.read_numbers(NUMBERS[element_type], count)
        if element_type == STRING:
            return self.read_texts(count)
        # nested arrays, which no Llama-style model has, could hold millions of empty arrays
        raise CheckpointError(
            f"{self.name} has an array of type {element_type}; only numbers and strings are supported"
        )


def read_header(path: Path, block_sizes: dict[int, tuple[int, int]]) -> tuple[JSONObject, dict[str, StoredTensor]]:
    """Return the metadata and the tensors of a GGUF file; ``block_sizes`` are values and bytes per block by type."""
    cursor = _Cursor(path)
    if cursor.bytes[:4] != b"GGUF":
        raise CheckpointError(f"{path.name} is not a GGUF file: the first four bytes must be GGUF")
    cursor.at = 4
    version, tensor_count, field_count = cursor.read_integer("I"), cursor.read_integer("Q"), cursor.read_integer("Q")
    if version not in (2, 3):
        raise CheckpointError(f"{path.name} has GGUF version {version}; versions 2 and 3 are supported")
    if max(tensor_count, field_count) > MAX_ENTRIES:
        raise CheckpointError(
            f"{path.name} claims {tensor_count:,} tensors and {field_count:,} fields; the limit is {MAX_ENTRIES:,}"
        )

    metadata: JSONObject = {}
    for _ in range(field_count):
        name = cursor.read_text(MAX_NAME_BYTES)
        if name in metadata:
            raise CheckpointError(f"{path.name} has the field {name[:80]!r} twice; the file is damaged")
        metadata[name] = cursor.read_value(cursor.read_integer("I"))
    tensors: dict[str, StoredTensor] = {}  # their offsets count from the end of the header
    for _ in range(tensor_count):
        name, tensor = _read_tensor_entry(cursor, block_sizes)
        if name in tensors:
            raise CheckpointError(f"{path.name} has the tensor {name[:80]!r} twice; the file is damaged")
        tensors[name] = tensor

    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise CheckpointError(f"{path.name} has an invalid alignment: {str(alignment)[:40]}")
    start = -(-cursor.at // alignment) * alignment
    for name, tensor in tensors.items():
        if start + tensor.start + tensor.length > len(cursor.bytes):
            raise CheckpointError(f"{path.name} ends before the end of tensor {name[:80]!r}; the file is incomplete")
    return metadata, {name: tensor._replace(start=start + tensor.start) for name, tensor in tensors.items()}


def _read_tensor_entry(cursor: _Cursor, block_sizes: dict[int, tuple[int, int]]) -> tuple[str, StoredTensor]:
    name, rank = cursor.read_text(MAX_NAME_BYTES), cursor.read_integer("I")
    if not 1 <= rank <= 4:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} has {rank} axes; 1 to 4 are supported")
    shape = tuple(cursor.read_integer("Q") for _ in range(rank))[::-1]
    type_number, offset = cursor.read_integer("I"), cursor.read_integer("Q")
    if type_number not in block_sizes:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} has unknown type {type_number}")
    numbers, block_bytes = block_sizes[type_number]
    if math.prod(shape) >= 2**48 or shape[-1] % numbers:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} has the impossible shape {list(shape)}")
    return name, StoredTensor(shape, type_number, offset, math.prod(shape) // numbers * block_bytes)
