"""Reciprocal rank fusion (Cormack et al. 2009): combine rankings whose scores cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence

RANK_OFFSET = 60  # the constant k of the paper: how little the first ranks differ from each other


def fuse(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Return the numbers of all rankings with their fused scores, best first.

    The score of a number is the sum of 1 / (60 + rank) over the rankings that contain it, with ranks from 1. Of equal
    scores, the smaller number comes first.

    Args:
        rankings: Numbers, best first; each number at most once in a ranking.

    >>> [number for number, score in fuse([[7, 3, 5], [3, 9]])]
    [3, 7, 9, 5]
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
