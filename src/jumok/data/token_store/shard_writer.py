"""Write token ids to shard files, with an index of counts and hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TypedDict

import numpy

from jumok.data.token_store.shard_format import ENDS_FILE, ENDS_TYPE, FORMAT, INDEX_FILE, TOKEN_TYPES
from jumok.errors import DataError
from jumok.files import write_atomically


class ShardEntry(TypedDict):
    """One shard in the index."""

    file: str
    tokens: int
    sha256: str


class HashedFile:
    """A binary file whose SHA-256 is computed while it is written."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self.path = path
        self.size = 0
        self._digest = hashlib.sha256()
        self._file: BinaryIO = path.open("xb")

    def append(self, numbers: numpy.ndarray) -> None:
        """Append the bytes of an array."""
        content = numbers.tobytes()
        self._file.write(content)
        self._digest.update(content)
        self.size += len(content)

    def finish(self) -> str:
        """Write everything to disk, close the file, and return its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ShardWriter:
    """Append lists of token ids to shard files."""

    def __init__(self, folder: Path, vocabulary: int, unknown: int | None, shard_tokens: int) -> None:
        """Create the writer."""
        self.tokens = 0
        self.lists = 0
        self.unknowns = 0
        self._folder = folder
        self._vocabulary = vocabulary
        self._unknown = unknown
        self._shard_tokens = shard_tokens
        self._type_name = "uint16" if vocabulary <= 2**16 else "uint32"
        self._type = TOKEN_TYPES[self._type_name]
        self._ends = HashedFile(folder / ENDS_FILE)
        self._shard: HashedFile | None = None
        self._finished: list[ShardEntry] = []

    def append(self, token_ids: Sequence[int]) -> None:
        """Append one list."""
        ids = numpy.asarray(token_ids, dtype=numpy.int64).reshape(-1)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._vocabulary:
            invalid = int(ids.min()) if ids.min() < 0 else int(ids.max())
            raise DataError(
                f"list {self.lists} contains the token id {invalid}; ids range from 0 to {self._vocabulary - 1}"
            )

        if self._unknown is not None:
            self.unknowns += int((ids == self._unknown).sum())
        self.tokens += len(ids)
        self.lists += 1
        self._ends.append(numpy.array([self.tokens], dtype=ENDS_TYPE))
        self._append_to_shards(ids)

    def finish(self, fingerprint: str) -> None:
        """Write the index."""
        self._finish_shard()
        if not self.tokens:
            raise DataError("there are no tokens to write: the texts are empty")
        index = {
            "format": FORMAT,
            "kind": self._type_name,
            "vocabulary": self._vocabulary,
            "tokens": self.tokens,
            "lists": self.lists,
            "unknown": None if self._unknown is None else self.unknowns,
            "fingerprint": fingerprint,
            "ends": self._ends.finish(),
            "shards": self._finished,
        }
        write_atomically(self._folder / INDEX_FILE, json.dumps(index, indent=1) + "\n")

    def close(self) -> None:
        """Close all files."""
        for file in (self._ends, self._shard):
            if file is not None:
                file.close()

    def _append_to_shards(self, ids: numpy.ndarray) -> None:
        while len(ids):
            if self._shard is None:
                self._shard = HashedFile(self._folder / f"{len(self._finished):06}.bin")
            free = self._shard_tokens - self._shard.size // self._type.itemsize
            self._shard.append(ids[:free].astype(self._type))
            ids = ids[free:]
            if self._shard.size // self._type.itemsize == self._shard_tokens:
                self._finish_shard()

    def _finish_shard(self) -> None:
        if self._shard is not None:
            tokens = self._shard.size // self._type.itemsize
            self._finished.append({"file": self._shard.path.name, "tokens": tokens, "sha256": self._shard.finish()})
            self._shard = None
