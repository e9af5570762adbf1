"""Read the pages of an untrusted PDF file, in a child process with limits on time, memory and output."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

from jumok.errors import ArgumentError

from . import pdf_child
from .passage_cutter import PassageCutter, Piece
from .skip_log import UnusableFileError

# The child ends itself after MAX_SECONDS of processor time, which takes longer on a loaded machine.
WALL_SECONDS = 5 * pdf_child.MAX_SECONDS if hasattr(signal, "setitimer") else pdf_child.MAX_SECONDS


def cut_pdf(descriptor: int) -> Iterator[Piece]:
    """Yield the pieces of a PDF file; their lines are pages.

    Raises:
        UnusableFileError: If it is damaged, encrypted, or exceeds a limit; also in the middle of the file.
        ArgumentError: If pypdf is not installed.
    """
    cutter = PassageCutter()
    has_text = False
    for page, text in read_pages(descriptor):
        for line in text.splitlines():
            for piece in cutter.add_line(page, line):
                has_text = True
                yield piece
    for piece in cutter.finish():
        has_text = True
        yield piece
    if not has_text:
        raise UnusableFileError("a PDF without text, such as a scan")


def read_pages(descriptor: int) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each page of a PDF file.

    Raises:
        UnusableFileError: If it is damaged, encrypted, or exceeds a limit; also in the middle of the file.
        ArgumentError: If pypdf is not installed.
    """
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
