"""A generation of an index: a folder that is complete before it becomes the current one, and is never changed again.

Indexes are stored in the cache folder, never in the indexed folder.
A build writes a new folder, and then replaces the file that names the current one: one atomic step. A process that is
killed leaves the old generation or the new one, and a process that reads the old one is not disturbed.
One SQLite database would not do: its transactions do not cover the memory-mapped files of BM25, vectors and graph, and
it does not notice a flipped bit in a text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jumok.data.catalogue.cache import get_cache_folder
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.files import compute_sha256, flush_to_disk, read_limited, write_atomically
from jumok.reporting import Report
from jumok.retrieval.files.read_passages import PASSAGES_VERSION
from jumok.retrieval.search.bm25 import TERMS_VERSION

from .passage_database import PassageDatabase, remove_pending_vectors

try:
    import fcntl
except ImportError:  # Windows has no flock; there an index is not locked
    fcntl = None  # type: ignore[assignment]

# Increase it when the files of an index, or the vectors of a model, would become other ones.
FORMAT_VERSION = 1
INDEXES = "indexes"
CURRENT_FILE = "current.json"
HEADER_FILE = "index.json"
PASSAGES_FILE = "passages.db"
VECTORS_FILE = "vectors.npy"
GRAPH_FILE = "neighbours.usearch"
PENDING_FILE = "pending.db"
BM25_FOLDER = "bm25"
PREFIX = "generation-"
MAX_HEADER_BYTES = 2**20
HASHED_BYTES = 256 * 2**20  # an index up to this size is hashed whenever it is opened: 0.15 seconds


class DamagedIndexError(JumokError):
    """An index cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class IndexFacts:
    """What an index contains, and how it was written."""

    folder: str  # as printable text
    files: int
    passages: int
    bytes: int  # of the files
    embedder: str | None  # the name of the embedding model; None without vectors
    vectors: int
    unreadable: int  # passages without a vector: in Korean, Chinese or Japanese, which the model cannot read
    built_at: str  # as ISO 8601
    seconds: float  # how long writing it took
    passages_per_second: float  # that were read or embedded


@dataclass(frozen=True, kw_only=True)
class Header(IndexFacts):
    """What a generation says about itself."""

    format: int
    passages_version: int  # of the rules that cut files into passages
    terms_version: int  # of the rules that split passages into terms
    model: str | None  # the identity of the embedding model; None without vectors
    missing: int  # passages without a vector, although the model could read them
    checksums: dict[str, tuple[int, str]]  # the size and SHA-256 of each file of the generation


@dataclass(frozen=True)
class IndexGeneration:
    """A generation that was opened and checked."""

    folder: Path
    header: Header

    @property
    def passages_file(self) -> Path:
        return self.folder / PASSAGES_FILE

    @property
    def vectors_file(self) -> Path:
        return self.folder / VECTORS_FILE

    def find_outdated_part(self) -> str | None:
        """Return which rules have changed since it was written; None if none have."""
        if self.header.passages_version != PASSAGES_VERSION:
            return "passages"
        return "terms" if self.header.terms_version != TERMS_VERSION else None


def get_indexes_folder() -> Path:
    """Return the folder of all indexes in the cache; it may not exist yet."""
    return get_cache_folder() / INDEXES


def locate_index(folder: Path) -> Path:
    """Return the folder in the cache for the index of a folder, given by its absolute path without links."""
    indexes = get_indexes_folder().resolve()
    if folder == indexes or indexes in folder.parents:
        raise ArgumentError(f"{folder} holds the indexes of other folders; index a folder of your own files")
    return indexes / hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]


