"""The rule by which training chooses its number of threads.

A rule, not a measurement: the number of threads can change the last bits of a sum, and runs with equal seeds must be
identical on a busy and on an idle machine.
"""

from __future__ import annotations

WORK_PER_THREAD = 5e8  # floating-point operations; with less, threads wait longer for each other than they compute


def choose_training_threads(work: float, limit: int) -> int:
    """Return the number of threads for training steps of a given size.

    Args:
        work: The floating-point operations of one forward and backward pass.
        limit: The largest number of threads: the cores that this process may use, or the caller's own setting.

    >>> choose_training_threads(work=1e8, limit=8), choose_training_threads(work=2e9, limit=8)
    (1, 4)
    """
    return max(1, min(limit, int(work // WORK_PER_THREAD)))
