"""Read the passages of a file, by its ending: text, Markdown, reStructuredText, .po, JSON Lines, PDF."""

from __future__ import annotations

import codecs
import importlib.util
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from jumok.data.readers.file_format import suggest_encoding
from jumok.errors import ArgumentError
from jumok.retrieval.passage import Passage, Unit

from . import pdf_child
from .passage_cutter import Lines, PassageCutter, Piece
from .safe_folder import (
    JSON_LINES_ENDINGS,
    LINE_ENDINGS,
    MARKDOWN_ENDINGS,
    MAX_FILE_BYTES,
    PDF_ENDINGS,
    PO_ENDINGS,
    RST_ENDINGS,
    UnusableFileError,
    describe_file,
    describe_open_error,
    get_ending,
    open_regular_file,
)
from .structured_text import MAX_PO_LINE, MAX_RECORD, ReportLine, cut_json_lines, cut_marked_up_text, cut_po_messages

# Increase it when the passages of a file would become other ones: indexes of an older version are built again.
PASSAGES_VERSION = 2
PART_CHARACTERS = 65_536  # a longer line is read in parts
_SAMPLE_BYTES = 2**16
_SAMPLE_LINES = 2**16
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CONTROL_BYTE = re.compile(rb"[\x01-\x08\x0b\x0e-\x19\x1c-\x1f\x7f]")
# A change so shortly after another one may get the same time: file systems store the time of the last clock tick.
CLOCK_TICK = 0.02  # seconds
# The child ends itself after MAX_SECONDS of processor time, which takes longer on a loaded machine.
WALL_SECONDS = 5 * pdf_child.MAX_SECONDS if hasattr(signal, "setitimer") else pdf_child.MAX_SECONDS


def read_passages(path: str | Path, relative: str) -> Iterator[Passage]:
    """Yield the passages of a file, of about 60 to 100 words each; ``relative`` is the path that they get."""
    try:
        descriptor = open_regular_file(os.fspath(path))
    except OSError as error:
        raise UnusableFileError(describe_open_error(error)) from None
    try:
        yield from read_open_file(descriptor, relative, lambda number, reason: None)
    finally:
        os.close(descriptor)


def read_open_file(descriptor: int, relative: str, report_line: ReportLine) -> Iterator[Passage]:
    """Yield the passages of an open file; the ending of ``relative``, their path, decides how it is read."""
    before = os.fstat(descriptor)
    if before.st_size > MAX_FILE_BYTES:
        raise UnusableFileError(f"larger than {MAX_FILE_BYTES // 2**20} MB")
    if 0 <= time.time() - before.st_ctime_ns / 1e9 < CLOCK_TICK:
        time.sleep(CLOCK_TICK)
    unit: Unit = "page" if get_ending(relative) in PDF_ENDINGS else "line"
    is_empty = True
    for piece in _cut_file(descriptor, before.st_size, get_ending(relative), report_line):
        is_empty = False
        yield Passage(relative, piece.first, piece.last, piece.text, unit, piece.sentences)
    if describe_file(b"", os.fstat(descriptor)) != describe_file(b"", before):
        raise UnusableFileError("changed while it was read")
    if is_empty:
        raise UnusableFileError("a PDF without text, such as a scan" if unit == "page" else "empty")


def _cut_file(descriptor: int, size: int, ending: str, report_line: ReportLine) -> Iterator[Piece]:
    if ending in PDF_ENDINGS:
        cutter = PassageCutter()
        for page, text in read_pages(descriptor):  # the lines of the pieces are pages
            for line in text.splitlines():
                yield from cutter.add_line(page, line)
        yield from cutter.finish()
    elif ending in JSON_LINES_ENDINGS:
        yield from cut_json_lines(read_text_lines(descriptor, size, MAX_RECORD), report_line)
    elif ending in PO_ENDINGS:
        yield from cut_po_messages(read_text_lines(descriptor, size, MAX_PO_LINE), report_line)
    elif ending in (*MARKDOWN_ENDINGS, *RST_ENDINGS):
        yield from cut_marked_up_text(read_text_lines(descriptor, size), ending in MARKDOWN_ENDINGS)
    else:
        cutter = PassageCutter(keep_lines=ending in LINE_ENDINGS)
        for number, line, is_end in read_text_lines(descriptor, size):
            yield from cutter.add_line(number, line, is_end)
        yield from cutter.finish()


