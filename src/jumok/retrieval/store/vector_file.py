"""The vectors of an index: those of unchanged passages are kept, and new ones are stored once they are computed.

Also the embedding model that computes them: its identity, and the texts that it can read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jumok.data import catalogue
from jumok.errors import Progress
from jumok.files import compute_sha256

from .passage_database import PassageDatabase, compute_digest

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded

CHUNK = 512  # passages whose vectors are stored together: an interrupted run loses at most these
DTYPE = np.float16
_LETTER = re.compile(r"[^\W\d_]")
_UNREADABLE = re.compile("[가-힣ㄱ-ㆎᄀ-ᇿ一-鿿㐀-䶿ぁ-ヿ]")


class PendingVectors:
    """Vectors of an index that is not finished: a run that was interrupted continues with them.

    Args:
        file: The SQLite database; a damaged one, or one of another model, is replaced.
    """

    def __init__(self, file: Path, model: str) -> None:
        self._file = file
        try:
            self._connection = self._open()
            row = self._connection.execute("SELECT model FROM origin").fetchone()
            is_usable = row == (model,) or row is None
        except sqlite3.DatabaseError:
            is_usable = False
        if not is_usable:
            self.remove()
            self._connection = self._open()
        self._connection.execute("INSERT OR IGNORE INTO origin VALUES (1, ?)", (model,))
        self._connection.commit()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file)
        self._connection = connection
        connection.executescript(
            "CREATE TABLE IF NOT EXISTS origin (id INTEGER PRIMARY KEY, model TEXT);"
            "CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID;"
        )
        return connection

    def get(self, digest: bytes) -> np.ndarray | None:
        """Return a vector; None if it is not stored, or damaged."""
        try:
            row = self._connection.execute(
                "SELECT vector, checksum FROM vectors WHERE digest = ?", (digest,)
            ).fetchone()
        except sqlite3.DatabaseError:
            return None
        if row is None or zlib.crc32(row[0]) != row[1]:
            return None
        return np.frombuffer(row[0], dtype=DTYPE)

    def add(self, vectors: Iterable[tuple[bytes, np.ndarray]]) -> None:
        """Store vectors on the disk."""
        rows = [(digest, vector.tobytes(), zlib.crc32(vector.tobytes())) for digest, vector in vectors]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def remove(self) -> None:
        """Close and remove the database."""
        with contextlib.suppress(AttributeError):
            self._connection.close()
        for suffix in ("", "-journal"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)


class OldVectors:
    """The vectors of an earlier generation of the index, by the digest of their texts."""

    def __init__(self, database: PassageDatabase, file: Path) -> None:
        self._database = database
        self._matrix = np.load(file, mmap_mode="r", allow_pickle=False)

    def get(self, digest: bytes) -> np.ndarray | None:
        """Return a vector; None if there is none."""
        number = self._database.find_digest(digest)
        if number is None:
            return None
        vector: np.ndarray = self._matrix[number]
        return vector if vector.any() else None


class VectorWriter:
    """Write the vectors of a database's passages into a file, one row each. Passages without a vector have zeros.

    Args:
        sources: Where vectors may be stored already.
    """

    def __init__(self, file: Path, database: PassageDatabase, sources: list[OldVectors | PendingVectors]) -> None:
        self._file = file
        self._database = database
        self._sources = sources
        self._matrix: np.ndarray | None = None
        self.missing = array("q")  # numbers of passages that need a vector
        self.count = 0
        self.unreadable = 0  # passages that the model cannot read

    def copy_stored(self) -> None:
        """Write the vectors that are stored already, and list the missing ones."""
        for (number, digest), text in zip(self._database.read_digests(), self._database.read_texts(), strict=True):
            vector = self._find_vector(digest)
            if vector is not None:
                self._write(number, vector)
            elif is_readable(text):
                self.missing.append(number)
            else:
                self.unreadable += 1

    def embed_missing(self, name: str, pending: PendingVectors, progress: Progress) -> None:
        """Compute the missing vectors. Those of each chunk are stored, so that an interrupted run can continue.

        Args:
            progress: Called with the number of finished passages, and of all missing ones.
        """
        if not self.missing:
            return
        loaded = load_model(name)
        total = len(self.missing)
        progress(0, total)
        for start in range(0, total, CHUNK):
            numbers = self.missing[start : start + CHUNK]
            texts = [self._database.get(number).text for number in numbers]
            vectors = list(self._embed(loaded, texts, lambda done, start=start: progress(start + done, total)))  # type: ignore[misc]
            pending.add(zip(map(compute_digest, texts), vectors, strict=True))
            for number, vector in zip(numbers, vectors, strict=True):
                self._write(number, vector)
        self.missing = array("q")

    def _find_vector(self, digest: bytes) -> np.ndarray | None:
        for source in self._sources:
            vector = source.get(digest)
            if vector is not None:
                return vector
        return None

    def _embed(self, loaded: Loaded, texts: list[str], progress: Callable[[int], None]) -> Iterator[np.ndarray]:
        from jumok.retrieval.search.embedding import embed_passages

        for vector in embed_passages(loaded, texts, progress):
            yield vector.astype(DTYPE)

    def _write(self, number: int, vector: np.ndarray) -> None:
        if self._matrix is None:
            shape = (len(self._database), len(vector))
            self._matrix = np.lib.format.open_memmap(self._file, mode="w+", dtype=DTYPE, shape=shape)
        self._matrix[number] = vector
        self.count += 1

    def close(self) -> None:
        """Write everything to the file."""
        if self._matrix is not None:
            self._matrix.flush()  # type: ignore[attr-defined]
            self._matrix = None


def identify_model(name: str) -> str:
    """Return a text that changes when the parameters of a model change."""
    from jumok.checkpoint.resolve import resolve_model_path

    path = resolve_model_path(name)
    entry = next((entry for entry in catalogue.list_entries() if entry.name == name), None)
    if entry is not None and not Path(name).exists():
        return hashlib.sha256(json.dumps(entry.pins, sort_keys=True).encode()).hexdigest()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    digests = [f"{file.name} {compute_sha256(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def load_model(name: str) -> Loaded:
    """Load an embedding model."""
    from jumok.checkpoint import load
    from jumok.retrieval.search.embedding import check_embedder

    loaded = load(name)
    check_embedder(loaded)
    return loaded


def is_readable(text: str) -> bool:
    """Return True if an English model can read a text: half of its letters are not Korean, Chinese or Japanese.

    >>> is_readable("a cat"), is_readable("고양이 cat"), is_readable("1, 2")
    (True, True, True)
    """
    if text.isascii():
        return True
    letters = len(_LETTER.findall(text))
    return 2 * len(_UNREADABLE.findall(text)) <= letters
