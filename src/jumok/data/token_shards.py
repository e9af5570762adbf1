"""Store token ids on disk: binary files that are memory-mapped, with an index of counts and hashes.

A folder of tokens is written atomically. Memory use for writing and reading does not grow with its size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy
import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data.readers import text_examples
from jumok.data.readers.lines import Paths, ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.files import compute_sha256, create_folder_atomically, read_limited, write_atomically
from jumok.reporting import Report

FORMAT = "jumok tokens 1"
INDEX_FILE = "index.json"
ENDS_FILE = "ends.bin"  # the position after each list
SHARD_NAME = re.compile(r"\d{6}\.bin")
TOKEN_TYPES: dict[str, numpy.dtype[Any]] = {"uint16": numpy.dtype("<u2"), "uint32": numpy.dtype("<u4")}
ENDS_TYPE = numpy.dtype("<u8")
SHARD_TOKENS = 2**26
MAX_INDEX_SIZE = 64 * 2**20  # bytes

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**50)]


class ShardEntry(msgspec.Struct):
    """One shard in the index."""

    file: str
    tokens: Count
    sha256: str


class ShardIndex(msgspec.Struct):
    """The content of index.json: the number of tokens, lists and unknown tokens, and the hash of every file."""

    format: str
    kind: Literal["uint16", "uint32"]
    vocabulary: Count
    tokens: Count
    lists: Count
    unknown: Count | None
    fingerprint: str
    ends: str
    shards: list[ShardEntry]


def fingerprint_tokenizer(tokenizer: Tokenizer) -> str:
    """Return a SHA-256 of a tokenizer. Tokenizers with the same fingerprint encode every text identically."""
    return hashlib.sha256(tokenizer._inner.to_str().encode()).hexdigest()


def write_text_shards(
    paths: Paths,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer,
    problems: ProblemLog | None = None,
    report: Report = lambda line: None,
    column: str | None = None,
) -> TokenShards:
    """Encode texts and write their token ids, with the tokenizer's end token after each document."""
    pieces = text_examples.read_pieces(paths, problems, column)
    return write_shards(
        text_examples.encode_pieces(pieces, tokenizer),
        folder,
        tokenizer.vocabulary,
        unknown=tokenizer.unknown,
        fingerprint=fingerprint_tokenizer(tokenizer),
        report=report,
    )


def write_shards(
    token_lists: Iterable[Sequence[int]],
    folder: str | os.PathLike[str],
    vocabulary: int,
    *,
    unknown: int | None = None,
    fingerprint: str = "",
    shard_tokens: int = SHARD_TOKENS,
    report: Report = lambda line: None,
) -> TokenShards:
    """Write lists of token ids into a new folder."""
    target = Path(folder)
    if not 0 < vocabulary <= 2**32:
        raise DataError(f"the size of the vocabulary must be from 1 to {2**32:,}, not {vocabulary}")
    if target.exists() or target.is_symlink():
        raise DataError(f"{target} already exists; remove it, or choose another folder for the tokens")

    try:
        with (
            create_folder_atomically(target) as temporary,
            contextlib.closing(ShardWriter(temporary, vocabulary, unknown, shard_tokens)) as writer,
        ):
            reported_at = time.monotonic()
            for token_ids in token_lists:
                writer.append(token_ids)
                if time.monotonic() - reported_at > 2:
                    reported_at = time.monotonic()
                    report(f"{writer.tokens:,} tokens")
            writer.finish(fingerprint)
    except OSError as error:
        raise DataError(f"tokens cannot be written to {target}: {error.strerror or error}") from error

    shards = TokenShards(target)
    report(f"{shards} in {target}")
    return shards


class HashedFile:
    """A new binary file whose SHA-256 is computed while it is written."""

    def __init__(self, path: Path) -> None:
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
        """Close the file and return its SHA-256."""
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ShardWriter:
    """Append lists of token ids to shard files."""

    def __init__(self, folder: Path, vocabulary: int, unknown: int | None, shard_tokens: int) -> None:
        self.tokens = self.lists = self.unknowns = 0
        self._folder, self._vocabulary, self._unknown = folder, vocabulary, unknown
        self._shard_tokens = shard_tokens
        self._kind: Literal["uint16", "uint32"] = "uint16" if vocabulary <= 2**16 else "uint32"
        self._type = TOKEN_TYPES[self._kind]
        self._ends = HashedFile(folder / ENDS_FILE)
        self._shard: HashedFile | None = None
        self._finished: list[ShardEntry] = []

    def append(self, token_ids: Sequence[int]) -> None:
        """Append one list; refuse an id outside the vocabulary."""
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
        while len(ids):
            if self._shard is None:
                self._shard = HashedFile(self._folder / f"{len(self._finished):06}.bin")
            free = self._shard_tokens - self._shard.size // self._type.itemsize
            self._shard.append(ids[:free].astype(self._type))
            ids = ids[free:]
            if self._shard.size // self._type.itemsize == self._shard_tokens:
                self._finish_shard()

    def finish(self, fingerprint: str) -> None:
        """Write the index."""
        self._finish_shard()
        if not self.tokens:
            raise DataError("there are no tokens to write: the texts are empty")
        index = ShardIndex(
            format=FORMAT,
            kind=self._kind,
            vocabulary=self._vocabulary,
            tokens=self.tokens,
            lists=self.lists,
            unknown=None if self._unknown is None else self.unknowns,
            fingerprint=fingerprint,
            ends=self._ends.finish(),
            shards=self._finished,
        )
        write_atomically(self._folder / INDEX_FILE, json.dumps(msgspec.to_builtins(index), indent=1) + "\n")

    def close(self) -> None:
        """Close all files."""
        for file in (self._ends, self._shard):
            if file is not None:
                file.close()

    def _finish_shard(self) -> None:
        if self._shard is not None:
            tokens = self._shard.size // self._type.itemsize
            self._finished.append(ShardEntry(self._shard.path.name, tokens, self._shard.finish()))
            self._shard = None


