"""Index folders that are too large: a million files, huge sparse files: python bench/retrieval/hostile_folders.py

Each must be refused or skipped, in bounded time and memory. The time is processor time, as the machine may be busy.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MILLION = int(os.environ.get("JUMOK_HOSTILE_FILES", "1000000"))
MAX_SECONDS = 60.0
MAX_MEGABYTES = 150.0

PROGRAM = """
import json, resource, sys, time
import jumok.retrieval.search.search
from jumok.errors import DataError
from jumok.retrieval import open_index

memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    with open_index(sys.argv[1], embedder=None) as index:
        outcome = {"passages": len(index), "skipped": index.status.skipped_counts}
except DataError as error:
    outcome = {"refused": str(error)}
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
print(json.dumps({**outcome, "seconds": time.process_time() - start, "megabytes": grown / 1024}))
"""


def write_tiny_files(folder: Path, ending: str) -> None:
    """Write a million files, 1,000 in each folder."""
    for number in range(MILLION // 1000):
        sub = folder / str(number)
        sub.mkdir(parents=True)
        parent = os.open(sub, os.O_RDONLY)
        for name in range(1000):
            os.close(os.open(f"{name}{ending}", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        os.close(parent)


def write_text_files(folder: Path) -> None:
    """Write a million text files."""
    write_tiny_files(folder, ".txt")


def write_pictures(folder: Path) -> None:
    """Write a million files that are not text by their ending, and one that is."""
    write_tiny_files(folder, ".png")
    (folder / "note.txt").write_text("The only note.")


def write_one_flat_folder(folder: Path) -> None:
    """Write many text files into one folder, without folders inside."""
    folder.mkdir()
    parent = os.open(folder, os.O_RDONLY)
    for name in range(MILLION // 3):
        os.close(os.open(f"{name}.txt", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
    os.close(parent)


def write_sparse_files(folder: Path) -> None:
    """Write sparse files of 10 GB, and some just below the limit for one file that are binary in their last byte."""
    folder.mkdir()
    for number in range(20):
        with (folder / f"{number}.txt").open("wb") as file:
            file.truncate(10 * 2**30)
    for number in range(5):
        with (folder / f"almost{number}.txt").open("wb") as file:
            file.write(b"text " * (60 * 2**20 // 5) + b"\0")
    (folder / "note.txt").write_text("The only note.")


CASES: dict[str, tuple[Callable[[Path], None], Callable[[dict[str, object]], bool]]] = {
    "text files": (write_text_files, lambda outcome: "more than 200,000 text files" in str(outcome.get("refused"))),
    "pictures": (write_pictures, lambda outcome: outcome.get("passages") == 1),
    "one flat folder": (write_one_flat_folder, lambda outcome: "200,000 text files" in str(outcome.get("refused"))),
    "sparse files": (
        write_sparse_files,
        lambda outcome: outcome.get("skipped") == {"larger than 64 MB": 20, "binary": 5},
    ),
}


def main() -> None:
    """Print how each folder ends; exit with an error if one is not as it should be."""
    failures = []
    for name, (write, is_expected) in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "folder"
            start = time.monotonic()
            write(folder)
            written = time.monotonic() - start
            environment = {**os.environ, "JUMOK_CACHE": str(Path(temporary) / "cache")}
            command = [sys.executable, "-c", PROGRAM, str(folder)]
            process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        outcome = json.loads(process.stdout)
        seconds, megabytes = outcome.pop("seconds"), outcome.pop("megabytes")
        print(f"{name}: {seconds:.1f} s, {megabytes:.0f} MB (written in {written:.0f} s); {outcome}", flush=True)
        if not (is_expected(outcome) and seconds < MAX_SECONDS and megabytes < MAX_MEGABYTES):
            failures.append(name)
    if failures:
        sys.exit(f"not as expected: {', '.join(failures)}")


if __name__ == "__main__":
    main()
