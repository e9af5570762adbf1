"""Notice that training has become much slower than at its start, as it does when other processes use the cores."""

from __future__ import annotations

import statistics
from collections import deque

WINDOW_SECONDS = 1.0
WINDOW_STEPS = 3
WINDOWS = 3  # compared at the start and at the end; the median ignores a short interruption
SLOWDOWN = 2.0


class SlowdownWatch:
    """Compares the latest speed of training with its first, in targets per second.

    Evaluations and checkpoints do not count: only the durations of steps are added. Targets instead of steps, because
    sequences may differ in length.
    """

    def __init__(self) -> None:
        self._targets = self._steps = 0
        self._seconds = 0.0
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=WINDOWS)
        self._is_reported = False

    def add(self, targets: int, seconds: float) -> bool:
        """Add a step, and return True if training is now half as fast as at its start; True is returned once."""
        if self._is_reported:
            return False
        self._targets += targets
        self._seconds += seconds
        self._steps += 1
        if self._seconds < WINDOW_SECONDS or self._steps < WINDOW_STEPS:
            return False

        speed = self._targets / self._seconds
        self._targets = self._steps = 0
        self._seconds = 0.0
        if len(self._first) < WINDOWS:
            self._first.append(speed)
            return False
        self._latest.append(speed)
        if len(self._latest) < WINDOWS:
            return False
        self._is_reported = statistics.median(self._latest) * SLOWDOWN < statistics.median(self._first)
        return self._is_reported
