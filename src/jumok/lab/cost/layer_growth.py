"""How the cost of a recurrent, a convolutional and an attention layer grows with length and width: theory and times.

The table of Vaswani et al. (2017): RNN O(n d^2), CNN O(k n d^2), self-attention O(n^2 d).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from jumok.attention import attend
from jumok.errors import ArgumentError
from jumok.lab.result import count_steps
from jumok.reporting import Progress

from .measurements import read_available_memory, time_calls

KERNEL = 3  # the width k of the convolution
MIN_ROUNDS, MAX_ROUNDS, SECONDS = 5, 40, 3.0  # small layers are timed more often, because their times vary more
LAYERS = ("RNN", "CNN", "attention")


@dataclass(frozen=True)
class LayerGrowth:
    """One kind of layer.

    Attributes:
        name: "RNN", "CNN" or "attention".
        path: The longest path between two tokens, as an order and for these sizes.
        steps: The operations that must follow each other.
        operations: The multiplications and additions for these sizes.
        longer: By which factor the operations grow when the length doubles.
        wider: By which factor they grow when the width doubles.
        milliseconds: The measured time for these sizes; None if nothing was measured.
        measured_longer: By which factor the time grew when the length doubled, or None.
        measured_wider: By which factor the time grew when the width doubled, or None.
    """

    name: str
    order: str
    path: str
    steps: str
    operations: int
    longer: float
    wider: float
    milliseconds: float | None = None
    measured_longer: float | None = None
    measured_wider: float | None = None


def count_layer_operations(name: str, tokens: int, width: int) -> int:
    """Return the multiplications and additions of the matrix products of one layer.

    Args:
        name: "RNN" (a matrix for the input and one for the state), "CNN" (a kernel of 3 tokens) or "attention"
            (scores and mixture; the projections are not counted, as in the paper).
    """
    if name == "RNN":
        return 2 * 2 * tokens * width**2
    if name == "CNN":
        return 2 * KERNEL * tokens * width**2
    return 2 * 2 * tokens**2 * width


def compare_layers(
    tokens: int, width: int, *, measure: bool = False, seed: int = 0, progress: Progress | None = None
) -> tuple[LayerGrowth, ...]:
    """Compare the three kinds of layers for one text.

    Args:
        measure: Whether to measure times for these sizes, for twice the tokens, and for twice the width.

    >>> [layer.longer for layer in compare_layers(64, 16)]
    [2.0, 2.0, 4.0]
    """
    if tokens < 1 or width < 1:
        raise ArgumentError(f"tokens and width must be at least 1, not {tokens} and {width}")
    times = _measure_times(tokens, width, seed, progress) if measure else {}
    depth = 1
    while KERNEL**depth < tokens:  # a stack of dilated convolutions
        depth += 1
    facts = {
        "RNN": ("O(n d^2)", f"O(n): {tokens:,}", f"O(n): {tokens:,}"),
        "CNN": ("O(k n d^2)", f"O(log_k n): {depth}", "O(1)"),
        "attention": ("O(n^2 d)", "O(1): 1", "O(1)"),
    }
    rows = []
    for name, texts in facts.items():
        operations = count_layer_operations(name, tokens, width)
        longer = count_layer_operations(name, 2 * tokens, width) / operations
        wider = count_layer_operations(name, tokens, 2 * width) / operations
        measured: tuple[float, ...] = ()
        if measure:
            base, twice_long, twice_wide = times[name]
            measured = (1000 * base, twice_long / base, twice_wide / base)
        rows.append(LayerGrowth(name, *texts, operations, longer, wider, *measured))
    return tuple(rows)


def _measure_times(tokens: int, width: int, seed: int, progress: Progress | None) -> dict[str, list[float]]:
    """Return the shortest time of each layer for (n, d), (2n, d) and (n, 2d)."""
    needed = 4 * (3 * (2 * tokens) ** 2 + 8 * tokens * width + 16 * width**2)  # scores, weights and a temporary copy
    available = read_available_memory()
    if available is not None and needed > available:
        raise ArgumentError(
            f"measuring at {2 * tokens:,} tokens needs {needed / 2**30:.1f} GB, but {available / 2**30:.1f} GB are "
            "available; choose fewer tokens"
        )
    torch.manual_seed(seed)
    sizes = ((tokens, width), (2 * tokens, width), (tokens, 2 * width))
    calls = {(name, *size): _create_call(name, *size) for name in LAYERS for size in sizes}
    with torch.inference_mode():
        begin = time.perf_counter()
        time_calls(calls, rounds=1)  # warms up
        elapsed = time.perf_counter() - begin
        rounds = max(MIN_ROUNDS, min(MAX_ROUNDS, round(SECONDS / elapsed)))
        seconds = time_calls(calls, rounds=rounds, after_round=count_steps(rounds, progress))
    return {name: [min(seconds[name, *size]) for size in sizes] for name in LAYERS}


def _create_call(name: str, tokens: int, width: int) -> Callable[[], object]:
    hidden = torch.randn(1, tokens, width)
    if name == "RNN":
        recurrent = torch.nn.RNN(width, width, batch_first=True)
        return lambda: recurrent(hidden)
    if name == "CNN":
        convolution = torch.nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
        channels = hidden.mT.contiguous()
        return lambda: convolution(channels)
    return lambda: attend(hidden[:, None], hidden[:, None], hidden[:, None], backend="explicit")
