"""Count the functions of Jumok, and their files, that four common calls pass through.

    python bench/call_paths.py [--only NAME ...] [--list]

Each call runs once before it is counted, so that what modules do while they are imported is left out. Functions count
once, however often they are called; lambdas, comprehensions and the methods that dataclasses generate do not count.
``train`` ends when the first loss is computed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import jumok
from jumok.cli import cli
from jumok.web.session import Session, Start

PACKAGE = str(Path(jumok.__file__).parent)
TEXT = "the cat sat on the mat; the cat sat"


class FirstLoss(Exception):  # noqa: N818  # not an error
    """The first loss was computed."""


class CallCounter:
    """Collects the functions of Jumok that are called while the context is open, also in new threads."""

    def __init__(self, last: str | None = None) -> None:
        self.functions: dict[tuple[str, str], None] = {}
        self.last = last

    def __enter__(self) -> CallCounter:
        threading.setprofile(self._note)  # for threads that start from now on
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return
        if event == "call":
            self.functions[os.path.relpath(code.co_filename, PACKAGE), code.co_qualname] = None
        elif event == "return" and code.co_name == self.last:
            raise FirstLoss


def run_command(*arguments: str) -> None:
    """Run a command of the command line without its output."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        contextlib.suppress(FirstLoss),
    ):
        cli.main(list(arguments), standalone_mode=False)


def train(folder: Path) -> None:
    """Train the recipe text on a small file."""
    (folder / "book.txt").write_text(f"{TEXT}\n" * 200, encoding="utf-8")
    out = folder / f"run-{len(list(folder.iterdir()))}"
    run_command("train", "text", "--data", str(folder / "book.txt"), "--steps", "1", "--out", str(out))


def ask_page(folder: Path) -> None:
    """Answer one ask ``run`` of the page."""
    session = Session(Start("tiny", TEXT))
    is_answered = threading.Event()

    def receive(message: Any) -> None:
        if {"answer", "failed"} & set(message.head):
            is_answered.set()

    session.handle({"ask": "run", "id": 1, "model": "tiny", "text": TEXT}, receive)
    is_answered.wait(120)
    session.close()


CALLS: dict[str, Callable[[Path], None]] = {
    "train": train,
    "run": lambda folder: run_command("run", "tiny", TEXT, "--limit", "4"),
    "effect": lambda folder: run_command("effect", "tiny", TEXT),
    "page": ask_page,
}


def main() -> None:
    """Print a row for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CALLS), default=list(CALLS))
    parser.add_argument("--list", action="store_true", help="list the functions in the order of their first calls")
    options = parser.parse_args()
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            CALLS[name](Path(folder))
            with CallCounter("compute_token_loss" if name == "train" else None) as counter:
                CALLS[name](Path(folder))
        files = {file for file, _ in counter.functions}
        print(f"{name:7} {len(counter.functions)} functions in {len(files)} files")
        if options.list:
            print("\n".join(f"        {file}: {function}" for file, function in counter.functions))


if __name__ == "__main__":
    main()
