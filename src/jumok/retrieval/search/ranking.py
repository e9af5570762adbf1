"""Select the largest of many scores. Equal scores are ordered by their numbers, so that results are deterministic."""

from __future__ import annotations

import numpy as np

from jumok.errors import ArgumentError, describe_type


def select_largest(scores: np.ndarray, count: int, *, above: float = -np.inf) -> list[tuple[int, float]]:
    """Return the largest scores as (number, score), largest first; of equal scores, the smaller number comes first.

    Args:
        scores: Finite scores [number].

    >>> select_largest(np.array([1.0, 3.0, 0.0, 3.0]), 3)
    [(1, 3.0), (3, 3.0), (0, 1.0)]
    """
    if len(scores) > count:
        threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    candidates = candidates[scores[candidates] > above]
    order = np.argsort(-scores[candidates], kind="stable")[:count]
    return [(int(number), float(scores[number])) for number in candidates[order]]


def check_count(count: object) -> None:
    """Raise an error unless a number of results is a positive integer.

    Raises:
        ArgumentError: If it is not.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise ArgumentError(f"count must be an integer, not {describe_type(count)}")
    if count < 1:
        raise ArgumentError(f"count must be at least 1, not {count}")
