"""Look at indexes without writing them, list them, and remove them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jumok.defaults import INDEXED_FILES
from jumok.errors import ArgumentError, DataError
from jumok.retrieval.files import SafeFolder, make_printable

from .build import BuildSettings
from .folder_index import describe_index
from .generation import DamagedIndexError, open_current
from .index_location import get_indexes_folder, locate_index, lock_index
from .index_status import IndexStatus

ATTEMPTS = 3  # to read an index that another process replaces at the same time


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


def inspect_index(
    folder: str | os.PathLike[str], *, verify: bool = False, max_files: int = INDEXED_FILES
) -> IndexStatus | None:
    """Return what the index of a folder contains, and what has changed since; nothing is written.

    Args:
        verify: Hash every file of the index, whatever its size.

    Returns:
        The status; None if the folder is not indexed.

    Raises:
        ArgumentError: If there is no such folder.
        DataError: If the index is damaged.
    """
    with SafeFolder(folder) as safe_folder:
        location = locate_index(safe_folder.path)
        settings = BuildSettings(location, None, None, max_files, lambda stage, done, total: None)
        for attempt in range(ATTEMPTS):
            try:
                generation = open_current(location, verify=verify)
                if generation is None:
                    return None
                return describe_index(safe_folder, generation, settings, "opened", [])
            except DamagedIndexError as error:
                if attempt + 1 == ATTEMPTS:
                    raise DataError(
                        f"the index of {make_printable(os.fsencode(safe_folder.path))} cannot be used ({error}); "
                        "jumok index builds it again"
                    ) from None
    raise AssertionError("unreachable")


def remove_index(folder: str | os.PathLike[str], report: Callable[[str], None] = lambda sentence: None) -> bool:
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
