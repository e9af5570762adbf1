"""Tokens on disk: raw numbers in files that are mapped, not read, with an index that says how many and of what.

A folder of shards appears whole or not at all. It takes the same memory to write and to read, however large it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from jaxtyping import Int
from torch import Tensor

from jumok.data.readers import documents
from jumok.data.readers.lines import Paths, ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError

SHARD_TOKENS = 2**26
_INDEX, _ENDS, _FORMAT = "index.json", "ends.bin", "jumok tokens 1"
_LARGEST_INDEX = 64 * 2**20
_NAME = re.compile(r"\d{6}\.bin")
_KINDS: dict[str, numpy.dtype[Any]] = {"uint16": numpy.dtype("<u2"), "uint32": numpy.dtype("<u4")}
_END = numpy.dtype("<u8")

Report = Callable[[str], None]


def fingerprint_tokenizer(tokenizer: Tokenizer) -> str:
    """One SHA-256 for a tokenizer: two of the same fingerprint make the same ids of the same text."""
    return hashlib.sha256(tokenizer._inner.to_str().encode()).hexdigest()


def write_text_shards(
    paths: Paths,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer,
    problems: ProblemLog | None = None,
    report: Report = lambda line: None,
    column: str = "text",
) -> TokenShards:
    """Read texts (`documents.documents` says which), and write their ids; the end token stands behind each document."""
    return write_shards(
        documents.encode_pieces(documents.read_pieces(paths, problems, column), tokenizer),
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
    """Write lists of ids below `vocabulary` into a new folder; `unknown` is the id that is counted as unknown."""
    place = Path(folder)
    if not 0 < vocabulary <= 2**32:
        raise DataError(f"a vocabulary of {vocabulary} cannot be written; it has 1 to {2**32:,} ids")
    if place.exists() or place.is_symlink():
        raise DataError(f"{place} is there already; remove it, or give a new folder for the tokens")
    part = place.with_name(f".{place.name}-{uuid.uuid4().hex[:12]}.part")
    try:
        part.mkdir(parents=True)
        writer = _Writer(part, vocabulary, unknown, shard_tokens)
        try:
            told = time.monotonic()
            for numbers in token_lists:
                writer.add(numbers)
                if time.monotonic() - told > 2:
                    told = time.monotonic()
                    report(f"{writer.tokens:,} tokens")
            writer.finish(fingerprint)
            part.rename(place)
        finally:
            writer.close()
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise DataError(f"tokens cannot be written into {place}: {error.strerror or error}") from error
    made = TokenShards(place)
    report(f"{made} in {place}")
    return made


class _File:
    """A file that is hashed as it is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes, self._digest = path, 0, hashlib.sha256()
        self._file: BinaryIO = path.open("xb")

    def add(self, numbers: numpy.ndarray) -> None:
        data = numbers.tobytes()
        self._file.write(data)
        self._digest.update(data)
        self.bytes += len(data)

    def finish(self) -> str:
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()


