"""Measure the time and the memory of several calls side by side, so that other programs disturb all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from jumok.threads import use_threads

from .peak_memory import measure_peak_memory


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
    """Measure calls in turn, with one thread and without gradients, and return the cost of each.

    Args:
        rounds: How often each call is timed; the shortest time counts, because other programs only make it longer.
        after_round: Called after the first round, which warms up and measures the memory, and after each timed round;
            default: nothing.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    peaks: dict[str, int] = {}
    with use_threads(1), torch.no_grad():
        for round_number in range(rounds + 1):
            for name, call in calls.items():
                if not round_number:
                    peaks[name] = measure_peak_memory(call)
                    continue
                start = time.process_time()
                call()
                seconds[name].append(time.process_time() - start)
            if after_round:
                after_round()
    return {name: CallCost(1000 * min(seconds[name]), peaks[name]) for name in calls}
