"""Measure the time and memory of calls, how they grow, and how much memory this machine has."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jumok.threads import use_threads

Key = TypeVar("Key", bound=Hashable)

FITTED = 3  # the longest lengths, through which an exponent is fitted
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # containers, Linux


@dataclass(frozen=True)
class CallCost:
    """What one call costs.

    Attributes:
        milliseconds: The shortest measured processor time.
        peak_bytes: The largest memory of the tensors that it creates, at one time.
    """

    milliseconds: float
    peak_bytes: int


def measure_calls(
    calls: Mapping[str, Callable[[], object]], *, rounds: int, after_round: Callable[[], None] | None = None
) -> dict[str, CallCost]:
    """Measure calls without gradients, and return the cost of each.

    Args:
        rounds: How often each call is timed; the shortest time counts, because other programs only make it longer.
        after_round: Called after the memory is measured, and after each timed round; default: nothing.
    """
    with use_threads(1), torch.no_grad():
        peaks = {name: measure_peak_memory(call) for name, call in calls.items()}
        if after_round:
            after_round()
        seconds = time_calls(calls, rounds=rounds, after_round=after_round)
    return {name: CallCost(1000 * min(seconds[name]), peaks[name]) for name in calls}


def measure_lengths(
    lengths: Sequence[int],
    create_calls: Callable[[int], Mapping[str, Callable[[], object]]],
    *,
    rounds: int,
    after_round: Callable[[], None] | None = None,
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
    """Measure the calls of each length as ``measure_calls`` does, and return for each call its milliseconds and its
    largest memory in bytes by length."""
    costs = [measure_calls(create_calls(length), rounds=rounds, after_round=after_round) for length in lengths]
    milliseconds = {name: tuple(cost[name].milliseconds for cost in costs) for name in costs[0]}
    return milliseconds, {name: tuple(cost[name].peak_bytes for cost in costs) for name in costs[0]}


def time_calls(
    calls: Mapping[Key, Callable[[], object]], *, rounds: int, after_round: Callable[[], None] | None = None
) -> dict[Key, list[float]]:
    """Return the seconds of processor time that each call takes in each round, with one thread.

    The calls alternate, and processor time is measured, because other programs make a call wait. Warm up before.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in calls}
    with use_threads(1):
        for _ in range(rounds):
            for name, call in calls.items():
                start = time.process_time()
                call()
                seconds[name].append(time.process_time() - start)
            if after_round:
                after_round()
    return seconds


def fit_exponent(lengths: Sequence[int], costs: Sequence[int | float]) -> float:
    """Return the slope of log cost over log length, by least squares."""
    across = [math.log2(length) for length in lengths]
    upward = [math.log2(cost) for cost in costs]
    centre, level = sum(across) / len(across), sum(upward) / len(upward)
    products = sum((x - centre) * (y - level) for x, y in zip(across, upward, strict=True))
    return products / sum((x - centre) ** 2 for x in across)


class PeakMemory(TorchDispatchMode):
    """A context that adds up the memory of all tensors created inside it, as long as they are in use.

    Attributes:
        peak: The largest sum so far, in bytes.

    >>> with PeakMemory() as memory:
    ...     numbers = torch.zeros(10, device="meta")
    ...     numbers = numbers + 1
    ...     numbers = numbers.sum()
    >>> memory.peak  # two tensors of ten float32 numbers
    80
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._sizes: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        outputs = func(*args, **(kwargs or {}))
        self._sizes = {key: entry for key, entry in self._sizes.items() if not entry[0].expired()}
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in inputs:  # a view of an input is no new memory
                    self._sizes.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._sizes.values()))
        return outputs


def measure_peak_memory(calculate: Callable[[], object]) -> int:
    """Return the largest number of bytes that tensors created by a function take at one time.

    Inputs and parameters that existed before are not counted, nor are the small buffers inside a kernel. The function
    runs once, without gradients.
    """
    with torch.no_grad(), PeakMemory() as memory:
        calculate()
    return memory.peak


def read_available_memory() -> int | None:
    """Return the bytes of memory that are available, or None if the system does not say.

    On Linux the memory that programs can get without swapping, and at most the limit of a container; elsewhere the
    size of the memory.
    """
    sizes = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        for name in LIMIT_FILES:
            limit = Path(name)
            if limit.is_file() and (text := limit.read_text().strip()).isdigit():
                sizes.append(int(text))
    except (OSError, ValueError, IndexError):
        pass
    if not sizes and hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes, default=None)
