"""Peak memory of indexing the same text in 10, 1,000 and 100,000 files: python bench/retrieval/index_memory.py

Each build runs in a process of its own, without vectors. The memory is that of the process, without what importing the
package takes.
"""

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARAGRAPHS = 100_000  # of 60 words each: one passage
WORDS = [f"{first}{second}" for first in "bcdfghjklmnprstvw" for second in ("ale", "ore", "ine", "ust", "and", "eep")]


def read_peak() -> float:
    """Return the largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_folder(folder: Path, files: int) -> int:
    """Write the same paragraphs into a number of files; return their size."""
    generator = random.Random(0)
    paragraphs_per_file = PARAGRAPHS // files
    size = 0
    for number in range(files):
        path = folder / f"{number % 1000:03}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(" ".join(generator.choices(WORDS, k=60)) + ".\n\n" for _ in range(paragraphs_per_file))
        size += path.write_text(text)
    return size


def index_folder(folder: str) -> None:
    """Index a folder, and print the passages, seconds and megabytes for reading and for everything."""
    from jumok.retrieval import open_index

    memory, start = read_peak(), time.monotonic()
    peaks: dict[str, float] = {}
    seconds: dict[str, float] = {}

    def record(done: int, total: int, stage: str) -> None:
        peaks[stage], seconds[stage] = read_peak() - memory, time.monotonic() - start

    with open_index(folder, embedder=None, progress=record) as index:
        peak, total = read_peak() - memory, time.monotonic() - start
        print(len(index), f"{seconds['reading']:.1f}", f"{peaks['reading']:.0f}", f"{total:.1f}", f"{peak:.0f}")


def main() -> None:
    """Print one line for each number of files."""
    print(f"{'files':>8} {'MB':>5} {'passages':>9} {'reading s':>10} {'reading MB':>11} {'all s':>7} {'all MB':>7}")
    for files in (10, 1000, 100_000):
        with tempfile.TemporaryDirectory() as temporary:
            size = write_folder(Path(temporary) / "files", files)
            command = [sys.executable, __file__, str(Path(temporary) / "files")]
            environment = {**os.environ, "JUMOK_CACHE": str(Path(temporary) / "cache")}
            output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
        passages, reading, memory, total, peak = output
        row = f"{files:>8,} {size / 1e6:>5.0f} {passages:>9} {reading:>10} {memory:>11} {total:>7} {peak:>7}"
        print(row, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        index_folder(sys.argv[1])
    else:
        main()
