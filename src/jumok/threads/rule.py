"""The rule by which training chooses its number of threads.

The number can change the last bits of a sum, and training enlarges such differences. So it is chosen once, before the
first step, and stored with the run.
"""

from __future__ import annotations

# Floating-point operations of a forward and backward pass. With less, threads wait for each other longer than they
# compute; two threads begin to pay at twice this number.
WORK_PER_THREAD = 1e9


def choose_training_threads(work: float, limit: int) -> int:
    """Return the number of threads for training steps of a given size, on an idle machine.

    Args:
        work: The floating-point operations of one forward and backward pass.
        limit: The largest number of threads: the cores that this process may use, or the caller's own setting.

    >>> choose_training_threads(work=1e8, limit=8), choose_training_threads(work=4e9, limit=8)
    (1, 4)
    """
    return max(1, min(limit, int(work // WORK_PER_THREAD)))


def limit_to_free_cores(threads: int, busy: float, cores: int) -> int:
    """Return at most as many threads as there are cores that other programs leave free, at least 1.

    >>> limit_to_free_cores(2, busy=0.3, cores=2), limit_to_free_cores(2, busy=1.0, cores=2)
    (2, 1)
    """
    return max(1, min(threads, round(cores - busy)))