class TokenShards:
    """The tokens in a folder written by `write_shards`; only the requested tokens are read from disk."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        index = self._read_index()
        self.vocabulary, self.fingerprint = index.vocabulary, index.fingerprint
        self.tokens, self.lists, self.unknown = index.tokens, index.lists, index.unknown
        self._type = TOKEN_TYPES[index.kind]
        self._hashes = {ENDS_FILE: index.ends, **{shard.file: shard.sha256 for shard in index.shards}}
        self._names = [shard.file for shard in index.shards]
        self._starts = [0, *accumulate(shard.tokens for shard in index.shards[:-1])]
        self._check_files(index)

    def _read_index(self) -> ShardIndex:
        path = self.folder / INDEX_FILE
        try:
            index = msgspec.json.decode(read_limited(path, MAX_INDEX_SIZE), type=ShardIndex)
        except FileNotFoundError:
            raise DataError(f"{self.folder} is not a folder of tokens: it contains no {INDEX_FILE}") from None
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise DataError(f"{path} is damaged ({str(error)[:200]}); write the tokens again") from error
        if index.format != FORMAT:
            raise DataError(f"{path} is not an index of tokens in the supported format ({FORMAT!r})")
        return index

    def _check_files(self, index: ShardIndex) -> None:
        """Compare the index with the files."""
        sizes = {ENDS_FILE: self.lists * ENDS_TYPE.itemsize}
        for shard in index.shards:
            # a name from an index must not point outside the folder
            if not shard.tokens or not SHARD_NAME.fullmatch(shard.file):
                raise DataError(f"{self.folder} is damaged: shard {shard.file[:40]!r} with {shard.tokens} tokens")
            sizes[shard.file] = shard.tokens * self._type.itemsize
        total = sum(shard.tokens for shard in index.shards)
        if total != self.tokens:
            raise DataError(f"{self.folder} is damaged: {self.tokens} tokens in total, but {total} in the shards")
        for name, size in sizes.items():
            path = self.folder / name
            if not path.is_file():
                raise DataError(f"{self.folder} is damaged: {name} is missing")
            actual = path.stat().st_size
            if actual != size:
                raise DataError(f"{self.folder} is damaged: {name} has {actual:,} bytes instead of {size:,}")

    def __len__(self) -> int:
        return self.tokens

    def __str__(self) -> str:
        rate = "" if self.unknown is None else f", {self.unknown_rate:.2%} unknown"
        noun = "sequence" if self.lists == 1 else "sequences"
        return f"{self.tokens:,} tokens in {self.lists:,} {noun}{rate}"

    @property
    def unknown_rate(self) -> float:
        """Share of unknown tokens; 0 if they were not counted."""
        return (self.unknown or 0) / self.tokens

    def read_tokens(self, start: int, length: int) -> Int[Tensor, " length"]:
        """Return consecutive tokens, also across shard files."""
        if start < 0 or length < 0 or start + length > self.tokens:
            raise DataError(f"tokens {start} to {start + length} are out of range; {self.folder} has {self.tokens:,}")

        tokens = torch.empty(length, dtype=torch.long)
        done = 0
        while done < length:
            shard = int(numpy.searchsorted(self._starts, start + done, side="right")) - 1
            begin = start + done - self._starts[shard]
            chunk = self._mapped_shards[shard][begin : begin + length - done]
            tokens[done : done + len(chunk)] = torch.from_numpy(chunk.astype(numpy.int64))
            done += len(chunk)
        if length and int(tokens.max()) >= self.vocabulary:
            raise DataError(
                f"{self.folder} is damaged: it contains the token id {int(tokens.max())}, "
                f"but its vocabulary has {self.vocabulary:,} tokens"
            )
        return tokens

    def read_list(self, index: int) -> Int[Tensor, " length"]:
        """Return one of the lists that were written."""
        if not 0 <= index < self.lists:
            raise DataError(f"list {index} is out of range; {self.folder} has {self.lists:,}")
        start = int(self._mapped_ends[index - 1]) if index else 0
        end = int(self._mapped_ends[index])
        if not start <= end <= self.tokens:
            raise DataError(f"{self.folder} is damaged: list {index} ranges from {start} to {end}")
        return self.read_tokens(start, end - start)

    def verify(self) -> None:
        """Hash every file."""
        for name, sha256 in self._hashes.items():
            if compute_sha256(self.folder / name) != sha256:
                raise DataError(f"{self.folder} is damaged: {name} does not have the SHA-256 in {INDEX_FILE}")

    @cached_property
    def _mapped_shards(self) -> Sequence[numpy.ndarray]:
        return [numpy.memmap(self.folder / name, dtype=self._type, mode="r") for name in self._names]

    @cached_property
    def _mapped_ends(self) -> numpy.ndarray:
        return numpy.memmap(self.folder / ENDS_FILE, dtype=ENDS_TYPE, mode="r")
