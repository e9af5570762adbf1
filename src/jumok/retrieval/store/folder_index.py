"""The index of a folder: open it, after building or updating it as needed, and search it; look at it without writing
it, list all indexes, and remove them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.defaults import INDEXED_FILES
from jumok.errors import ArgumentError, CheckpointError, DataError
from jumok.reporting import Report, StageProgress
from jumok.retrieval.files.read_passages import detect_encoding
from jumok.retrieval.files.safe_folder import SafeFolder, SkipLog, SkippedFile, UnusableFileError, make_printable
from jumok.retrieval.passage import Passage

from .build import BuildSettings, build_generation
from .index_version import (
    BM25_FOLDER,
    GRAPH_FILE,
    PENDING_FILE,
    DamagedIndexError,
    IndexFacts,
    IndexGeneration,
    get_indexes_folder,
    locate_index,
    lock_index,
    open_current,
    remove_leftovers,
)
from .passage_database import PassageDatabase, remove_pending_vectors

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.retrieval.search.search import SearchResult

DEFAULT_EMBEDDER = "minilm"
KOREAN_EMBEDDER = "e5-multilingual"
SAMPLED_FILES, SAMPLED_BYTES = 200, 4096  # of a folder, to find out its language
UNREADABLE_SHARE = 0.1  # of the files; from there on, the English model is not enough
ATTEMPTS = 3  # to read an index that another process replaces at the same time


@dataclass(frozen=True)
class FileChanges:
    """How the files of a folder differ from its index; a changed file has other content, or may have."""

    new: int = 0
    changed: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.removed)

    def __str__(self) -> str:
        parts = [f"{count:,} {name}" for name, count in asdict(self).items() if count]
        return ", ".join(parts) or "no changes"


@dataclass(frozen=True, kw_only=True)
class IndexStatus(IndexFacts):
    """What an index contains, and what opening it has done."""

    location: str
    skipped: tuple[SkippedFile, ...]
    skipped_counts: dict[str, int]  # how many files are not indexed, by reason
    action: str  # "built", "updated", or "opened" if nothing had changed
    changes: FileChanges  # since the index was written; of an update, those that it has read
    notices: tuple[str, ...] = ()  # sentences for the person, such as that a damaged index was built again

    def to_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        return asdict(self)


def open_index(
    folder: str | os.PathLike[str],
    *,
    embedder: str | None = DEFAULT_EMBEDDER,
    progress: StageProgress | None = None,
    report: Report | None = None,
    max_files: int = INDEXED_FILES,
    rebuild: bool = False,
) -> FolderIndex:
    """Open the index of a folder. Only files that have changed since the last time are read again.

    An index that is damaged, or that another version or model has made, is built again, and a sentence says so. Two
    processes at once are safe: the second one waits.

    Args:
        embedder: The embedding model; None: search by words only (BM25), and vectors that are stored already are kept;
            "auto": the model of the stored index, else e5-multilingual for a folder with Korean, Chinese or Japanese
            texts and minilm for others, if it is on this machine, else none.
        progress: Called with the finished and all steps, and the stage: "reading", "embedding" or "indexing".
        report: Called at once with sentences that the person should read; ``FolderIndex.status.notices`` has them too.

    Raises:
        ArgumentError: If there is no such folder, or the embedding model computes no vectors of texts.
        CheckpointError: If the embedding model is not on this machine.
        DataError: If the folder contains no text or too many files, or the index cannot be stored.
    """
    notices: list[str] = []

    def notify(sentence: str) -> None:
        notices.append(sentence)
        if report is not None:
            report(sentence)

    with SafeFolder(folder) as safe_folder:
        location = locate_index(safe_folder.path)
        if embedder == "auto":
            embedder = _select_embedder(safe_folder, location, max_files, notify)
        model = None
        if embedder is not None:
            from jumok.retrieval.search.embedding import identify_model

            model = identify_model(embedder)
        settings = BuildSettings(location, embedder, model, max_files, progress or (lambda done, total, stage: None))
        with lock_index(location, notify):
            try:
                return _open_locked(safe_folder, settings, notices, notify, rebuild)
            except (OSError, sqlite3.Error) as error:
                message = getattr(error, "strerror", None) or str(error)
                raise DataError(f"the index of {safe_folder.path} cannot be stored in {location}: {message}") from error


class FolderIndex:
    """The passages of a folder, which can be searched. It stays usable while another process updates the index.

    Args:
        embedder: The embedding model for questions; None: search by words only.
    """

    def __init__(self, generation: IndexGeneration, status: IndexStatus, embedder: str | None) -> None:
        from jumok.retrieval.search.bm25 import BM25Index

        self.folder = status.folder
        self.status = status
        self.embedder = embedder
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()
        self._database = PassageDatabase.open(generation.passages_file)
        self._bm25 = BM25Index.open(generation.folder / BM25_FOLDER)
        self._vectors = None
        if embedder is not None and generation.vectors_file.is_file():
            from jumok.retrieval.search.vectors import VectorIndex

            graph = generation.folder / GRAPH_FILE
            self._vectors = VectorIndex.open(generation.vectors_file, graph if graph.is_file() else None)

    def __enter__(self) -> FolderIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of the index."""
        self._database.close()

    def __len__(self) -> int:
        """Return the number of passages."""
        return self.status.passages

    def get(self, number: int) -> Passage:
        """Return a passage."""
        with self._lock:
            return self._database.get(number)

    def search(self, question: str, count: int = 5, method: str = "auto") -> SearchResult:
        """Return the passages that fit best; ``method`` is "bm25", "dense" (vectors), "fused" (both) or "auto"."""
        from jumok.retrieval.search.search import search

        if self._loaded is None and self._vectors is not None and self.embedder is not None and method != "bm25":
            from jumok.retrieval.search.embedding import load_model

            self._loaded = load_model(self.embedder)
        return search(
            question,
            bm25=self._bm25,
            get_passage=self.get,
            vectors=self._vectors,
            embedder=self._loaded,
            embedder_name=self.embedder or DEFAULT_EMBEDDER,
            count=count,
            method=method,
        )


