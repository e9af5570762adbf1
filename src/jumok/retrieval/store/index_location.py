"""Where the index of a folder is stored: in the cache folder, never in the indexed folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jumok.data.catalogue.cache import get_cache_folder
from jumok.errors import ArgumentError, DataError

try:
    import fcntl
except ImportError:  # Windows has no flock; there an index is not locked
    fcntl = None  # type: ignore[assignment]

INDEXES = "indexes"


def get_indexes_folder() -> Path:
    """Return the folder of all indexes in the cache; it may not exist yet."""
    return get_cache_folder() / INDEXES


def locate_index(folder: Path) -> Path:
    """Return the folder in the cache that holds the index of a folder; it may not exist yet.

    Args:
        folder: The indexed folder, an absolute path without links.

    Raises:
        ArgumentError: If the folder holds indexes itself.
    """
    indexes = get_indexes_folder().resolve()
    if folder == indexes or indexes in folder.parents:
        raise ArgumentError(f"{folder} holds the indexes of other folders; index a folder of your own files")
    return indexes / hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]


@contextlib.contextmanager
def lock_index(location: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time open or write an index; others wait. The lock ends with its process.

    Args:
        report: Called with a sentence if another process holds the lock.

    Raises:
        DataError: If the cache cannot be written.
    """
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
