"""Extract the text of a PDF file with limits on time, memory and output: a program that runs in a process of its own.

PDF files are untrusted: a small one can expand to gigabytes or keep pypdf busy for hours, and Python can interrupt
neither. The system can end a process. `read_passages.py` starts this file as a program; it imports pypdf and nothing of
Jumok. Standard input is the file. Standard output is one JSON object per line: the text of each page, or the reason why
there is none.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import pkgutil
import signal
import sys
from typing import Any

MAX_SECONDS = 60.0  # of processor time for one file
MAX_MEMORY = 2**30  # bytes of the process, including Python itself
MAX_PAGES = 3000
MAX_PAGE_CHARACTERS = 200_000
MAX_CHARACTERS = 32 * 2**20  # of all pages


def write_line(record: dict[str, Any]) -> None:
    """Write a JSON object as one line."""
    sys.stdout.write(json.dumps(record) + "\n")


def extract_pages(content: bytes) -> None:
    """Write the text of each page."""
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        return write_line({"reason": "an encrypted PDF"})
    count = len(reader.pages)
    if count > MAX_PAGES:
        return write_line({"reason": f"a PDF of more than {MAX_PAGES:,} pages"})
    total = 0
    for number in range(count):
        text = reader.pages[number].extract_text()
        total += len(text)
        if len(text) > MAX_PAGE_CHARACTERS or total > MAX_CHARACTERS:
            return write_line({"reason": "a PDF with too much text"})
        write_line({"page": number + 1, "text": text})
    return write_line({"pages": count})


def limit_process() -> None:
    """Limit the memory of this process, and let it open no files and write none."""
    # as in data/tokenizers/limited_child.py: each child is one file that imports nothing of Jumok
    try:
        import resource
    except ImportError:  # Windows: only the parent's deadline applies
        return
    limits = {"RLIMIT_AS": MAX_MEMORY, "RLIMIT_NOFILE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
    for name, limit in limits.items():
        with contextlib.suppress(ValueError, OSError):  # macOS knows RLIMIT_AS but does not accept every limit
            resource.setrlimit(getattr(resource, name), (limit, limit))


def import_late_modules() -> None:
    """Import what Python and pypdf would import on first use: after the limits are set, no file can be opened."""
    import encodings

    import pypdf

    for package in (encodings, pypdf):
        for module in pkgutil.iter_modules(package.__path__):
            with contextlib.suppress(ImportError, LookupError, AttributeError):
                importlib.import_module(f"{package.__name__}.{module.name}")


def main() -> None:
    """Read the file from standard input and write its pages. The arguments are the folders that contain pypdf."""
    sys.path.extend(sys.argv[1:])
    logging.disable(logging.CRITICAL)  # pypdf logs each oddity of a file
    import_late_modules()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    content = sys.stdin.buffer.read()
    limit_process()
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        extract_pages(content)
    except MemoryError:
        write_line({"reason": f"a PDF that needs more than {MAX_MEMORY // 2**20} MB of memory"})
    except Exception:  # a damaged file makes pypdf fail in any way
        write_line({"reason": "a damaged PDF"})


if __name__ == "__main__":
    main()
