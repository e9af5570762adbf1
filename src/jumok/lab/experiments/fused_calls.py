"""Experiment ``fused``: one matrix product instead of three for Q, K and V, and a kernel that stores no weights.

FlashAttention (Dao et al. 2022) computes the output block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from jumok.attention import attend, mask
from jumok.bilingual_text import Texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.cost.cost_report import format_bytes
from jumok.lab.cost.measurements import PeakMemory, time_calls
from jumok.lab.result import Result, build_table, count_steps
from jumok.reporting import Progress

TEXTS = Texts(__file__)

SIZES = ((64, 1), (64, 512), (256, 1), (256, 512), (768, 1), (768, 512))  # width, tokens
LENGTHS = (256, 512, 1024, 2048)
FULL: dict[str, Any] = {"lengths": (256, 512, 1024, 2048, 4096), "rounds": 31}
HEADS, HEAD_WIDTH = 2, 64
WARM_UP = 3  # rounds that do not count

Calls = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Ratio:
    """The time of the plain form divided by that of the fused one, in the same round.

    Attributes:
        low: The lower quartile of the rounds.
        high: The upper quartile.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"x{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class FusedRow:
    """One size.

    Attributes:
        width: The width of the inputs; None for the attention kernels.
        forward: The ratio of the times of a forward pass.
        training: The same with the backward pass.
        plain_bytes: The largest memory of the tensors that forward and backward pass create with the plain form.
        fused_bytes: The same with the fused form.
    """

    width: int | None
    tokens: int
    forward: Ratio
    training: Ratio
    plain_bytes: int
    fused_bytes: int


def measure_fused_calls(
    sizes: Sequence[tuple[int, int]] = SIZES,
    lengths: Sequence[int] = LENGTHS,
    *,
    rounds: int = 11,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare one linear layer for Q, K and V with three, and PyTorch's fused attention with the explicit formula.

    Args:
        sizes: Width and tokens of the inputs of the linear layers.
        lengths: The tokens of the attention, which has 2 heads of width 64 and a causal mask.
        rounds: How often each pair is timed; the two alternate.
    """
    if not sizes or not lengths or min(rounds - 1, *lengths, *(min(size) for size in sizes)) < 1:
        raise ArgumentError("measure_fused_calls needs sizes and lengths of at least 1, and at least 2 rounds")
    torch.manual_seed(seed)
    count_step = count_steps((len(sizes) + len(lengths)) * 2 * (rounds + WARM_UP), progress)
    measure = partial(_measure_pair, rounds=rounds, count_step=count_step)
    projections = tuple(measure(width, tokens, *_create_projections(width, tokens)) for width, tokens in sizes)
    kernels = tuple(measure(None, tokens, *_create_attentions(tokens)) for tokens in lengths)
    return describe_fused_calls(seed, rounds, projections, kernels)


def describe_fused_calls(
    seed: int, rounds: int, projections: tuple[FusedRow, ...], kernels: tuple[FusedRow, ...]
) -> Result:
    """Say what is faster and what needs less memory, and where the fused form is not clearly faster."""
    tables = [
        build_table(TEXTS, name, map(_format_row, rows), rounds=rounds, heads=HEADS, width=HEAD_WIDTH)
        for name, rows in (("projections", projections), ("kernels", kernels))
    ]
    longest = kernels[-1]
    saved = [row.plain_bytes / row.fused_bytes for row in projections]
    sentences = [
        TEXTS("sentence_projections", smallest=min(saved), largest=max(saved)),
        TEXTS("sentence_kernels", **_format_row(longest), factor=longest.plain_bytes / longest.fused_bytes),
    ]
    exceptions = []
    for name, rows in (("same_projections", projections), ("same_kernels", kernels)):
        # the quartiles of a faster form are above 1
        unclear = [row for row in rows if min(row.forward.low, row.training.low) <= 1]
        if unclear:
            size_names = ", ".join(
                f"{row.width} x {row.tokens:,}" if row.width else f"{row.tokens:,}" for row in unclear
            )
            exceptions.append(TEXTS(name, count=len(unclear), total=len(rows), size_names=size_names))
    numbers = {"seed": seed, "rounds": rounds, "projections": projections, "kernels": kernels}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_memory, kernels))


def _format_row(row: FusedRow) -> dict[str, object]:
    return {"row": row, "plain": format_bytes(row.plain_bytes), "fused": format_bytes(row.fused_bytes)}


def _draw_memory(kernels: Sequence[FusedRow], target: str | Path, language: str) -> Path:
    labels = TEXTS.select("picture", language)
    lines = {
        labels["explicit"]: [(row.tokens, row.plain_bytes / 2**20) for row in kernels],
        labels["fused"]: [(row.tokens, row.fused_bytes / 2**20) for row in kernels],
    }
    return save_line_plot(lines, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def _create_projections(width: int, tokens: int) -> tuple[Calls, Calls]:
    """Return the forward passes of three layers and of one, and the same with backward passes."""
    hidden = torch.randn(1, tokens, width, requires_grad=True)
    joined = torch.nn.Linear(width, 3 * width)
    layers = [torch.nn.Linear(width, width) for _ in range(3)]
    inputs = {"plain": [hidden, *(part for layer in layers for part in layer.parameters())]}
    inputs["fused"] = [hidden, *joined.parameters()]
    calls = {
        "plain": lambda: [layer(hidden) for layer in layers],
        "fused": lambda: list(joined(hidden).split(width, dim=-1)),
    }
    return calls, {name: partial(_run_backward, call, inputs[name]) for name, call in calls.items()}


def _create_attentions(tokens: int) -> tuple[Calls, Calls]:
    """Return the forward passes of both backends, and the same with backward passes."""
    inputs = [torch.randn(1, HEADS, tokens, HEAD_WIDTH, requires_grad=True) for _ in range(3)]
    calls = {
        name: partial(lambda backend: [attend(*inputs, mask=mask.causal, backend=backend)], backend)
        for name, backend in (("plain", "explicit"), ("fused", "sdpa"))
    }
    return calls, {name: partial(_run_backward, call, inputs) for name, call in calls.items()}


def _run_backward(call: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> object:
    outputs = call()
    return torch.autograd.grad(outputs, inputs, [torch.ones_like(output) for output in outputs])


def _measure_pair(
    width: int | None, tokens: int, forward: Calls, training: Calls, *, rounds: int, count_step: Callable[[], None]
) -> FusedRow:
    with torch.no_grad():
        forward_ratio = _time_pair(forward, rounds, count_step)
    training_ratio = _time_pair(training, rounds, count_step)
    peaks = {}
    for name, call in training.items():
        with PeakMemory() as memory:
            call()
        peaks[name] = memory.peak
    return FusedRow(width, tokens, forward_ratio, training_ratio, peaks["plain"], peaks["fused"])


def _time_pair(calls: Calls, rounds: int, count_step: Callable[[], None]) -> Ratio:
    seconds = time_calls(calls, rounds=rounds + WARM_UP, after_round=count_step)
    pairs = zip(seconds["plain"][WARM_UP:], seconds["fused"][WARM_UP:], strict=True)
    low, middle, high = quantiles([plain / fused for plain, fused in pairs], n=4)
    return Ratio(middle, low, high)