def _select_embedder(folder: SafeFolder, location: Path, max_files: int, notify: Report) -> str | None:
    """Return the embedding model of a stored index, or the one for the language of the files; None if it is not on
    this machine."""
    from jumok.checkpoint.resolve import resolve_model_path

    try:
        generation = open_current(location, check_files=False)
    except DamagedIndexError:
        generation = None
    embedder = choose_embedder(folder, max_files) if generation is None else generation.header.embedder
    if generation is not None and generation.header.unreadable > UNREADABLE_SHARE * generation.header.passages:
        with contextlib.suppress(CheckpointError):
            resolve_model_path(KOREAN_EMBEDDER)
            return KOREAN_EMBEDDER
    try:
        if embedder is not None:
            resolve_model_path(embedder)
    except CheckpointError as error:
        notify(f"the files are searched by words only: {error}")
        return None
    return embedder


def choose_embedder(folder: SafeFolder, max_files: int = INDEXED_FILES) -> str:
    """Return the embedding model for the languages of a folder, by the beginnings of some files."""
    from jumok.retrieval.search.embedding import is_readable

    read_count = unreadable = 0
    for file in itertools.islice(folder.list_text_files(SkipLog(), max_files=max_files), SAMPLED_FILES):
        try:
            descriptor = folder.open_file(file.path)
            try:
                content = os.pread(descriptor, SAMPLED_BYTES, 0)
                text = content.decode(detect_encoding(content), "ignore")
            finally:
                os.close(descriptor)
        except (OSError, UnusableFileError):
            continue
        read_count += 1
        unreadable += not is_readable(text)
    return KOREAN_EMBEDDER if unreadable > UNREADABLE_SHARE * read_count else DEFAULT_EMBEDDER


def _open_locked(
    folder: SafeFolder, settings: BuildSettings, notices: list[str], notify: Report, rebuild: bool
) -> FolderIndex:
    """Open the index, after building what is needed."""
    try:
        old = None if rebuild else open_current(settings.location)
        if old is not None:
            try:
                return _open_or_update(folder, settings, notices, notify, old)
            except (OSError, sqlite3.Error, DataError):
                open_current(settings.location, verify=True)  # a large index is not hashed whenever it is opened
                raise
    except DamagedIndexError as error:
        notify(f"the index of this folder cannot be used ({error}); it is built again")
    if rebuild:
        remove_pending_vectors(settings.location / PENDING_FILE)
    generation = build_generation(folder, settings, None)
    return FolderIndex(
        generation, describe_index(folder, generation, settings.max_files, "built", notices), settings.embedder
    )


