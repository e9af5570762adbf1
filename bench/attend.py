"""The overhead of attend(), and the time and memory that the blocked backend saves. Run: make bench

Prints ratios of medians from interleaved runs, with the quartiles of the rounds' ratios. Figures: bench/results.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from jumok import attend
from jumok.attention import mask, score
from jumok.attention.backends import block_plan
from jumok.attention.grid import Grid
from measure import compare_interleaved, measure_peak_memory

Row = dict[str, object]

WINDOW = 256


def measure_overhead(rounds: int) -> list[Row]:
    """Compare attend() with the kernel that it calls."""
    rows: list[Row] = []
    for shape, calls, name in (((1, 12, 1024, 64), 3, "large"), ((1, 2, 4, 8), 2000, "tiny")):
        query, key, value = torch.randn(3, *shape)
        for is_causal in (False, True):
            allowed = mask.causal if is_causal else None
            with torch.no_grad():
                times = compare_interleaved(
                    lambda q=query, k=key, v=value, m=allowed: attend(q, k, v, mask=m),
                    lambda q=query, k=key, v=value, c=is_causal: functional.scaled_dot_product_attention(
                        q, k, v, is_causal=c
                    ),
                    rounds,
                    calls,
                )
            rows.append(
                {
                    "what": f"attend() {name} {list(shape)}{' causal' if is_causal else ''}",
                    "extra_us": round(times["extra"] * 1e6, 2),
                    "extra_percent": round(100 * (1 / times["ratio"] - 1), 2),
                    "ratio": times["ratio"],
                    "spread": [times["low"], times["high"]],
                }
            )
    return rows


def measure_safe(rounds: int) -> list[Row]:
    """Measure what safe=True adds to a call."""
    rows: list[Row] = []
    for shape, calls in (((1, 2, 4, 8), 500), ((1, 12, 1024, 64), 1)):
        query, key, value = torch.randn(3, *shape)
        for allowed in (None, mask.causal, mask.padding([shape[2] - 1])):
            with torch.no_grad():
                times = compare_interleaved(
                    lambda q=query, k=key, v=value, m=allowed: attend(q, k, v, mask=m, safe=True),
                    lambda q=query, k=key, v=value, m=allowed: attend(q, k, v, mask=m),
                    rounds,
                    calls,
                )
            rows.append(
                {
                    "what": f"attend(safe=True) {list(shape)}, mask {allowed!r}",
                    "extra_us": round(times["extra"] * 1e6, 2),
                    "extra_percent": round(100 * (1 / times["ratio"] - 1), 2),
                    "spread": [times["low"], times["high"]],
                }
            )
    return rows


def measure_sparse(rounds: int, length: int = 8192) -> list[Row]:
    """Compare blocked with a window of 256 with dense kernels, over all cells and over the causal half."""
    rows: list[Row] = []
    query, key, value = tensors = torch.randn(3, 1, 12, length, 64)
    grad_output = torch.randn(1, 12, length, 64)
    windowed = mask.causal & mask.window(WINDOW)
    for dense_causal in (False, True):
        with torch.no_grad():
            times = compare_interleaved(
                lambda: attend(query, key, value, mask=windowed, backend="blocked"),
                lambda c=dense_causal: functional.scaled_dot_product_attention(query, key, value, is_causal=c),
                rounds,
            )
        rows.append(_make_sparse_row(f"blocked forward n={length}", dense_causal, times))
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]

        def run_blocked(leaves: list[torch.Tensor] = leaves) -> None:
            attend(*leaves, mask=windowed, backend="blocked").backward(grad_output)

        def run_dense(leaves: list[torch.Tensor] = leaves, is_causal: bool = dense_causal) -> None:
            functional.scaled_dot_product_attention(*leaves, is_causal=is_causal).backward(grad_output)

        times = compare_interleaved(run_blocked, run_dense, max(3, rounds // 2))
        rows.append(_make_sparse_row(f"blocked forward+backward n={length}", dense_causal, times))

        # The graph of each forward pass is kept, so that the backward pass alone can be repeated.
        blocked = attend(*leaves, mask=windowed, backend="blocked")
        dense = functional.scaled_dot_product_attention(*leaves, is_causal=dense_causal)
        times = compare_interleaved(
            lambda output=blocked, leaves=leaves: torch.autograd.grad(output, leaves, grad_output, retain_graph=True),
            lambda output=dense, leaves=leaves: torch.autograd.grad(output, leaves, grad_output, retain_graph=True),
            max(3, rounds // 2),
        )
        rows.append(_make_sparse_row(f"blocked backward n={length}", dense_causal, times))
    return rows


def _make_sparse_row(title: str, dense_causal: bool, times: dict[str, float]) -> Row:
    return {
        "what": f"{title}, window {WINDOW}, against dense sdpa{' (is_causal)' if dense_causal else ''}",
        "ours_s": round(times["ours"], 4),
        "theirs_s": round(times["theirs"], 4),
        "ratio": times["ratio"],
        "spread": [times["low"], times["high"]],
    }


MEMORY_PROGRAM = """
import torch
from jumok import attend
from jumok.attention import mask
torch.set_num_threads(2)
windowed = mask.causal & mask.window({window})
def step(length):
    tensors = [torch.randn(1, 12, length, 64, requires_grad=True) for _ in range(3)]
    attend(*tensors, mask=windowed, backend={backend!r}).square().mean().backward()
