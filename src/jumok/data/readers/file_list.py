"""List the files of the user's paths: folders with all files below, without licences and readmes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.data.readers.lines import Notice, Paths, ProblemLog
from jumok.errors import DataError

# files that describe a data set, such as LICENSE, COPYING.LESSER, LICENSE-MIT, README.ko.md
_DESCRIPTION_FILE = re.compile(
    r"(un)?licen[cs]es?|(un)?licen[cs]e[-._](mit|bsd|apache|l?gpl|agpl|mpl|cc|cc0|cc-by|ofl)([-._]?[\w.-]{0,9})"
    r"|copying([-._]lesser)?|notice|readme([-._][a-z]{2}(-[a-z]{2})?)?"
)
_DESCRIPTION_EXTENSIONS = (".txt", ".md", ".rst", ".html")


@dataclass(frozen=True)
class UnreadFiles(Notice):
    """Files of a folder that are not read, because they describe the data: LICENSE, COPYING, README."""

    paths: tuple[Path, ...]

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.paths[:3])) + (", ..." if len(self.paths) > 3 else "")
        count = "1 file was" if len(self.paths) == 1 else f"{len(self.paths):,} files were"
        return f"{count} not read, as licences and readmes are not data: {listed}"


def list_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise DataError("there is no file to read; give at least one path")
    return [Path(path) for path in listed]


def list_files(paths: Paths, problems: ProblemLog | None = None) -> Iterator[Path]:
    """Yield files as given, and all files below folders, sorted by name.

    In folders, files and folders whose names begin with a dot and files such as LICENSE and README are skipped, and
    links to folders are not followed.
    """
    unread: list[Path] = []
    for path in list_paths(paths):
        try:
            is_folder = path.is_dir()
        except (OSError, ValueError):  # an invalid name; opening the file raises an error with a message
            is_folder = False
        if not is_folder:
            yield path
            continue
        for root, folders, names in os.walk(path, onerror=_raise_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if is_description(name):
                    unread.append(Path(root, name))
                elif not name.startswith("."):
                    yield Path(root, name)
    if unread and problems is not None:
        problems.notify(UnreadFiles(tuple(unread)))


def is_description(name: str) -> bool:
    """Return whether a file describes the data instead of containing it: a licence or a readme.

    >>> [is_description(name) for name in ("LICENSE", "readme.md", "license-plates.txt", "LICENSE-MIT.txt")]
    [True, True, False, True]
    """
    stem, dot, extension = name.lower().rpartition(".")
    bare = stem if dot + extension in _DESCRIPTION_EXTENSIONS else name.lower()
    return _DESCRIPTION_FILE.fullmatch(bare) is not None


def _raise_unreadable(error: OSError) -> None:
    raise DataError(f"the folder {error.filename} cannot be read: {error.strerror}") from error
