"""Maps of two inputs on common axes: a row and a column for each pair of aligned positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jumok.lens.capture.captured_attention import WeightTile

from .site_maps import SiteMap

Positions = Sequence[int | None]


class AlignedMap(SiteMap):
    """A map whose rows and columns are moved to other positions; a row or column without a position is empty."""

    def __init__(self, site_map: SiteMap, rows: Positions, columns: Positions) -> None:
        """Place a map: ``rows[i]`` is the query of row i, and ``columns[j]`` the key of column j; None is empty. Both
        ascend."""
        super().__init__(site_map.attention)
        self.site_map = site_map
        self.queries, self.keys = len(rows), len(columns)
        self._rows, self._columns = (_to_tensor(positions) for positions in (rows, columns))

    def read_tile(self, head: int, rows: slice, columns: slice) -> WeightTile:
        queries, keys = self._rows[rows], self._columns[columns]
        weights = torch.zeros(len(queries), len(keys))
        has_query, has_key = (queries >= 0).nonzero(), (keys >= 0).nonzero()
        if not len(has_query) or not len(has_key):
            return weights
        queries, keys = queries[has_query[:, 0]], keys[has_key[:, 0]]
        first_query, first_key = int(queries[0]), int(keys[0])
        inside = self.site_map.read_tile(
            head, slice(first_query, int(queries[-1]) + 1), slice(first_key, int(keys[-1]) + 1)
        )
        weights[has_query, has_key.T] = inside[queries - first_query][:, keys - first_key]
        return weights

    def bound_keys(self, rows: slice) -> tuple[int, int]:
        queries = self._rows[rows]
        queries = queries[queries >= 0]
        if not len(queries):
            return 0, 1
        first, end = self.site_map.bound_keys(slice(int(queries[0]), int(queries[-1]) + 1))
        columns = ((self._columns >= first) & (self._columns < end)).nonzero()
        return (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, 1)


def _to_tensor(positions: Positions) -> torch.Tensor:
    return torch.tensor([-1 if position is None else position for position in positions])


def pair_positions(count: int, partners: Positions) -> list[tuple[int | None, int | None]]:
    """Return the aligned positions of two texts in their order, with None where one of them has no token.

    Args:
        count: The number of positions of the first text.
        partners: By position of the second text, its partner in the first one.

    >>> pair_positions(3, [0, None, 2])
    [(0, 0), (None, 1), (1, None), (2, 2)]
    """
    pairs: list[tuple[int | None, int | None]] = []
    begin = 0
    for position, partner in enumerate(partners):
        if partner is not None:
            pairs += [(skipped, None) for skipped in range(begin, partner)]
            begin = partner + 1
        pairs.append((partner, position))
    return pairs + [(skipped, None) for skipped in range(begin, count)]
