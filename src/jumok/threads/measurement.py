"""Measure which number of threads is fastest for a model and an input size, once per size, in a few milliseconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.small_batch_linear import linear

from .setting import is_decided, use_threads

SMALL_WORK = 2e7  # floating-point operations of a forward pass; with less, several threads only wait for each other
PASS_WORK = 1e8  # floating-point operations of a measured pass, about 2 ms on one core
MAX_ROWS = 64  # of the measured products
SECONDS_PER_CANDIDATE = 0.006  # longer than the time slice of a scheduler, so that waiting for other processes counts
MINIMUM_SPEEDUP = 1.15  # of more threads over fewer: the processes beside them slow down several threads more than one

Key = tuple[int, int, tuple[torch.Size, ...]]  # the largest number of threads, rows, shapes of the weights

Step = TypeVar("Step")

_fastest: dict[Key, int] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def use_fastest_threads(model: nn.Module, rows: int = MAX_ROWS) -> Iterator[None]:
    """Compute with the fastest number of threads while the context is open, then restore the caller's.

    The caller's number is the largest that is tried, so that ``torch.set_num_threads(1)`` and OMP_NUM_THREADS=1 stay
    in force. Inside another such context, or in a training run, nothing changes: the outermost call decides.

    Args:
        rows: The number of rows of its matrix products: the tokens or patches of all texts or images in the batch;
            default: many.
    """
    limit = torch.get_num_threads()
    if limit == 1 or is_decided():
        yield
        return
    with use_threads(choose_fastest_threads(model, rows, limit)):
        yield


def step_with_fastest_threads(
    model: nn.Module, steps: Iterator[Step], first_rows: int, rows: int
) -> Generator[Step, None, None]:
    """Yield what a generator yields; each of its steps computes with the fastest number of threads.

    Between two steps, and after an abandoned generator, the caller's number of threads is in force.

    Args:
        model: The model that the generator runs.
        first_rows: The number of rows of the matrix products in the first step, which reads the prompt.
    """
    while True:
        with use_fastest_threads(model, first_rows):
            try:
                step = next(steps)
            except StopIteration:
                return
        yield step
        first_rows = rows


def count_rows(inputs: Iterable[Any]) -> int:
    """Return about how many rows the matrix products of a model have for these inputs.

    Args:
        inputs: The arguments of its forward pass: token ids, images, vectors; others are ignored.

    >>> count_rows([torch.zeros(2, 5, dtype=torch.long)])
    10
    """
    rows = 1
    for tensor in inputs:
        if isinstance(tensor, Tensor) and tensor.numel():
            rows = max(rows, tensor.numel() // tensor.shape[-1] if tensor.is_floating_point() else tensor.numel())
    return rows


def choose_fastest_threads(model: nn.Module, rows: int, limit: int) -> int:
    """Return the fastest number of threads from 1 to ``limit``; measured once per process for each size."""
    matrices = [tensor for tensor in chain(model.parameters(), model.buffers()) if tensor.dim() == 2]
    if not matrices or matrices[0].device.type != "cpu":
        return limit
    if 2.0 * rows * sum(matrix.numel() for matrix in matrices) < SMALL_WORK:
        return 1

    rows = min(MAX_ROWS, 1 << (max(1, rows) - 1).bit_length())
    weights = _select_weights(model, rows)
    key = (limit, rows, tuple(weight.shape for weight in weights))
    with _lock:  # two measurements at the same time would disturb each other
        if key not in _fastest:
            _fastest[key] = _measure(weights, rows, limit)
        return _fastest[key]


def _select_weights(model: nn.Module, rows: int) -> list[Tensor]:
    """Return a few weight matrices of linear layers, in the model's order: together one measured pass."""
    selected: list[Tensor] = []
    work = 0.0
    for module in model.modules():
        for matrix in chain(module.parameters(recurse=False), module.buffers(recurse=False)):
            if matrix.dim() != 2 or isinstance(module, nn.Embedding):
                continue
            work += 2.0 * rows * matrix.numel()
            if selected and work > PASS_WORK:
                return selected
            selected.append(matrix.detach())
    return selected


def _measure(weights: list[Tensor], rows: int, limit: int) -> int:
    """Return the fastest number of threads for products of ``rows`` rows with these matrices."""
    # 8-bit matrices are measured as float32 matrices of the same shape
    weights = [weight if weight.dtype == torch.float32 else torch.ones(weight.shape) for weight in weights]
    inputs = {width: torch.ones(rows, width) for width in {weight.shape[1] for weight in weights}}

    fastest, least_seconds = 1, float("inf")
    for candidate in sorted({1, max(1, limit // 2), limit}):
        with use_threads(candidate):
            seconds = _time_pass(weights, inputs)
        if seconds * MINIMUM_SPEEDUP < least_seconds or candidate == 1:
            fastest, least_seconds = candidate, seconds
    return fastest


@torch.inference_mode()
def _time_pass(weights: list[Tensor], inputs: dict[int, Tensor]) -> float:
    """Return the mean duration of one pass; the mean, because the waits for other processes must count."""
    _run_pass(weights, inputs)  # warm-up: the first pass starts the threads
    passes, started_at = 0, time.perf_counter()
    while True:
        _run_pass(weights, inputs)
        passes += 1
        seconds = time.perf_counter() - started_at
        if seconds >= SECONDS_PER_CANDIDATE:
            return seconds / passes


def _run_pass(weights: list[Tensor], inputs: dict[int, Tensor]) -> None:
    for weight in weights:
        functional.gelu(linear(inputs[weight.shape[1]], weight, None))
