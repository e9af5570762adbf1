"""Read text files line by line, in constant memory; unusable lines are reported by file and line number."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import unicodedata
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jumok.data.readers import file_format
from jumok.errors import DataError

MAX_LINE = 16 * 2**20  # characters
_MAX_MESSAGES = 5
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # how "surrogateescape" represents a byte that is not UTF-8

Example = TypeVar("Example")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Notice:
    """A fact about the files that the user should see; its text is one sentence."""

    @property
    def topic(self) -> object:
        """What the notice is about; of several notices on one topic, only the first is worth showing."""
        return str(self)


class ProblemLog:
    """Handle unusable lines: raise an error, or skip and count them. It also passes on notices about the files.

    >>> problems = ProblemLog(skip=True)
    >>> problems.report("a.tsv:17", "expected 2 columns, got 3")
    >>> print(problems)
    1 skipped; first: a.tsv:17: expected 2 columns, got 3
    """

    def __init__(self, skip: bool = False, notify: Callable[[Notice], None] = lambda notice: None) -> None:
        self.skip = skip
        self.notify = notify
        self.count = 0
        self.first: list[str] = []  # the first few messages

    def report(
        self, location: str, message: str, unit: str = "lines", advice: str | None = None, count: int = 1
    ) -> None:
        """Report something that cannot be used: ``unit`` are "lines" or "files".

        Args:
            advice: What to do; None = fix or skip it; empty if the message says it.
        """
        if not self.skip:
            advice = f"fix it, or skip such {unit} with --skip-bad (skip_bad=True)" if advice is None else advice
            raise DataError(f"{location}: {message}; {advice}" if advice else f"{location}: {message}")
        self.count += count
        if len(self.first) < _MAX_MESSAGES:
            self.first.append(f"{location}: {message}")

    def __str__(self) -> str:
        return f"{self.count:,} skipped; first: {self.first[0]}" if self.count else "nothing skipped"


@dataclass(frozen=True)
class DecomposedLabel(Notice):
    """A label in decomposed characters (NFD), as macOS writes file names; it looks like the composed one (NFC)."""

    path: Path
    label: str

    def __str__(self) -> str:
        return f"{self.path}: the label {self.label!r} is written in decomposed characters (NFD); it is read as NFC"

    @property
    def topic(self) -> object:
        return DecomposedLabel, self.label


def normalize_label(label: str, path: Path, problems: ProblemLog) -> str:
    """Return a label in composed characters (NFC), so that two spellings that look the same are one class."""
    composed = unicodedata.normalize("NFC", label)
    if composed != label:
        problems.notify(DecomposedLabel(path, composed))
    return composed


def get_extension(path: Path) -> str:
    """Return the extension of a file in lower case, without .gz.

    >>> get_extension(Path("A.TSV.gz"))
    '.tsv'
    """
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_lines(path: Path, problems: ProblemLog, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Yield (line number, line without its end) of a text file.

    Lines end with \n, \r\n or \r. Lines that are not in the encoding, contain a NUL character or are longer than
    MAX_LINE are reported; so are files that are empty, binary or damaged.
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
    """Close a generator at the end of the block, even after an error, so that its file is closed too."""
    try:
        yield examples
    finally:
        if isinstance(examples, Generator):
            examples.close()


def require_any(examples: Iterator[Example], describe: Callable[[], str]) -> Iterator[Example]:
    """Yield all examples; raise DataError if there are none."""
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
    codec = file_format.check_encoding(encoding)
    mark = file_format.find_byte_order_mark(start)
    skip_advice = "or skip such files with --skip-bad (skip_bad=True)"
    is_wide = codec.startswith(("utf-16", "utf-32"))
    if mark is not None:
        if not codec.startswith(mark):
            advice = f"add --encoding {mark}" if mark != "utf-8" else f"remove --encoding {encoding}"
            return problems.report(f"{path}:1", f"the file is in {mark.upper()}: {advice}", "files", skip_advice)
        codec = "utf-8-sig" if mark == "utf-8" else mark  # these skip the mark
    elif codec != "utf-8" and not is_wide and file_format.is_clearly_utf_8(start):  # other codecs may decode it too
        message = f"the file is in UTF-8: remove --encoding {encoding}"
        return problems.report(f"{path}:1", message, "files", skip_advice)
    elif codec in ("utf-16", "utf-32"):
        message = f"the file has no byte order mark; give {codec}-le or {codec}-be as its encoding"
        return problems.report(f"{path}:1", message, "files", skip_advice)
    if b"\0" in start and not is_wide:
        likely = file_format.suggest_wide_encoding(start)
        hint = f"; it reads as {likely.upper()}: add --encoding {likely}" if likely else ""
        return problems.report(f"{path}:1", f"the file is binary, not text{hint}", "files")

    # bytes that are not in the encoding become lone surrogates, so that only their line is reported
    with io.TextIOWrapper(raw, codec, errors="surrogateescape") as text:
        try:
            yield from _check_lines(path, text, problems, codec)
        except UnicodeError:  # not every codec can replace bytes by surrogates
            problems.report(str(path), f"the file is not {encoding} text", "files")
    return None


def _check_lines(path: Path, text: io.TextIOWrapper, problems: ProblemLog, codec: str) -> Iterator[tuple[int, str]]:
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
            message, advice = _describe_invalid_byte(line, invalid, codec)
            problems.report(f"{path}:{number}", message, advice=advice)
        elif "\0" in line:
            problems.report(f"{path}:{number}", "the line contains a NUL character")
        else:
            yield number, line


def _describe_invalid_byte(line: str, invalid: re.Match[str], codec: str) -> tuple[str, str | None]:
    """Return what is wrong with a line, and what else can be done; None for the usual advice."""
    encoding = codec.removesuffix("-sig")
    byte = ord(invalid[0]) - 0xDC00
    message = f"character {invalid.start() + 1} is byte {byte:02X}, not {encoding.upper()} text"
    likely = None
    with contextlib.suppress(UnicodeError):
        likely = file_format.suggest_encoding(line.encode(encoding, "surrogateescape"))
    if likely in (None, encoding):
        return message, None
    option = f"remove --encoding {encoding}" if likely == "utf-8" else f"add --encoding {likely}"
    return f"{message}; it reads as {likely.upper()}: {option}", "or skip such lines with --skip-bad (skip_bad=True)"