def read_text_lines(descriptor: int, size: int, part: int = PART_CHARACTERS) -> Lines:
    r"""Yield (line number, text, is end of line) of the first bytes of a text file, which may grow meanwhile.

    Lines end with \n, \r\n or \r. A line longer than ``part`` characters is yielded in parts that end between words.
    """
    content = os.pread(descriptor, size, 0)
    text = io.TextIOWrapper(io.BytesIO(content), detect_encoding(content))
    number = 1
    remainder = ""  # the beginning of a word at the end of a part
    while line := remainder + text.readline(part - len(remainder)):
        is_end = line.endswith("\n") or len(line) < part
        end = len(line) if is_end else line.rfind(" ") + 1
        # a word that fills half of a part is an encoded file, and is cut
        line, remainder = (line[:end], line[end:]) if end > part // 2 else (line, "")
        yield number, line.removesuffix("\n"), is_end
        number += is_end


def detect_encoding(content: bytes) -> str:
    """Return the encoding of a text file: UTF-8, UTF-16 with a byte order mark, CP949, Shift JIS or CP1252.

    The last three are accepted only if the letters of the file are typical for them.
    """
    marked = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)
    if marked is not None:
        if _can_decode(content, marked):
            return marked
        raise UnusableFileError("not text in its encoding")
    if b"\0" in content:
        raise UnusableFileError("binary")
    if _can_decode(content, "utf-8"):
        return "utf-8"
    has_control = _CONTROL_BYTE.search(content) is not None
    lines = (line for line in content.split(b"\n") if not line.isascii())
    sample = b"\n".join(itertools.islice(lines, _SAMPLE_LINES))[:_SAMPLE_BYTES]
    # a sample ends in the middle of a line, perhaps in the middle of a character
    likely = None if has_control else suggest_encoding(sample[: sample.rfind(b"\n") + 1] or sample)
    if likely is None or not _can_decode(content, likely):
        raise UnusableFileError("binary" if has_control else "not UTF-8 text")
    return likely


def _can_decode(content: bytes, encoding: str) -> bool:
    try:
        return "\0" not in content.decode(encoding)
    except UnicodeError:
        return False


def read_pages(descriptor: int) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each page of a PDF file."""
    # -I and -S: no folder, variable or start-up file of the user changes what the child imports
    command = [sys.executable, "-I", "-S", pdf_child.__file__, _find_pypdf()]
    process = subprocess.Popen(
        command, stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    timer = threading.Timer(WALL_SECONDS, process.kill)
    timer.daemon = True
    timer.start()
    try:
        is_complete = False
        for line in cast(TextIO, process.stdout):
            record = json.loads(line) if line.endswith("\n") else {}
            if "reason" in record:
                raise UnusableFileError(str(record["reason"])[:100])
            if "text" in record:
                yield record["page"], record["text"]
            is_complete = "pages" in record
        code = process.wait()
        if is_complete and code == 0:
            return
        if code in (-getattr(signal, "SIGPROF", 0), -signal.SIGKILL):
            raise UnusableFileError(f"a PDF that takes longer than {pdf_child.MAX_SECONDS:.0f} seconds")
        raise UnusableFileError("a damaged PDF")
    finally:
        timer.cancel()
        process.kill()
        cast(TextIO, process.stdout).close()
        process.wait()


def _find_pypdf() -> str:
    """Return the folder that contains the package pypdf."""
    spec = importlib.util.find_spec("pypdf")
    if spec is None or spec.origin is None:
        raise ArgumentError('PDF files need pypdf; install it with: pip install "jumok[retrieval]"')
    return str(Path(spec.origin).parent.parent)
