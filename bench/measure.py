"""Measure two programs interleaved in one run, as a ratio with its spread, as the machine may be shared."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable


def compare_interleaved(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int, calls: int = 1
) -> dict[str, float]:
    """Time two functions in alternation.

    Args:
        ours: Our function.
        theirs: The function to compare with.
        rounds: Number of rounds; each times both functions.
        calls: Calls of each function per round.

    Returns:
        "ours" and "theirs": median seconds per call; "ratio", "low" and "high": median and quartiles of the rounds'
        ratios theirs / ours; "extra": median difference ours - theirs in seconds.
    """
    for function in (ours, theirs):
        for _ in range(max(1, calls // 10)):
            function()

    def measure_seconds(function: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls

    pairs = []
    for turn in range(rounds):  # the order alternates, so that a slow moment affects both
        first, second = (ours, theirs) if turn % 2 else (theirs, ours)
        seconds = {first: measure_seconds(first), second: measure_seconds(second)}
        pairs.append((seconds[ours], seconds[theirs]))

    low, middle, high = statistics.quantiles([their_time / our_time for our_time, their_time in pairs], n=4)
    return {
        "ours": statistics.median(our_time for our_time, _ in pairs),
        "theirs": statistics.median(their_time for _, their_time in pairs),
        "ratio": middle,
        "low": low,
        "high": high,
        "extra": statistics.median(our_time - their_time for our_time, their_time in pairs),
    }


def measure_peak_memory(program: str) -> int:
    """Run a program in a new process and return how many bytes it grows, at its peak, after its call of ``mark()``.

    Args:
        program: Python source that calls ``mark()`` once. Works on Linux.
    """
    wrapped = f"""
import gc
def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
start = []
def mark():
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # reset the peak
    start.append(status("VmRSS"))
{program}
print(status("VmHWM") - start[0])
"""
    process = subprocess.run([sys.executable, "-c", wrapped], capture_output=True, text=True, check=True)
    return int(process.stdout.split()[-1])
