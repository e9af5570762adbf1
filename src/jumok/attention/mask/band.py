"""Bands: how far from a query the keys that a mask allows may be. A mask derives its band from its expression."""

from __future__ import annotations

from typing import NamedTuple


class Band(NamedTuple):
    """Bounds of ``query position - key position`` over all allowed cells: ``-ahead <= distance <= behind``.

    Cells inside the bounds may be forbidden too. None is no bound.

    Attributes:
        behind: Largest number of positions that an allowed key may be behind the query.
        ahead: Largest number of positions that an allowed key may be ahead of the query.
    """

    behind: int | None = None
    ahead: int | None = None

    def intersect(self, other: Band) -> Band:
        """Return the band of the cells that are in this band and in the other one."""
        return Band(_min_bound(self.behind, other.behind), _min_bound(self.ahead, other.ahead))

    def unite(self, other: Band) -> Band:
        """Return the smallest band that contains this band and the other one."""
        return Band(_max_bound(self.behind, other.behind), _max_bound(self.ahead, other.ahead))


def _min_bound(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _max_bound(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)
