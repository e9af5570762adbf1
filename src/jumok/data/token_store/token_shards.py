"""Store token ids on disk: binary files that are memory-mapped, with an index of counts and hashes.

A folder of tokens is written atomically. Memory use for writing and reading does not grow with its size.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data.readers import documents
from jumok.data.readers.lines import Paths, ProblemLog
from jumok.data.token_store.shard_format import ENDS_FILE, ENDS_TYPE, FORMAT, INDEX_FILE, SHARD_NAME, TOKEN_TYPES
from jumok.data.token_store.shard_writer import ShardWriter
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.files import read_limited

SHARD_TOKENS = 2**26
MAX_INDEX_SIZE = 64 * 2**20  # bytes

Report = Callable[[str], None]


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
    pieces = documents.read_pieces(paths, problems, column)
    return write_shards(
        documents.encode_pieces(pieces, tokenizer),
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

    temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex[:12]}.part")
    try:
        temporary.mkdir(parents=True)
        writer = ShardWriter(temporary, vocabulary, unknown, shard_tokens)
        try:
            reported_at = time.monotonic()
            for token_ids in token_lists:
                writer.append(token_ids)
                if time.monotonic() - reported_at > 2:
                    reported_at = time.monotonic()
                    report(f"{writer.tokens:,} tokens")
            writer.finish(fingerprint)
            temporary.rename(target)
        finally:
            writer.close()
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise DataError(f"tokens cannot be written to {target}: {error.strerror or error}") from error

    shards = TokenShards(target)
    report(f"{shards} in {target}")
    return shards


class TokenShards:
    """The tokens in a folder written by `write_shards`; only the requested tokens are read from disk.

    Attributes:
        unknown: Number of unknown tokens; None if they were not counted.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a folder of tokens."""
        self.folder = Path(folder)
        index = self._read_index()
        try:
            self.vocabulary = _check_count(index["vocabulary"])
            self.tokens = _check_count(index["tokens"])
            self.lists = _check_count(index["lists"])
            self.unknown = None if index["unknown"] is None else _check_count(index["unknown"])
            self.fingerprint = str(index["fingerprint"])
            self._type = TOKEN_TYPES[index["kind"]]
            self._hashes = {ENDS_FILE: str(index["ends"])}
            self._names: list[str] = []
            self._starts: list[int] = []
            self._read_shards(index["shards"])
            self._check_file_size(ENDS_FILE, self.lists * ENDS_TYPE.itemsize)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.folder / INDEX_FILE} is damaged ({error}); write the tokens again") from error

    def _read_index(self) -> dict[str, Any]:
        path = self.folder / INDEX_FILE
        try:
            index = json.loads(read_limited(path, MAX_INDEX_SIZE))
        except FileNotFoundError:
            raise DataError(f"{self.folder} is not a folder of tokens: it contains no {INDEX_FILE}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read: {str(error)[:200]}") from error
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise DataError(f"{path} is not an index of tokens in the supported format ({FORMAT!r})")
        return index

    def _read_shards(self, shards: Sequence[dict[str, Any]]) -> None:
        """Read the list of shards in the index, and compare it with the files."""
        start = 0
        for shard in shards:
            name = shard["file"]
            tokens = _check_count(shard["tokens"])
            if not tokens or not SHARD_NAME.fullmatch(name):  # a name from an index must not point outside the folder
                raise ValueError(f"shard {str(name)[:40]!r} with {tokens} tokens")
            self._check_file_size(name, tokens * self._type.itemsize)
            self._names.append(name)
            self._starts.append(start)
            self._hashes[name] = str(shard["sha256"])
            start += tokens
        if start != self.tokens:
            raise ValueError(f"{self.tokens} tokens in total, but {start} in the shards")

    def _check_file_size(self, name: str, expected: int) -> None:
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"{self.folder} is damaged: {name} is missing")
        actual = path.stat().st_size
        if actual != expected:
            raise DataError(f"{self.folder} is damaged: {name} has {actual:,} bytes instead of {expected:,}")

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
            with (self.folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise DataError(f"{self.folder} is damaged: {name} does not have the SHA-256 in {INDEX_FILE}")

    @cached_property
    def _mapped_shards(self) -> Sequence[numpy.ndarray]:
        return [numpy.memmap(self.folder / name, dtype=self._type, mode="r") for name in self._names]

    @cached_property
    def _mapped_ends(self) -> numpy.ndarray:
        return numpy.memmap(self.folder / ENDS_FILE, dtype=ENDS_TYPE, mode="r")


def _check_count(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**50:
        raise ValueError(f"{str(count)[:40]!r} is not a valid count")
    return count
