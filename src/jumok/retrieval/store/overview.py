"""Look at indexes without writing them, list them, and remove them."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jumok.defaults import INDEXED_FILES
from jumok.errors import ArgumentError, DataError, Report
from jumok.retrieval.files import SafeFolder, SkipLog, SkippedFile, make_printable

from .generation import DamagedIndexError, IndexGeneration, get_indexes_folder, locate_index, lock_index, open_current
from .passage_database import PassageDatabase

ATTEMPTS = 3  # to read an index that another process replaces at the same time


@dataclass(frozen=True)
class FileChanges:
    """How the files of a folder differ from its index.

    Args:
        changed: Files that have other content, or may have.
    """

    new: int = 0
    changed: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.removed)

    def __str__(self) -> str:
        parts = [f"{count:,} {name}" for name, count in asdict(self).items() if count]
        return ", ".join(parts) or "no changes"


@dataclass(frozen=True)
class IndexStatus:
    """What an index contains, and what opening it has done.

    Args:
        bytes: The size of these files.
        skipped_counts: How many files are not indexed, by reason.
        embedder: The model that computed the vectors; None if there are none.
        unreadable: Passages without a vector because they are in Korean, Chinese or Japanese, which the model cannot
            read.
        built_at: When the index was written, as ISO 8601.
        seconds: How long writing it took.
        passages_per_second: How many passages were read or embedded in each of these seconds.
        action: What opening the index did: "built", "updated", or "opened" if nothing had changed.
        changes: Which files had changed since the index was written the last time; when nothing is written, since then.
        notices: Sentences that the person should read, such as that a damaged index was built again.
    """

    folder: str
    location: str
    files: int
    passages: int
    bytes: int
    skipped: tuple[SkippedFile, ...]
    skipped_counts: dict[str, int]
    embedder: str | None
    vectors: int
    unreadable: int
    built_at: str
    seconds: float
    passages_per_second: float
    action: str
    changes: FileChanges
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class StoredIndex:
    """One index in the cache.

    Args:
        folder: The indexed folder; None if the index cannot be read.
        built_at: When it was written, as ISO 8601; None if the index cannot be read.
    """

    location: str
    folder: str | None
    exists: bool
    passages: int
    bytes: int
    built_at: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the index as a JSON object."""
        return asdict(self)


def describe_index(
    folder: SafeFolder, generation: IndexGeneration, max_files: int, action: str, notices: list[str]
) -> IndexStatus:
    """Return what an index contains, and how the folder differs from it. No file of the folder is read.

    Args:
        action: What was done: "built", "updated" or "opened".
    """
    skipped = SkipLog()
    new = changed = unchanged = 0
    database = PassageDatabase.open(generation.passages_file)
    try:
        indexes = generation.folder.parent.parent
        for file in folder.list_text_files(skipped, max_files=max_files, excluded=indexes):
            if database.contains(file):
                unchanged += 1
            elif database.knows_path(file.path):
                changed += 1
            else:
                new += 1
        changes = FileChanges(new, changed, database.count_files()[0] - unchanged - changed)
        database.report_skipped(skipped)
    finally:
        database.close()
    header = {field: value for field, value in vars(generation.header).items() if field in IndexStatus.__annotations__}
    return IndexStatus(
        **header,
        location=str(generation.folder.parent),
        skipped=skipped.first,
        skipped_counts=skipped.counts,
        action=action,
        changes=changes,
        notices=tuple(notices),
    )


def inspect_index(
    folder: str | os.PathLike[str], *, verify: bool = False, max_files: int = INDEXED_FILES
) -> IndexStatus | None:
    """Return what the index of a folder contains, and what has changed since; nothing is written.

    Args:
        verify: Hash every file of the index, whatever its size.

    Returns:
        The status; None if the folder is not indexed.
    """
    with SafeFolder(folder) as safe_folder:
        location = locate_index(safe_folder.path)
        for attempt in range(ATTEMPTS):
            try:
                generation = open_current(location, verify=verify)
                if generation is None:
                    return None
                return describe_index(safe_folder, generation, max_files, "opened", [])
            except DamagedIndexError as error:
                if attempt + 1 == ATTEMPTS:
                    raise DataError(
                        f"the index of {make_printable(os.fsencode(safe_folder.path))} cannot be used ({error}); "
                        "jumok index builds it again"
                    ) from None
    raise AssertionError("unreachable")


def remove_index(folder: str | os.PathLike[str], report: Report = lambda sentence: None) -> bool:
    """Remove the index of a folder from the cache. The folder itself need not exist any more.

    Args:
        report: Called with a sentence if another process holds the index.

    Returns:
        True if it was indexed.
    """
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
