"""Read the passages of a file, by its ending: text, Markdown, reStructuredText, .po, JSON Lines, PDF."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jumok.retrieval.passage import Passage, Unit

from . import json_lines, po_messages
from .marked_up_text import cut_marked_up_text
from .passage_cutter import PassageCutter, Piece
from .pdf_pages import cut_pdf
from .safe_folder import MAX_FILE_BYTES, describe_file, describe_open_error, open_regular_file
from .skip_log import UnusableFileError
from .text_endings import (
    JSON_LINES_ENDINGS,
    LINE_ENDINGS,
    MARKDOWN_ENDINGS,
    PDF_ENDINGS,
    PO_ENDINGS,
    RST_ENDINGS,
    get_ending,
)
from .text_lines import read_text_lines

# Increase it when the passages of a file would become other ones: indexes of an older version are built again.
PASSAGES_VERSION = 1
# A change so shortly after another one may get the same time: file systems store the time of the last clock tick.
CLOCK_TICK = 0.02  # seconds


def read_passages(path: str | Path, relative: str) -> Iterator[Passage]:
    """Yield the passages of a file, of about 60 to 100 words each.

    Args:
        relative: The path that the passages get, relative to the indexed folder.

    Raises:
        UnusableFileError: If the file cannot be opened or contains no text; also in the middle of the file.
    """
    try:
        descriptor = open_regular_file(os.fspath(path))
    except OSError as error:
        raise UnusableFileError(describe_open_error(error)) from None
    try:
        yield from read_open_file(descriptor, relative, lambda number, reason: None)
    finally:
        os.close(descriptor)


def read_open_file(descriptor: int, relative: str, report: Callable[[int, str], None]) -> Iterator[Passage]:
    """Yield the passages of an open file.

    Args:
        relative: The path that the passages get; its ending decides how the file is read.
        report: Called with the number of each unusable line of a .po or JSON Lines file, and the reason.

    Raises:
        UnusableFileError: If the file contains no text, or changes while it is read; also in the middle of the file.
    """
    before = os.fstat(descriptor)
    if before.st_size > MAX_FILE_BYTES:
        raise UnusableFileError(f"larger than {MAX_FILE_BYTES // 2**20} MB")
    if 0 <= time.time() - before.st_ctime_ns / 1e9 < CLOCK_TICK:
        time.sleep(CLOCK_TICK)
    unit: Unit = "page" if get_ending(relative) in PDF_ENDINGS else "line"
    is_empty = True
    for piece in _cut_file(descriptor, before.st_size, get_ending(relative), report):
        is_empty = False
        yield Passage(relative, piece.first, piece.last, piece.text, unit)
    if describe_file(b"", os.fstat(descriptor)) != describe_file(b"", before):
        raise UnusableFileError("changed while it was read")
    if is_empty:
        raise UnusableFileError("empty")


def _cut_file(descriptor: int, size: int, ending: str, report: Callable[[int, str], None]) -> Iterator[Piece]:
    if ending in PDF_ENDINGS:
        yield from cut_pdf(descriptor)
    elif ending in JSON_LINES_ENDINGS:
        yield from json_lines.cut_json_lines(read_text_lines(descriptor, size, json_lines.MAX_RECORD), report)
    elif ending in PO_ENDINGS:
        yield from po_messages.cut_po_messages(read_text_lines(descriptor, size, po_messages.MAX_LINE), report)
    elif ending in (*MARKDOWN_ENDINGS, *RST_ENDINGS):
        yield from cut_marked_up_text(read_text_lines(descriptor, size), ending in MARKDOWN_ENDINGS)
    else:
        cutter = PassageCutter(keep_lines=ending in LINE_ENDINGS)
        for number, line, is_end in read_text_lines(descriptor, size):
            yield from cutter.add_line(number, line, is_end)
        yield from cutter.finish()
