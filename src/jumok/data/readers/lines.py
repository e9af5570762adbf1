"""Text files, line by line, read with care: what cannot be used is named by file and line, nothing is held whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from jumok.errors import DataError

LONGEST = 16 * 2**20  # characters; a longer line is no line that anybody wrote
_SHOWN = 5
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ESCAPED = re.compile("[\udc80-\udcff]")  # how "surrogateescape" writes a byte that is no UTF-8

Read = TypeVar("Read")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class ProblemLog:
    """What becomes of a line that cannot be used: it is an error, or, with `skip`, it is left out and counted.

    >>> problems = Problems(skip=True)
    >>> problems.bad("a.tsv:17", "3 columns where 2 are expected")
    >>> print(problems)
    1 skipped; first: a.tsv:17: 3 columns where 2 are expected
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.count = 0
        self.first: list[str] = []  # the first few, as they would have been said

    def report(self, place: str, sentence: str, such: str = "lines") -> None:
        """Something at `place` ("a.tsv:17") cannot be used, and why."""
        if not self.skip:
            raise DataError(f"{place}: {sentence}; mend it, or leave such {such} out and count them (--skip-bad)")
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(f"{place}: {sentence}")

    def __str__(self) -> str:
        return f"{self.count:,} skipped; first: {self.first[0]}" if self.count else "nothing skipped"


def list_paths(paths: Paths) -> list[Path]:
    """What was given, one path or several, as a list."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise DataError("no file was given to read")
    return [Path(path) for path in given]


def list_files(paths: Paths) -> Iterator[Path]:
    """Every file that is meant: files as they were given, folders with all that is below them, sorted by name.

    Names that begin with a dot are left out of folders, and links to folders are not followed.
    """
    for path in list_paths(paths):
        if _is_folder(path):
            yield from _below(path)
        else:
            yield path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # what no file can be called; it is refused when it is to be read
        return False


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def _unreadable(error: OSError) -> None:
    raise DataError(f"the folder {error.filename} cannot be read: {error.strerror}") from error


def get_extension(path: Path) -> str:
    """What a file is by its name, .gz aside: ".tsv" for a.tsv and A.TSV.gz."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_lines(path: Path, problems: ProblemLog, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """(number, line without its end) of a text file, or of one packed with gzip; lines end with \\n, \\r\\n or \\r.

    A line that is not in the encoding, holds a NUL or is longer than `LONGEST` is a problem; so is a whole file that is
    empty, binary, or a damaged archive.
    """
    with _opened(path) as raw:
        try:
            yield from _lines(path, raw, problems, encoding)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            problems.report(str(path), f"it cannot be unpacked ({error})", "files")
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def released(found: Iterator[Read]) -> Iterator[Iterator[Read]]:
    """Lines, or what is made of them; their file is closed even if what is done with them fails in the middle."""
    try:
        yield found
    finally:
        if isinstance(found, Generator):
            found.close()


def _opened(path: Path) -> io.BufferedReader | gzip.GzipFile:
    try:
        if not path.is_file():
            there = "is not a file" if path.exists() else "is not there"
            raise DataError(f"{path} {there}; give the path of a file or of a folder")
        if path.name.lower().endswith(".gz"):
            return gzip.open(path, "rb")
        return io.BufferedReader(io.FileIO(path), 1 << 16)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{str(path)[:200]!r} cannot be read: {error}") from error


def _lines(
    path: Path, raw: io.BufferedReader | gzip.GzipFile, problems: ProblemLog, encoding: str
) -> Iterator[tuple[int, str]]:
    start = raw.peek(8192)[:8192]
    if not start:
        return problems.report(f"{path}:1", "the file is empty", "files")
    if start.startswith(_UTF_16):
        return problems.report(f"{path}:1", "the file is in UTF-16; save it as UTF-8", "files")
    if b"\0" in start:
        return problems.report(f"{path}:1", "the file is binary, not text", "files")
    # bytes that are no UTF-8 come through as lone surrogates: the line is known, and the lines after it are read
    name = "utf-8-sig" if encoding == "utf-8" else encoding
    with io.TextIOWrapper(raw, name, errors="surrogateescape") as text:
        yield from _checked(path, text, problems)
    return None


def _checked(path: Path, text: io.TextIOWrapper, problems: ProblemLog) -> Iterator[tuple[int, str]]:
    number = 0
    while line := text.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST and line[-1] != "\n":
            while line and line[-1] != "\n":
                line = text.readline(LONGEST)
            problems.report(f"{path}:{number}", f"the line is longer than {LONGEST:,} characters")
            continue
        line = line.removesuffix("\n")
        wrong = None if line.isascii() else _ESCAPED.search(line)
        if wrong is not None:
            byte = ord(wrong[0]) - 0xDC00
            problems.report(
                f"{path}:{number}", f"character {wrong.start() + 1} is the byte {byte:02X}, which is no UTF-8"
            )
        elif "\0" in line:
            problems.report(f"{path}:{number}", "the line holds a NUL, which no text does")
        else:
            yield number, line