def _open_or_update(
    folder: SafeFolder, settings: BuildSettings, notices: list[str], notify: Report, old: IndexGeneration
) -> FolderIndex:
    """Open an index, after updating it if files, versions or the embedding model have changed."""
    status = describe_index(folder, old, settings.max_files, "opened", notices)
    is_complete = settings.embedder is None or (old.header.model == settings.model and not old.header.missing)
    if not status.changes and is_complete and old.find_outdated_part() is None:
        remove_leftovers(old)
        return FolderIndex(old, status, settings.embedder)
    if (outdated := old.find_outdated_part()) is not None:
        notify(f"this version of jumok has other rules for {outdated}; the index is built again")
    if settings.embedder is not None and old.header.model not in (None, settings.model):
        notify(
            f"the vectors of the index are from another embedding model ({old.header.embedder}); all are computed again"
        )
    open_current(settings.location, verify=True)  # nothing that is damaged is copied
    generation = build_generation(folder, settings, old)
    updated = describe_index(folder, generation, settings.max_files, "updated", notices)
    return FolderIndex(generation, replace(updated, changes=status.changes), settings.embedder)


def describe_index(
    folder: SafeFolder, generation: IndexGeneration, max_files: int, action: str, notices: list[str]
) -> IndexStatus:
    """Return what an index contains, and how the folder differs from it. No file of the folder is read."""
    skipped = SkipLog()
    new = changed = unchanged = 0
    indexes = generation.folder.parent.parent
    with closing(PassageDatabase.open(generation.passages_file)) as database:
        for file in folder.list_text_files(skipped, max_files=max_files, excluded=indexes):
            listed = database.find_file(file.path)
            new += listed is None
            unchanged += listed == file
            changed += listed not in (None, file)
        changes = FileChanges(new, changed, database.count_files()[0] - unchanged - changed)
        database.report_skipped(skipped)
    return IndexStatus(
        **{field.name: getattr(generation.header, field.name) for field in fields(IndexFacts)},
        location=str(generation.folder.parent),
        skipped=skipped.first,
        skipped_counts=skipped.counts,
        action=action,
        changes=changes,
        notices=tuple(notices),
    )


@dataclass(frozen=True)
class StoredIndex:
    """One index in the cache."""

    location: str
    folder: str | None  # the indexed folder; None if the index cannot be read
    exists: bool
    passages: int
    bytes: int
    built_at: str | None  # as ISO 8601; None if the index cannot be read

    def to_json(self) -> dict[str, Any]:
        """Return the index as a JSON object."""
        return asdict(self)


def inspect_index(
    folder: str | os.PathLike[str], *, verify: bool = False, max_files: int = INDEXED_FILES
) -> IndexStatus | None:
    """Return what the index of a folder contains, and what has changed since; None if it is not indexed.

    Nothing is written. ``verify`` hashes every file of the index, whatever its size.
    """
    with SafeFolder(folder) as safe_folder:
        location = locate_index(safe_folder.path)
        remaining = ATTEMPTS
        while True:
            remaining -= 1
            try:
                generation = open_current(location, verify=verify)
                if generation is None:
                    return None
                return describe_index(safe_folder, generation, max_files, "opened", [])
            except DamagedIndexError as error:
                if not remaining:
                    raise DataError(
                        f"the index of {make_printable(os.fsencode(safe_folder.path))} cannot be used ({error}); "
                        "jumok index builds it again"
                    ) from None


def remove_index(folder: str | os.PathLike[str], report: Report = lambda sentence: None) -> bool:
    """Remove the index of a folder, which need not exist any more, from the cache; return True if it was indexed."""
    try:
        location = locate_index(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{str(folder)[:200]!r} is not the path of a folder: {error}") from None
    if not location.exists():
        return False
    with lock_index(location, report):
        shutil.rmtree(location, ignore_errors=True)
        if location.exists():
            raise DataError(f"the index in {location} cannot be removed; remove this folder yourself")
    return True


def list_indexes() -> list[StoredIndex]:
    """Return all indexes in the cache, sorted by the indexed folder."""
    indexes = []
    for location in get_indexes_folder().glob("*/"):
        try:
            generation = open_current(location, check_files=False)
        except DamagedIndexError:
            generation = None
        header = None if generation is None else generation.header
        folder = None if header is None else header.folder
        indexes.append(
            StoredIndex(
                location=str(location),
                folder=folder,
                exists=folder is not None and Path(folder).is_dir(),
                passages=0 if header is None else header.passages,
                bytes=measure_folder(location),
                built_at=None if header is None else header.built_at,
            )
        )
    return sorted(indexes, key=lambda index: (index.folder or "", index.location))


def measure_folder(folder: Path) -> int:
    """Return the size of the files below a folder in bytes."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # another process has removed it
            continue
    return total
