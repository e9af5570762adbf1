"""The header of a GGUF file: its fields, and where its tensors lie.

Read here and not by the gguf package's reader: that one takes seconds for a vocabulary's strings, and believes the
file about every length. The package's tables of types and its dequantisation are used as they are.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.errors import CheckpointError

LARGEST_HEADER = 128 * 2**20
MOST_ITEMS = 4_000_000
# GGUF's value types: number -> struct format; 8 is a string, 9 an array
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class TensorPlace:
    """A tensor: its shape (rows first), its type's number, and where its bytes begin in the file."""

    shape: tuple[int, ...]
    kind: int
    start: int


class _Cursor:
    def __init__(self, path: Path) -> None:
        self.name = path.name
        if path.stat().st_size < 24:
            raise CheckpointError(f"{path.name} is too short to be a GGUF file")
        with path.open("rb") as file:  # mapped, not read: most of the file is tensors
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.end = min(len(self.bytes), LARGEST_HEADER)
        self.at = 0

    def take(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        if self.at + size > self.end:
            raise CheckpointError(f"{self.name} ends in the middle of its header; the file is damaged")
        values = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += size
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        length = int.from_bytes(self.bytes[self.at : self.at + 8], "little")  # a hundred thousand times: no struct
        self.at += 8
        if length > self.end - self.at:
            raise CheckpointError(f"{self.name} names a text of {length:,} bytes, more than its header has")
        found = self.bytes[self.at : self.at + length]
        self.at += length
        return found.decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            if count > min(MOST_ITEMS, self.end) or depth > 2:
                raise CheckpointError(f"{self.name} lists {count:,} values, more than its header has")
            if inner in NUMBERS:
                return list(self._several(NUMBERS[inner], count))
            return [self.value(inner, depth + 1) for _ in range(count)]
        if kind not in NUMBERS:
            raise CheckpointError(f"{self.name} has a field of the unknown type {kind}; the file is damaged")
        return self.take(NUMBERS[kind])

    def _several(self, form: str, count: int) -> tuple[Any, ...]:
        values = self.take(f"{count}{form}") if count else ()
        return values if isinstance(values, tuple) else (values,)


def read_header(path: Path, sizes: dict[int, tuple[int, int]]) -> tuple[dict[str, Any], dict[str, TensorPlace]]:
    """Fields and tensors; ``sizes`` says for each type how many numbers make a block of how many bytes."""
    cursor = _Cursor(path)
    if cursor.bytes[:4] != b"GGUF":
        raise CheckpointError(f"{path.name} does not begin as a GGUF file does")
    cursor.at = 4
    version, tensor_count, field_count = cursor.take("I"), cursor.take("Q"), cursor.take("Q")
    if version not in (2, 3):
        raise CheckpointError(f"{path.name} is of GGUF version {version}; 2 and 3 are read")
    if max(tensor_count, field_count) > 100_000:
        raise CheckpointError(f"{path.name} says it has {tensor_count:,} tensors and {field_count:,} fields")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        name = cursor.text()
        fields[name] = cursor.value(cursor.take("I"))
    told = [_tensor(cursor, sizes) for _ in range(tensor_count)]
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise CheckpointError(f"{path.name} asks for an alignment of {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    size = path.stat().st_size
    places = {}
    for name, shape, kind, offset, length in told:
        if start + offset + length > size:
            raise CheckpointError(f"{path.name} ends before its tensor {name[:80]!r} does; the file is cut off")
        places[name] = TensorPlace(shape, kind, start + offset)
    return fields, places


def _tensor(cursor: _Cursor, sizes: dict[int, tuple[int, int]]) -> tuple[str, tuple[int, ...], int, int, int]:
    name, rank = cursor.text(), cursor.take("I")
    if not 1 <= rank <= 4:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} has {rank} axes; 1 to 4 are possible")
    shape = tuple(cursor.take("Q") for _ in range(rank))[::-1]
    kind, offset = cursor.take("I"), cursor.take("Q")
    if kind not in sizes:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} is of the type {kind}, which is not known")
    numbers, length = sizes[kind]
    if math.prod(shape) >= 2**48 or shape[-1] % numbers:
        raise CheckpointError(f"{cursor.name}: {name[:80]!r} has the shape {list(shape)}, which cannot be")
    return name, shape, kind, offset, math.prod(shape) // numbers * length