class _Writer:
    def __init__(self, folder: Path, vocabulary: int, unknown: int | None, shard_tokens: int) -> None:
        self.tokens = self.lists = self.unknowns = 0
        self._folder, self._vocabulary, self._unknown, self._most = folder, vocabulary, unknown, shard_tokens
        self._kind = "uint16" if vocabulary <= 2**16 else "uint32"
        self._ends = _File(folder / _ENDS)
        self._shard: _File | None = None
        self._done: list[dict[str, object]] = []

    def add(self, numbers: Sequence[int]) -> None:
        ids = numpy.asarray(numbers, dtype=numpy.int64).reshape(-1)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._vocabulary:
            wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
            raise DataError(f"list {self.lists} holds the id {wrong}; the vocabulary has 0 to {self._vocabulary - 1}")
        if self._unknown is not None:
            self.unknowns += int((ids == self._unknown).sum())
        self.tokens += len(ids)
        self.lists += 1
        self._ends.add(numpy.array([self.tokens], dtype=_END))
        width = _KINDS[self._kind].itemsize
        while len(ids):
            if self._shard is None:
                self._shard = _File(self._folder / f"{len(self._done):06}.bin")
            room = self._most - self._shard.bytes // width
            self._shard.add(ids[:room].astype(_KINDS[self._kind]))
            ids = ids[room:]
            if self._shard.bytes // width == self._most:
                self._end_shard()

    def _end_shard(self) -> None:
        if self._shard is not None:
            tokens = self._shard.bytes // _KINDS[self._kind].itemsize
            self._done.append({"file": self._shard.path.name, "tokens": tokens, "sha256": self._shard.finish()})
            self._shard = None

    def finish(self, fingerprint: str) -> None:
        self._end_shard()
        if not self.tokens:
            raise DataError("there are no tokens to write: the texts are empty")
        told = {
            "format": _FORMAT,
            "kind": self._kind,
            "vocabulary": self._vocabulary,
            "tokens": self.tokens,
            "lists": self.lists,
            "unknown": None if self._unknown is None else self.unknowns,
            "fingerprint": fingerprint,
            "ends": self._ends.finish(),
            "shards": self._done,
        }
        with (self._folder / _INDEX).open("x", encoding="utf-8") as file:
            file.write(json.dumps(told, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in (self._ends, self._shard):
            if file is not None:
                file.close()


class TokenShards:
    """The tokens of a folder that `write` made: `len` of them; `slice` and `list` read the few that are asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        told = self._index()
        try:
            self.vocabulary, self.tokens, self.lists = (_count(told[key]) for key in ("vocabulary", "tokens", "lists"))
            self.unknown = None if told["unknown"] is None else _count(told["unknown"])  # how many; None: not counted
            self.fingerprint = str(told["fingerprint"])
            self._kind = _KINDS[told["kind"]]
            self._sha256 = {_ENDS: str(told["ends"])}
            self._starts, start = [], 0
            self._names: list[str] = []
            for shard in told["shards"]:
                name, tokens = shard["file"], _count(shard["tokens"])
                if not tokens or not _NAME.fullmatch(name):  # a name from an index leads nowhere else
                    raise ValueError(f"the shard {str(name)[:40]!r} of {tokens} tokens")
                self._check_size(name, tokens * self._kind.itemsize)
                self._names.append(name)
                self._starts.append(start)
                self._sha256[name] = str(shard["sha256"])
                start += tokens
            if start != self.tokens:
                raise ValueError(f"{self.tokens} tokens, and {start} in the shards")
            self._check_size(_ENDS, self.lists * _END.itemsize)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.folder / _INDEX} is damaged ({error}); make the tokens again") from error

    def _index(self) -> dict[str, Any]:
        path = self.folder / _INDEX
        try:
            if path.stat().st_size > _LARGEST_INDEX:
                raise DataError(f"{path} is larger than any index of tokens")
            told = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise DataError(f"{self.folder} is not a folder of tokens: there is no {_INDEX} in it") from None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} cannot be read: {str(error)[:200]}") from error
        if not isinstance(told, dict) or told.get("format") != _FORMAT:
            raise DataError(f"{path} is not an index of tokens that this version knows ({_FORMAT!r})")
        return told

    def _check_size(self, name: str, size: int) -> None:
        try:
            found = (self.folder / name).stat().st_size
        except OSError:
            raise DataError(f"{self.folder} is damaged: {name} is missing") from None
        if found != size:
            raise DataError(f"{self.folder} is damaged: {name} has {found:,} bytes instead of {size:,}")

    def __len__(self) -> int:
        return self.tokens

    def __str__(self) -> str:
        rate = "" if self.unknown is None else f", {self.unknown_rate:.2%} unknown"
        return f"{self.tokens:,} tokens in {self.lists:,} lists{rate}"

    @property
    def unknown_rate(self) -> float:
        """Which share of the tokens stands for what the tokenizer could not write; 0 where it can write all."""
        return (self.unknown or 0) / self.tokens

    def read_tokens(self, start: int, length: int) -> Int[Tensor, " length"]:
        """`length` tokens from `start` on, wherever the borders of the files are."""
        if start < 0 or length < 0 or start + length > self.tokens:
            raise DataError(f"tokens {start} to {start + length} of {self.folder}: it has {self.tokens:,}")
        found = torch.empty(length, dtype=torch.long)
        done = 0
        while done < length:
            number = int(numpy.searchsorted(self._starts, start + done, side="right")) - 1
            begin = start + done - self._starts[number]
            piece = self._mapped[number][begin : begin + length - done]
            found[done : done + len(piece)] = torch.from_numpy(piece.astype(numpy.int64))
            done += len(piece)
        if length and int(found.max()) >= self.vocabulary:
            raise DataError(f"{self.folder} is damaged: it holds the id {int(found.max())}, past its vocabulary")
        return found

    def read_list(self, number: int) -> Int[Tensor, " length"]:
        """One of the lists that were written, counted from 0."""
        if not 0 <= number < self.lists:
            raise DataError(f"list {number} of {self.folder}: it has {self.lists:,}")
        start = int(self._end_places[number - 1]) if number else 0
        end = int(self._end_places[number])
        if not start <= end <= self.tokens:
            raise DataError(f"{self.folder} is damaged: list {number} goes from {start} to {end}")
        return self.read_tokens(start, end - start)

    def verify(self) -> None:
        """Hash every byte again, and refuse what differs from what was written."""
        for name, sha256 in self._sha256.items():
            with (self.folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise DataError(f"{self.folder} is damaged: {name} is not what was written (its SHA-256 differs)")

    @cached_property
    def _mapped(self) -> Sequence[numpy.ndarray]:
        return [numpy.memmap(self.folder / name, dtype=self._kind, mode="r") for name in self._names]

    @cached_property
    def _end_places(self) -> numpy.ndarray:
        return numpy.memmap(self.folder / _ENDS, dtype=_END, mode="r")


def _count(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 2**50:
        raise ValueError(f"{str(given)[:40]!r} as a count")
    return given
