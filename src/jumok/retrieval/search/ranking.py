"""Select the largest of many scores, and combine rankings. Equal scores are ordered by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jumok.errors import ArgumentError, describe_type

RANK_OFFSET = 60  # the constant k of the paper: how little the first ranks differ from each other


def select_largest(scores: np.ndarray, count: int, *, above: float = -np.inf) -> list[tuple[int, float]]:
    """Return the largest of finite scores as (number, score), largest first; of equal ones, the smaller number first.

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
    """Raise an error unless a number of results is a positive integer."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise ArgumentError(f"count must be an integer, not {describe_type(count)}")
    if count < 1:
        raise ArgumentError(f"count must be at least 1, not {count}")


def fuse(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Return the numbers of all rankings with their fused scores, best first: reciprocal rank fusion.

    The score of a number is the sum of 1 / (60 + rank) over the rankings, of numbers with the best first, that contain
    it, with ranks from 1. Of equal scores, the smaller number comes first.

    >>> [number for number, score in fuse([[7, 3, 5], [3, 9]])]
    [3, 7, 9, 5]
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