@contextlib.contextmanager
def lock_index(location: Path, report: Report) -> Iterator[None]:
    """Let one process at a time open or write an index; others report it and wait. The lock ends with its process."""
    try:
        location.parent.mkdir(parents=True, exist_ok=True)
        # beside the folder, so that removing the index does not remove the lock
        handle = os.open(location.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise DataError(
            f"the index cannot be stored in {location.parent}: {error.strerror}; choose another cache with JUMOK_CACHE"
        ) from None
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("another process is indexing this folder; waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError:  # the file system cannot lock: generations keep readers apart from writers
                pass
        yield
    finally:
        os.close(handle)


def open_current(location: Path, *, verify: bool = False, check_files: bool = True) -> IndexGeneration | None:
    """Return the current generation of an index; None if there is no index.

    An index of up to 256 MB is hashed, of a larger one the sizes are compared. ``verify`` hashes every file and lets
    SQLite check its pages; without ``check_files`` only the header is read.
    """
    try:
        pointer = json.loads(read_limited(location / CURRENT_FILE, MAX_HEADER_BYTES))
        folder = location / Path(pointer["generation"]).name
        header_bytes = read_limited(folder / HEADER_FILE, MAX_HEADER_BYTES)
        is_unchanged = hashlib.sha256(header_bytes).hexdigest() == pointer["sha256"]
        stored = json.loads(header_bytes)
    except FileNotFoundError as error:
        if error.filename == str(location / CURRENT_FILE):
            return None
        raise DamagedIndexError(f"{HEADER_FILE} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedIndexError(f"{CURRENT_FILE} or {HEADER_FILE} cannot be read") from None
    if not is_unchanged:
        raise DamagedIndexError(f"{HEADER_FILE} has changed")
    if stored.get("format") != FORMAT_VERSION:
        raise DamagedIndexError("another version of jumok has written it")
    stored["checksums"] = {name: tuple(checksum) for name, checksum in stored["checksums"].items()}
    generation = IndexGeneration(folder, Header(**stored))
    if check_files:
        _check_files(generation, verify)
    return generation


def publish(location: Path, folder: Path, facts: dict[str, Any]) -> IndexGeneration:
    """Make a complete generation the current one, and remove the others; ``facts`` are the ``IndexFacts`` and more."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in [*files, *{path.parent for path in files}]:
        flush_to_disk(path)
    checksums = {str(path.relative_to(folder)): (path.stat().st_size, compute_sha256(path)) for path in files}
    header = Header(
        format=FORMAT_VERSION,
        passages_version=PASSAGES_VERSION,
        terms_version=TERMS_VERSION,
        checksums=checksums,
        **facts,
    )
    content = json.dumps(asdict(header), indent=1).encode()
    write_atomically(folder / HEADER_FILE, content)
    flush_to_disk(folder)
    flush_to_disk(location)

    pointer = {"generation": folder.name, "sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(location / CURRENT_FILE, json.dumps(pointer))
    flush_to_disk(location)
    generation = IndexGeneration(folder, header)
    remove_leftovers(generation)
    return generation


def remove_leftovers(generation: IndexGeneration) -> None:
    """Remove older generations, and what killed processes have left. Call it only with the index locked."""
    location = generation.folder.parent
    for folder in location.glob(f"{PREFIX}*"):
        if folder != generation.folder:
            shutil.rmtree(folder, ignore_errors=True)
    for path in location.glob(f".{CURRENT_FILE}.*"):
        path.unlink(missing_ok=True)
    if not generation.header.missing and generation.header.embedder is not None:
        remove_pending_vectors(location / PENDING_FILE)


def _check_files(generation: IndexGeneration, verify: bool) -> None:
    checksums = generation.header.checksums
    total = sum(size for size, _ in checksums.values())
    for name, (size, sha256) in checksums.items():
        path = generation.folder / name
        try:
            actual_size = path.stat().st_size
            if actual_size != size or not path.is_file():
                raise DamagedIndexError(f"{name} has {actual_size:,} bytes instead of {size:,}")
            if (verify or total <= HASHED_BYTES) and compute_sha256(path) != sha256:
                raise DamagedIndexError(f"{name} has changed")
        except OSError:
            raise DamagedIndexError(f"{name} cannot be read") from None
    if verify:
        try:
            with contextlib.closing(PassageDatabase.open(generation.passages_file)) as database:
                database.check_pages()
        except sqlite3.Error as error:
            raise DamagedIndexError(f"{PASSAGES_FILE}: {error}") from None
