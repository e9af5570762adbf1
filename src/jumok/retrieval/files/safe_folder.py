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

MAX_FILE_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 2 * 2**30
NAMES_PER_REASON = 5  # that a SkipLog keeps
MAX_REASONS = 50  # reasons contain no names of files, but a library may write its own
OTHER_REASONS = "other reasons"
MAX_DEPTH = 100  # folders below each other; each holds two descriptors open
IGNORE_FILE = ".gitignore"
IgnoreLevels = list[tuple[int, tuple[IgnorePattern, ...]]]  # see is_ignored

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


class UnusableFileError(Exception):
    """A file has no text that can be indexed. The message is the reason, such as "binary"."""


@dataclass(frozen=True)
class SkippedFile:
    """A file or folder that is not indexed."""

    path: str  # relative to the indexed folder, as printable text
    reason: str  # such as "binary"


class SkipLog:
    r"""The files that are not indexed. Its memory is bounded: it counts all and keeps a few names.

    >>> skipped = SkipLog()
    >>> skipped.add(b"a\xff.txt", "binary")
    >>> skipped.counts, skipped.first
    ({'binary': 1}, (SkippedFile(path='a\\xff.txt', reason='binary'),))
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # by reason
        self._first: dict[str, list[str]] = {}

    def add(self, path: bytes, reason: str, count: int = 1) -> None:
        """Count a file, by its path relative to the indexed folder, or ``count`` parts of it, such as lines."""
        if reason not in self.counts and len(self.counts) >= MAX_REASONS:
            reason = OTHER_REASONS
        self.counts[reason] = self.counts.get(reason, 0) + count
        names = self._first.setdefault(reason, [])
        if len(names) < NAMES_PER_REASON:
            names.append(make_printable(path))

    @property
    def first(self) -> tuple[SkippedFile, ...]:
        """The first files of each reason."""
        return tuple(SkippedFile(name, reason) for reason, names in self._first.items() for name in names)


def make_printable(path: bytes) -> str:
    r"""Return a path as text that can be printed and stored anywhere.

    Bytes that are not UTF-8, line breaks and control characters become escapes: a terminal would obey them.

    >>> make_printable(b"a\nb/\xff\xea\xb0\x80.txt")
    'a\\nb/\\xff가.txt'
    """
    text = path.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class TextFile:
    """A file that may contain text, with the facts that show whether it has changed."""

    path: bytes  # relative to the folder, as the system stores it
    size: int
    modified: int  # when its content was changed last, in nanoseconds; a program can set it
    changed: int  # when its inode was changed last, in nanoseconds; a program cannot set it
    inode: int


class SafeFolder:
    """An open folder whose files are read. It may be a link itself, but no link inside is followed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
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
        os.close(self._descriptor)

    def list_text_files(
        self, skipped: SkipLog, *, max_files: int = INDEXED_FILES, excluded: Path | None = None
    ) -> Iterator[TextFile]:
        """Yield the files that may contain text, in the order of the file system.

        Names that begin with a dot, names that .gitignore files ignore, links, and everything but regular files are
        left out, and so is ``excluded``, such as the folder that holds the index. At most one folder of each level is
        open at a time, and no list of names is kept.
        """
        total = 0
        excluded_status = os.stat(excluded) if excluded is not None and excluded.exists() else None
        files = _walk(self._descriptor, b"", [], skipped, excluded_status)
        for count, file in enumerate(files, start=1):
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
    return TextFile(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def open_regular_file(name: bytes | str, parent: int | None = None) -> int:
    """Return the descriptor of a regular file, by its path or its name in a parent folder; links are not followed."""
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


def _walk(
    parent: int, prefix: bytes, levels: IgnoreLevels, skipped: SkipLog, excluded: os.stat_result | None
) -> Iterator[TextFile]:
    """Yield the text files of a folder in ``parent`` and of the folders below it.

    ``prefix`` is its path relative to the indexed folder, with "/" at the end; b"" for the indexed folder itself.
    """
    descriptor = os.open(prefix.split(b"/")[-2] if prefix else ".", _FOLDER_FLAGS, dir_fd=parent)
    try:
        if excluded is not None and os.path.samestat(os.fstat(descriptor), excluded):
            skipped.add(prefix[:-1], "holds the index")
            return
        levels = [*levels, (len(prefix), _read_ignore_file(descriptor, prefix, skipped))]
        with os.scandir(descriptor) as entries:
            for entry in entries:
                path = prefix + os.fsencode(entry.name)
                try:
                    reason = _find_reason(entry, path, levels)
                    if reason is not None:
                        skipped.add(path, reason)
                    elif entry.is_dir(follow_symlinks=False):
                        yield from _walk(descriptor, path + b"/", levels, skipped, excluded)
                    else:
                        yield describe_file(path, entry.stat(follow_symlinks=False))
                except OSError as error:
                    skipped.add(path, describe_open_error(error))
    finally:
        os.close(descriptor)


def _find_reason(entry: os.DirEntry[str], path: bytes, levels: IgnoreLevels) -> str | None:
    """Return why an entry is skipped; None if it is not."""
    if entry.name.startswith("."):
        return "hidden"
    is_link = entry.is_symlink()
    is_folder = not is_link and entry.is_dir(follow_symlinks=False)
    if is_ignored(path, is_folder, levels):
        return f"ignored by {IGNORE_FILE}"
    if is_link:
        return "link"
    if is_folder:
        return f"more than {MAX_DEPTH} folders deep" if len(levels) > MAX_DEPTH else None
    ending = get_ending(entry.name)
    if not entry.is_file(follow_symlinks=False):
        return "not a regular file"
    if ending and ending not in TEXT_ENDINGS:  # README and the like have none
        return "not a text file by its ending"
    is_large = entry.stat(follow_symlinks=False).st_size > MAX_FILE_BYTES
    return f"larger than {MAX_FILE_BYTES // 2**20} MB" if is_large else None


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


def get_ending(name: str) -> str:
    """Return the ending of a file name in lower case, such as ".txt"; "" if it has none.

    >>> get_ending("notes/READ.ME/Notes.TXT"), get_ending("notes.d/README")
    ('.txt', '')
    """
    name = name.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""
