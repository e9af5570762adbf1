"""Shrink large maps so that no large weight disappears: each cell becomes the maximum of the weights it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from .checks import Patterns


class PooledPatterns(NamedTuple):
    """Maps that fit into an image.

    Attributes:
        weights: Weights ``[head, row, column]``.
        caption: What a cell stands for; empty if nothing was pooled.
    """

    weights: Patterns
    queries: list[str]
    keys: list[str]
    caption: str


def pool_patterns(
    weights: Patterns, queries: Sequence[str], keys: Sequence[str], limit: int, *, first_apart: bool = False
) -> PooledPatterns:
    """Shrink maps to at most ``limit`` rows and columns by maximum pooling.

    Drawing a large map directly would drop most of its cells, and with them single large weights.

    Args:
        weights: Weights ``[head, query, key]``.
        limit: The largest number of rows and columns, at least 2.
        first_apart: Whether the first key keeps a column of its own.

    Returns:
        The maps; the labels of a pooled axis are the positions at which its rows or columns begin.
    """
    row_starts = split_axis(weights.shape[1], limit)
    column_starts = split_axis(weights.shape[2], limit, first_apart=first_apart)
    if len(row_starts) < weights.shape[1]:
        weights = numpy.maximum.reduceat(weights, row_starts, axis=1)
    if len(column_starts) < weights.shape[2]:
        weights = numpy.maximum.reduceat(weights, column_starts, axis=2)
    return PooledPatterns(
        weights,
        label_parts(queries, row_starts),
        label_parts(keys, column_starts, first_apart=first_apart),
        describe_pooling(len(queries), row_starts, len(keys), column_starts),
    )


def split_axis(count: int, limit: int, *, first_apart: bool = False) -> list[int]:
    """Split positions into at most ``limit`` parts of similar size, and return the first position of each part.

    Args:
        limit: The largest number of parts, at least 2.

    >>> split_axis(10, 4), split_axis(10, 4, first_apart=True), split_axis(3, 4)
    ([0, 2, 5, 7], [0, 1, 4, 7], [0, 1, 2])
    """
    if count <= limit:
        return list(range(count))
    if first_apart:
        return [0, *(1 + start for start in split_axis(count - 1, limit - 1))]
    return [count * part // limit for part in range(limit)]


def label_parts(labels: Sequence[str], starts: list[int], *, first_apart: bool = False) -> list[str]:
    """Return the labels of an axis, or the first position of each part if positions were pooled.

    Args:
        first_apart: Whether the first position is a part of its own; it then keeps its label.

    >>> label_parts(["<s>", "a", "b", "c", "d"], [0, 1, 3], first_apart=True)
    ['<s>', '1', '3']
    """
    if len(starts) == len(labels):
        return list(labels)
    positions = [str(start) for start in starts]
    return [labels[0], *positions[1:]] if first_apart else positions


def describe_pooling(queries: int, row_starts: list[int], keys: int, column_starts: list[int]) -> str:
    """Return the caption of a pooled map; "" if nothing was pooled."""
    rows, columns = _measure_largest_part(queries, row_starts), _measure_largest_part(keys, column_starts)
    if rows == columns == 1:
        return ""
    return f"each cell is the maximum of up to {rows} x {columns} weights; the axes count positions"


def _measure_largest_part(count: int, starts: list[int]) -> int:
    return max(end - start for start, end in zip(starts, [*starts[1:], count], strict=True))
