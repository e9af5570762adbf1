"""Read text files line by line, in constant memory; unusable lines are reported by file and line number."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from jumok.errors import DataError

MAX_LINE = 16 * 2**20  # characters
_MAX_MESSAGES = 5
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # how "surrogateescape" represents a byte that is not UTF-8

Example = TypeVar("Example")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class ProblemLog:
    """Handle unusable lines: raise an error, or skip and count them.

    >>> problems = ProblemLog(skip=True)
    >>> problems.report("a.tsv:17", "expected 2 columns, got 3")
    >>> print(problems)
    1 skipped; first: a.tsv:17: expected 2 columns, got 3
    """

    def __init__(self, skip: bool = False) -> None:
        """Create an empty log.

        Args:
            skip: Skip and count problems instead of raising DataError.
        """
        self.skip = skip
        self.count = 0
        self.first: list[str] = []  # the first few messages

    def report(self, location: str, message: str, unit: str = "lines") -> None:
        """Report something that cannot be used.

        Args:
            location: File and line, such as "a.tsv:17".
            message: What is wrong.
            unit: What is skipped: "lines" or "files".

        Raises:
            DataError: If `skip` is off.
        """
        if not self.skip:
            raise DataError(f"{location}: {message}; fix it, or skip such {unit} with --skip-bad")
        self.count += 1
        if len(self.first) < _MAX_MESSAGES:
            self.first.append(f"{location}: {message}")

    def __str__(self) -> str:
        return f"{self.count:,} skipped; first: {self.first[0]}" if self.count else "nothing skipped"


def list_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list.

    Args:
        paths: A path, or an iterable of paths.

    Raises:
        DataError: If there is no path.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise DataError("there is no file to read; give at least one path")
    return [Path(path) for path in listed]


def list_files(paths: Paths) -> Iterator[Path]:
    """Yield files as given, and all files below folders, sorted by name.

    Files and folders whose names begin with a dot are skipped in folders, and links to folders are not followed.

    Args:
        paths: A path, or an iterable of paths.
    """
    for path in list_paths(paths):
        if _is_folder(path):
            yield from _walk_folder(path)
        else:
            yield path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # an invalid name; opening the file raises an error with a message
        return False


def _walk_folder(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def _raise_unreadable(error: OSError) -> None:
    raise DataError(f"the folder {error.filename} cannot be read: {error.strerror}") from error


def get_extension(path: Path) -> str:
    """Return the extension of a file in lower case, without .gz.

    Args:
        path: The file.

    >>> get_extension(Path("A.TSV.gz"))
    '.tsv'
    """
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_lines(path: Path, problems: ProblemLog, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Yield (line number, line without its end) of a text file.

    Lines end with \n, \r\n or \r. Lines that are not in the encoding, contain a NUL character or are longer than
    MAX_LINE are reported; so are files that are empty, binary or damaged.

    Args:
        path: The file; it is decompressed if its name ends with .gz.
        problems: Receives unusable lines.
        encoding: The encoding; in UTF-8, a byte order mark is ignored.
    """
    with _open_file(path) as raw:
        try:
            yield from _read_text_lines(path, raw, problems, encoding)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            problems.report(str(path), f"the file cannot be decompressed ({error})", "files")
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def close_after(examples: Iterator[Example]) -> Iterator[Iterator[Example]]:
    """Close a generator at the end of the block, even after an error, so that its file is closed too.

    Args:
        examples: An iterator; anything but a generator is left alone.
    """
    try:
        yield examples
    finally:
        if isinstance(examples, Generator):
            examples.close()


def require_any(examples: Iterator[Example], describe: Callable[[], str]) -> Iterator[Example]:
    """Yield all examples; raise DataError if there are none.

    Args:
        examples: The examples.
        describe: Returns the error message; it is called after all files have been read.
    """
    is_empty = True
    for example in examples:
        is_empty = False
        yield example
    if is_empty:
        raise DataError(describe())


def _open_file(path: Path) -> io.BufferedReader | gzip.GzipFile:
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "does not exist"
            raise DataError(f"{path} {reason}; give the path of a file or a folder")
        if path.name.lower().endswith(".gz"):
            return gzip.open(path, "rb")
        return io.BufferedReader(io.FileIO(path), 1 << 16)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{str(path)[:200]!r} cannot be read: {error}") from error


def _read_text_lines(
    path: Path, raw: io.BufferedReader | gzip.GzipFile, problems: ProblemLog, encoding: str
) -> Iterator[tuple[int, str]]:
    start = raw.peek(8192)[:8192]
    if not start:
        return problems.report(f"{path}:1", "the file is empty", "files")
    if start.startswith(_UTF_16_MARKS):
        return problems.report(f"{path}:1", "the file is in UTF-16; save it as UTF-8", "files")
    if b"\0" in start:
        return problems.report(f"{path}:1", "the file is binary, not text", "files")

    # bytes that are not UTF-8 become lone surrogates, so that only their line is reported and reading continues
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    with io.TextIOWrapper(raw, codec, errors="surrogateescape") as text:
        yield from _check_lines(path, text, problems)
    return None


def _check_lines(path: Path, text: io.TextIOWrapper, problems: ProblemLog) -> Iterator[tuple[int, str]]:
    number = 0
    while line := text.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and line[-1] != "\n":
            while line and line[-1] != "\n":
                line = text.readline(MAX_LINE)
            problems.report(f"{path}:{number}", f"the line is longer than {MAX_LINE:,} characters")
            continue

        line = line.removesuffix("\n")
        invalid = None if line.isascii() else _ESCAPED_BYTE.search(line)
        if invalid is not None:
            byte = ord(invalid[0]) - 0xDC00
            problems.report(f"{path}:{number}", f"character {invalid.start() + 1} is byte {byte:02X}, not UTF-8 text")
        elif "\0" in line:
            problems.report(f"{path}:{number}", "the line contains a NUL character")
        else:
            yield number, line