step(64)  # load libraries and allocate their buffers before the mark
mark()
step({length})
"""


def measure_memory() -> list[Row]:
    """Measure how the peak memory of a forward and backward pass grows with n."""
    lengths = [1024, 2048, 4096, 8192, 16384]
    peaks = [_measure_training_peak("blocked", length) for length in lengths]
    dense_peaks = [_measure_training_peak("explicit", length) for length in lengths[:3]]
    exponent = math.log(peaks[-1] / peaks[0]) / math.log(lengths[-1] / lengths[0])
    return [
        {
            "what": "blocked memory, forward+backward, 1,024 to 16,384",
            "MB": [round(peak / 2**20, 1) for peak in peaks],
            "exponent": exponent,
            "exponent_of_the_last_doubling": math.log2(peaks[-1] / peaks[-2]),
            "explicit_MB_1024_to_4096": [round(peak / 2**20, 1) for peak in dense_peaks],
        }
    ]


def _measure_training_peak(backend: str, length: int) -> int:
    return measure_peak_memory(MEMORY_PROGRAM.format(backend=backend, length=length, window=WINDOW))


def measure_crossover(rounds: int) -> list[Row]:
    """Find where blocked becomes faster than sdpa with a mask tensor: MIN_SPARSE_CELLS and MAX_SPARSE_COVERAGE."""
    rows: list[Row] = []
    for length in (512, 1024, 2048, 4096):
        query, key, value = torch.randn(3, 1, 12, length, 64)
        grid = Grid(range(1), range(12), range(length), range(length))
        for part in (8, 4, 2, 1):
            windowed = mask.causal & mask.window(length // part)
            with torch.no_grad():
                times = compare_interleaved(
                    lambda q=query, k=key, v=value, m=windowed: attend(q, k, v, mask=m, backend="blocked"),
                    lambda q=query, k=key, v=value, m=windowed: attend(q, k, v, mask=m, backend="sdpa"),
                    rounds,
                )
            rows.append(
                {
                    "what": f"blocked against sdpa with a mask tensor, n={length}, window n/{part}",
                    "share": block_plan.compute_coverage(windowed, grid),
                    "ratio": times["ratio"],
                    "spread": [times["low"], times["high"]],
                }
            )
    return rows


def measure_linear(rounds: int, length: int = 8192) -> list[Row]:
    """Compare linear attention with softmax attention, both causal."""
    query, key, value = torch.randn(3, 1, 12, length, 64)
    with torch.no_grad():
        times = compare_interleaved(
            lambda: attend(query, key, value, mask=mask.causal, score=score.Kernel()),
            lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=True),
            rounds,
        )
    return [
        {
            "what": f"linear (elu+1) causal n={length} against sdpa",
            "ratio": times["ratio"],
            "spread": [times["low"], times["high"]],
        }
    ]


# Ends when its parent ends, however that happens: the pipe of its standard input closes.
BUSY_PROGRAM = """
import os, sys, threading
def wait():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=wait, daemon=True).start()
while True:
    sum(range(100_000))
"""


@contextmanager
def keep_cores_busy(count: int) -> Iterator[None]:
    """Run ``count`` processes that compute all the time, as other programs of a user would."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Run the benchmarks and print one line per row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each comparison (default 15)")
    parser.add_argument("--json", action="store_true", help="print JSON, one line per row")
    parser.add_argument(
        "--only", choices=["overhead", "safe", "sparse", "crossover", "memory", "linear"], help="run only this part"
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="keep N cores busy with other processes (default 0)"
    )
    arguments = parser.parse_args()
    with keep_cores_busy(arguments.busy):
        run(arguments)


def run(arguments: argparse.Namespace) -> None:
    """Run the selected parts.

    Args:
        arguments: The options of the command.
    """
    torch.manual_seed(0)
    fewer_rounds = max(3, arguments.rounds // 3)
    parts = {
        "overhead": lambda: measure_overhead(arguments.rounds),
        "safe": lambda: measure_safe(arguments.rounds),
        "sparse": lambda: measure_sparse(fewer_rounds),
        "crossover": lambda: measure_crossover(fewer_rounds),
        "memory": measure_memory,
        "linear": lambda: measure_linear(fewer_rounds),
    }
    for name, measure in parts.items():
        if arguments.only not in (None, name):
            continue
        for row in measure():
            line = json.dumps(row) if arguments.json else "  ".join(f"{key}={_format(row[key])}" for key in row)
            print(line, flush=True)


def _format(number: object) -> str:
    if isinstance(number, float):
        return f"{number:.3g}"
    if isinstance(number, list):
        return f"[{', '.join(_format(entry) for entry in number)}]"
    return str(number)


if __name__ == "__main__":
    main()
