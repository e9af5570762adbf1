"""Measure loading SmolLM2 from its GGUF file against transformers: time, and peak memory relative to the model's size.

Run: jumok data get smollm2; python bench/load.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from jumok.checkpoint.resolve import resolve_model_path
from measure import measure_peak_memory

OURS = "import jumok; from jumok.checkpoint import load; import gguf; start = time.perf_counter(); jumok.load({path!r})"
THEIRS = (
    "from transformers import AutoModelForCausalLM, AutoTokenizer; import gguf; start = time.perf_counter(); "
    "AutoModelForCausalLM.from_pretrained({folder!r}, gguf_file={file!r}, dtype='float32'); "
    "AutoTokenizer.from_pretrained({folder!r}, gguf_file={file!r})"
)


def measure_seconds(program: str) -> float:
    """Return the seconds that a program takes in a fresh process, after its imports."""
    program = f"import time; {program}; print(time.perf_counter() - start)"
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    return float(completed.stdout.split()[-1])


def main() -> None:
    path = resolve_model_path("smollm2")
    names = {"path": str(path), "folder": str(path.parent), "file": path.name}
    pairs = [(measure_seconds(OURS.format(**names)), measure_seconds(THEIRS.format(**names))) for _ in range(3)]
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"load SmolLM2 and its tokenizer: {ratio:.1f}x (ours {ours:.1f} s, theirs {theirs:.1f} s)")
    grown = measure_peak_memory(
        f"import jumok; from jumok.checkpoint import load; import gguf; mark(); m = jumok.load({str(path)!r})"
    )
    size = 134_515_008 * 4
    print(f"peak memory of loading: {grown / 2**20:.0f} MB, {grown / size:.2f} of the model's {size / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
