"""Walk an untrusted folder and open its files, without ever leaving it.

Folders and files are opened relative to the descriptor of their parent folder and links are never followed, so that a
folder that is replaced by a link during the walk cannot lead outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.defaults import INDEXED_FILES
from jumok.errors import ArgumentError, DataError

from .ignore_rules import MAX_BYTES as MAX_IGNORE_BYTES
from .ignore_rules import IgnorePattern, is_ignored, parse_ignore_file
from .skip_log import SkipLog, UnusableFileError, make_printable

MAX_FILE_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 2 * 2**30
MAX_DEPTH = 100  # folders below each other; each holds two descriptors open
IGNORE_FILE = ".gitignore"

MARKDOWN_ENDINGS = (".md", ".markdown")
RST_ENDINGS = (".rst",)
PO_ENDINGS = (".po",)
JSON_LINES_ENDINGS = (".jsonl", ".ndjson")
PDF_ENDINGS = (".pdf",)
# one line is one entry: the line breaks are kept
LINE_ENDINGS = (".csv", ".tsv", ".log", ".srt", ".vtt")
PLAIN_ENDINGS = (".txt", ".text", ".adoc", ".asciidoc", ".org", ".tex")
TEXT_ENDINGS = (
    *(*PLAIN_ENDINGS, *MARKDOWN_ENDINGS, *RST_ENDINGS),
    *(*PO_ENDINGS, *JSON_LINES_ENDINGS, *PDF_ENDINGS, *LINE_ENDINGS),
)

_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening a FIFO would wait for its writer
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True)
class TextFile:
    """A file that may contain text, with the facts that show whether it has changed.

    Args:
        path: Its path relative to the folder, as the system stores it.
        changed_at: When its content and its inode were changed last, in nanoseconds: (mtime, ctime). A program can set
            the first, but not the second.
    """

    path: bytes
    size: int
    changed_at: tuple[int, int]
    inode: int


class SafeFolder:
    """An open folder whose files are read.

    Args:
        folder: The folder. A link to a folder is followed here, but not inside.

    Raises:
        ArgumentError: If there is no such folder, or it cannot be opened.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        if os.scandir not in os.supports_fd or os.open not in os.supports_dir_fd:
            raise ArgumentError("indexing a folder needs a system that opens files relative to a folder, such as Linux")
        self.path = resolve_folder(folder)
        try:
            self._descriptor = os.open(self.path, _FOLDER_FLAGS)
        except OSError as error:
            raise ArgumentError(f"{folder} cannot be opened: {error.strerror}") from None

    def __enter__(self) -> SafeFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def list_text_files(
        self, skipped: SkipLog, *, max_files: int = INDEXED_FILES, excluded: Path | None = None
    ) -> Iterator[TextFile]:
        """Yield the files that may contain text, in the order of the file system.

        Names that begin with a dot, names that .gitignore files ignore, links, and everything but regular files are
        left out. At most one folder of each level is open at a time, and no list of names is kept.

        Args:
            excluded: A folder that is left out, such as the one that holds the index.
        """
        excluded_inode = _identify(excluded)
        total = 0
        for count, file in enumerate(self._walk(skipped, excluded_inode), start=1):
            total += file.size
            if count > max_files:
                raise DataError(
                    f"{self.path} contains more than {max_files:,} text files; index a folder inside it, exclude files "
                    f"with a {IGNORE_FILE} file, or allow more with --max-files N (max_files=N)"
                )
            if total > MAX_TOTAL_BYTES:
                raise DataError(
                    f"{self.path} contains more than {MAX_TOTAL_BYTES // 2**30} GB of text files; index a folder "
                    f"inside it, or exclude files with a {IGNORE_FILE} file"
                )
            yield file

    def open_file(self, path: bytes) -> int:
        """Return the descriptor of a regular file in the folder; the caller closes it."""
        *folders, name = path.split(b"/")
        parent = os.dup(self._descriptor)
        try:
            for folder in folders:
                child = os.open(folder, _FOLDER_FLAGS, dir_fd=parent)
                os.close(parent)
                parent = child
            return open_regular_file(name, parent)
        except OSError as error:
            raise UnusableFileError(describe_open_error(error)) from None
        finally:
            os.close(parent)

    def _walk(self, skipped: SkipLog, excluded: tuple[int, int] | None) -> Iterator[TextFile]:
        """Yield the files. The stack holds an open iterator for each level, and ``levels`` its .gitignore file."""
        stack: list[tuple[int, bytes, Iterator[os.DirEntry[str]]]] = []
        levels: list[tuple[int, tuple[IgnorePattern, ...]]] = []

        def enter(descriptor: int, prefix: bytes) -> None:
            try:
                entries = os.scandir(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            stack.append((descriptor, prefix, entries))
            levels.append((len(prefix), _read_ignore_file(descriptor, prefix, skipped)))

        try:
            enter(os.open(".", _FOLDER_FLAGS, dir_fd=self._descriptor), b"")
            while stack:
                descriptor, prefix, entries = stack[-1]
                try:
                    entry = next(entries, None)
                except OSError as error:
                    skipped.add(prefix, describe_open_error(error))
                    entry = None
                if entry is None:
                    entries.close()  # type: ignore[attr-defined]
                    os.close(descriptor)
                    stack.pop()
                    levels.pop()
                    continue

                name = os.fsencode(entry.name)
                path = prefix + name
                try:
                    reason = _find_reason(entry, path, levels)
                    if reason is not None:
                        skipped.add(path, reason)
                    elif entry.is_dir(follow_symlinks=False):
                        if len(stack) > MAX_DEPTH:
                            skipped.add(path, f"more than {MAX_DEPTH} folders deep")
                            continue
                        child = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
                        status = os.fstat(child)
                        if (status.st_dev, status.st_ino) == excluded:
                            os.close(child)
                            skipped.add(path, "holds the index")
                        else:
                            enter(child, path + b"/")
                    else:
                        status = entry.stat(follow_symlinks=False)
                        if status.st_size > MAX_FILE_BYTES:
                            skipped.add(path, f"larger than {MAX_FILE_BYTES // 2**20} MB")
                        else:
                            yield describe_file(path, status)
                except OSError as error:
                    skipped.add(path, describe_open_error(error))
        finally:
            for descriptor, _, entries in stack:
                entries.close()  # type: ignore[attr-defined]
                os.close(descriptor)


def resolve_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, without links."""
    shown = make_printable(os.fsencode(folder)) if str(folder).strip("\0") else repr(folder)
    try:
        path = Path(folder).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise ArgumentError(f"there is no folder {shown}; give the folder of your files") from None
        raise ArgumentError(f"{shown} cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    if not path.is_dir():
        raise ArgumentError(f"{shown} is a file; give the folder that contains it")
    return path


def describe_file(path: bytes, status: os.stat_result) -> TextFile:
    """Return a file with the facts that show whether it has changed."""
    return TextFile(path, status.st_size, (status.st_mtime_ns, status.st_ctime_ns), status.st_ino)


def open_regular_file(name: bytes | str, parent: int | None = None) -> int:
    """Return the descriptor of a regular file; links are not followed.

    Args:
        name: Its name in the parent folder, or its path.
        parent: The descriptor of the parent folder; None: the name is a path.
    """
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableFileError("not a regular file")
    return descriptor


def describe_open_error(error: OSError) -> str:
    """Return the reason why a file or folder is skipped."""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "link"
    if error.errno == errno.ENOENT:
        return "removed while the folder was read"
    return f"cannot be opened ({os.strerror(error.errno) if error.errno else error})"


def _find_reason(
    entry: os.DirEntry[str], path: bytes, levels: list[tuple[int, tuple[IgnorePattern, ...]]]
) -> str | None:
    """Return why an entry is skipped by its name or its kind; None if it is not."""
    if entry.name.startswith("."):
        return "hidden"
    is_link = entry.is_symlink()
    is_folder = not is_link and entry.is_dir(follow_symlinks=False)
    if is_ignored(path, is_folder, levels):
        return f"ignored by {IGNORE_FILE}"
    if is_link:
        return "link"
    if is_folder:
        return None
    if not entry.is_file(follow_symlinks=False):
        return "not a regular file"
    return None if is_text_name(entry.name) else "not a text file by its ending"


def _read_ignore_file(folder: int, prefix: bytes, skipped: SkipLog) -> tuple[IgnorePattern, ...]:
    try:
        descriptor = open_regular_file(IGNORE_FILE, folder)
    except FileNotFoundError:
        return ()
    except (OSError, UnusableFileError):  # git does not follow links here either
        skipped.add(prefix + IGNORE_FILE.encode(), f"a {IGNORE_FILE} that cannot be read has no effect")
        return ()
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MAX_IGNORE_BYTES + 1)
    if len(content) > MAX_IGNORE_BYTES:
        skipped.add(
            prefix + IGNORE_FILE.encode(), f"a {IGNORE_FILE} larger than {MAX_IGNORE_BYTES // 1024} KB has no effect"
        )
        return ()
    return parse_ignore_file(content)


def _identify(folder: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of a folder; None if there is no such folder."""
    try:
        status = os.stat(folder) if folder is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def get_ending(name: str) -> str:
    """Return the ending of a file name in lower case, such as ".txt"; "" if it has none.

    >>> get_ending("notes/READ.ME/Notes.TXT"), get_ending("notes.d/README")
    ('.txt', '')
    """
    name = name.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def is_text_name(name: str) -> bool:
    """Return True if a file of this name may contain text: it has a known ending, or none.

    >>> is_text_name("README"), is_text_name("a.md"), is_text_name("a.png")
    (True, True, False)
    """
    ending = get_ending(name)
    return not ending or ending in TEXT_ENDINGS
