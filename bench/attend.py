"""What the door costs, and what the blocked backend saves. Run: make bench

Ratios of medians in one compare_interleaved run, with the quartiles of the rounds' ratios. Figures go to LOG.md.
"""

from __future__ import annotations

import argparse
import json
import math

import torch
from torch.nn import functional

from jumok import attend
from jumok.attention import mask, score
from jumok.attention.backends import block_plan
from jumok.attention.grid import Grid
from measure import compare_interleaved, measure_peak_memory


def door(rounds: int) -> list[dict[str, object]]:
    """attend() against the bare kernel that it calls."""
    rows = []
    for shape, calls, name in (((1, 12, 1024, 64), 3, "large"), ((1, 2, 4, 8), 2000, "tiny")):
        query, key, value = torch.randn(3, *shape)
        for causal in (False, True):
            who = mask.causal if causal else None
            with torch.no_grad():
                found = compare_interleaved(
                    lambda q=query, k=key, v=value, m=who: attend(q, k, v, mask=m),
                    lambda q=query, k=key, v=value, c=causal: functional.scaled_dot_product_attention(
                        q, k, v, is_causal=c
                    ),
                    rounds,
                    calls,
                )
            cost = 100 * (1 / found["ratio"] - 1)
            rows.append(
                {
                    "what": f"door {name} {list(shape)}{' causal' if causal else ''}",
                    "extra_us": round(found["extra"] * 1e6, 2),
                    "extra_percent": round(cost, 2),
                    "ratio": found["ratio"],
                    "spread": [found["low"], found["high"]],
                }
            )
    return rows


def sparse(rounds: int, length: int = 8192) -> list[dict[str, object]]:
    """blocked under a window of 256 against dense kernels over everything, and over the causal half."""
    rows = []
    tensors = torch.randn(3, 1, 12, length, 64)
    pull = torch.randn(1, 12, length, 64)
    who = mask.causal & mask.window(256)
    for dense_causal in (False, True):
        query, key, value = tensors
        with torch.no_grad():
            found = compare_interleaved(
                lambda q=query, k=key, v=value: attend(q, k, v, mask=who, backend="blocked"),
                lambda q=query, k=key, v=value, c=dense_causal: functional.scaled_dot_product_attention(
                    q, k, v, is_causal=c
                ),
                rounds,
            )
        rows.append(_row(f"blocked forward n={length}", dense_causal, found))
        leaves = [one.clone().requires_grad_() for one in tensors]

        def ours(leaves: list[torch.Tensor] = leaves) -> None:
            attend(*leaves, mask=who, backend="blocked").backward(pull)

        def theirs(leaves: list[torch.Tensor] = leaves, causal: bool = dense_causal) -> None:
            functional.scaled_dot_product_attention(*leaves, is_causal=causal).backward(pull)

        found = compare_interleaved(ours, theirs, max(3, rounds // 2))
        rows.append(_row(f"blocked forward+backward n={length}", dense_causal, found))
    return rows


def _row(what: str, dense_causal: bool, found: dict[str, float]) -> dict[str, object]:
    return {
        "what": f"{what}, window 256, against dense sdpa{' (is_causal)' if dense_causal else ''}",
        "ours_s": round(found["ours"], 4),
        "theirs_s": round(found["theirs"], 4),
        "ratio": found["ratio"],
        "spread": [found["low"], found["high"]],
    }


MEMORY = """
import torch
from jumok import attend
from jumok.attention import mask
torch.set_num_threads(2)
who = mask.causal & mask.window(256)
def step(length):
    tensors = [torch.randn(1, 12, length, 64, requires_grad=True) for _ in range(3)]
    attend(*tensors, mask=who, backend={backend!r}).square().mean().backward()
step(64)  # libraries and their buffers are loaded before the mark
mark()
step({length})
"""


def memory() -> list[dict[str, object]]:
    """How the peak of a forward and backward pass grows with n: log2 of what doubling n multiplies it by."""
    lengths = [1024, 2048, 4096, 8192, 16384]
    peaks = [measure_peak_memory(MEMORY.format(backend="blocked", length=length)) for length in lengths]
    exponent = math.log(peaks[-1] / peaks[0]) / math.log(lengths[-1] / lengths[0])
    dense = [measure_peak_memory(MEMORY.format(backend="explicit", length=length)) for length in lengths[:3]]
    return [
        {
            "what": "blocked memory, forward+backward, 1,024 to 16,384",
            "MB": [round(peak / 2**20, 1) for peak in peaks],
            "exponent": exponent,
            "exponent_of_the_last_doubling": math.log2(peaks[-1] / peaks[-2]),
            "explicit_MB_1024_to_4096": [round(peak / 2**20, 1) for peak in dense],
        }
    ]


def crossover(rounds: int) -> list[dict[str, object]]:
    """Where blocked begins to beat sdpa with a table: what ``auto`` goes by (SPARSE_FROM, SPARSE_SHARE)."""
    rows: list[dict[str, object]] = []
    for length in (512, 1024, 2048, 4096):
        query, key, value = torch.randn(3, 1, 12, length, 64)
        grid = Grid(range(1), range(12), range(length), range(length))
        for part in (8, 4, 2, 1):
            who = mask.causal & mask.window(length // part)
            with torch.no_grad():
                found = compare_interleaved(
                    lambda q=query, k=key, v=value, m=who: attend(q, k, v, mask=m, backend="blocked"),
                    lambda q=query, k=key, v=value, m=who: attend(q, k, v, mask=m, backend="sdpa"),
                    rounds,
                )
            rows.append(
                {
                    "what": f"blocked against sdpa with a table, n={length}, window n/{part}",
                    "share": block_plan.compute_coverage(who, grid),
                    "ratio": found["ratio"],
                    "spread": [found["low"], found["high"]],
                }
            )
    return rows


def linear(rounds: int, length: int = 8192) -> list[dict[str, object]]:
    """Linear attention against softmax attention, causal."""
    query, key, value = torch.randn(3, 1, 12, length, 64)
    with torch.no_grad():
        found = compare_interleaved(
            lambda: attend(query, key, value, mask=mask.causal, score=score.Kernel()),
            lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=True),
            rounds,
        )
    return [
        {
            "what": f"linear (elu+1) causal n={length} against sdpa",
            "ratio": found["ratio"],
            "spread": [found["low"], found["high"]],
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each comparison (default 15)")
    parser.add_argument("--json", action="store_true", help="print JSON, one line a row")
    parser.add_argument("--only", choices=["door", "sparse", "crossover", "memory", "linear"], help="one part alone")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    parts = {
        "door": lambda: door(chosen.rounds),
        "sparse": lambda: sparse(max(3, chosen.rounds // 3)),
        "crossover": lambda: crossover(max(3, chosen.rounds // 3)),
        "memory": memory,
        "linear": lambda: linear(max(3, chosen.rounds // 3)),
    }
    for name, part in parts.items():
        if chosen.only in (None, name):
            for row in part():
                print(
                    json.dumps(row)
                    if chosen.json
                    else "  ".join(f"{key}={_short(value)}" for key, value in row.items()),
                    flush=True,
                )


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"[{', '.join(_short(one) for one in value)}]" if isinstance(value, list) else str(value)


if __name__ == "__main__":
    main()
