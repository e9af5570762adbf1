"""How things are measured here: in one run, compare_interleaved, as a ratio with its spread. The machine is shared."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable


def compare_interleaved(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int, calls: int = 1
) -> dict[str, float]:
    """Median times of both, and the median of the rounds' ratios theirs / ours with its quartiles."""
    for warm in (ours, theirs):
        for _ in range(max(1, calls // 10)):
            warm()

    def timed(function: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls

    pairs = []
    for turn in range(rounds):  # who goes first takes turns, so that a slow moment hits both
        first, second = (ours, theirs) if turn % 2 else (theirs, ours)
        times = {first: timed(first), second: timed(second)}
        pairs.append((times[ours], times[theirs]))
    ratios = [slow / fast for fast, slow in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "ours": statistics.median(one for one, _ in pairs),
        "theirs": statistics.median(two for _, two in pairs),
        "ratio": middle,
        "low": low,
        "high": high,
        "extra": statistics.median(one - two for one, two in pairs),
    }


def measure_peak_memory(program: str) -> int:
    """Bytes by which a fresh process grows, at its highest, after the program's ``mark()`` (Linux)."""
    wrapped = f"""
import gc
def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
start = []
def mark():
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts again from here
    start.append(status("VmRSS"))
{program}
print(status("VmHWM") - start[0])
"""
    done = subprocess.run([sys.executable, "-c", wrapped], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])
