"""Correlations of two lists of numbers: Pearson's, and Spearman's of their ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def compute_pearson(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Pearson's correlation; 0 where a side is constant.

    Args:
        right: The second variable, of equal length.
    """
    if len(left) < 2:
        return 0.0
    pair = torch.tensor([list(left), list(right)], dtype=torch.float64)
    centred = pair - pair.mean(1, keepdim=True)
    norms = centred.norm(dim=1).prod()
    return float((centred[0] * centred[1]).sum() / norms) if norms > 0 else 0.0


def compute_spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Spearman's rank correlation; equal numbers get their mean rank.

    Args:
        right: The second variable, of equal length.
    """
    return compute_pearson(_rank(left), _rank(right))


def _rank(numbers: Sequence[float]) -> list[float]:
    """Return the rank of each number; equal numbers share the mean of their ranks."""
    distinct, indices = torch.tensor(list(numbers), dtype=torch.float64).unique(return_inverse=True)
    counts = torch.bincount(indices, minlength=len(distinct)).to(torch.float64)
    last_ranks = counts.cumsum(0)
    return (last_ranks - (counts - 1) / 2)[indices].tolist()
