"""Masks: boolean expressions (True = may attend) that compose with ``&``, ``|`` and ``~``.

A mask is a predicate on (batch, head, query position, key position). A backend evaluates it tile by tile, so no dense
tensor is needed. Because a mask reads *positions*, a decoding step with a cache uses the same mask.

>>> from jumok.attention import mask
>>> longformer = mask.window(2) | mask.global_at([0])
>>> print(mask.causal & longformer)
causal & (window(2) | global_at([0]))
■ · · · · · · ·
■ ■ · · · · · ·
■ ■ ■ · · · · ·
■ · ■ ■ · · · ·
■ · · ■ ■ · · ·
■ · · · ■ ■ · ·
■ · · · · ■ ■ ·
■ · · · · · ■ ■
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from jumok.errors import ArgumentError, ShapeError

from .base import Mask
from .position_masks import BlocksOf, Causal, Edge, GlobalAt, Prefix, RandomKeys, Window
from .table_masks import Documents, Given, PaddingLengths, PaddingTable

__all__ = [
    "Mask",
    "blocks",
    "causal",
    "documents",
    "edge",
    "given",
    "global_at",
    "padding",
    "parse",
    "prefix",
    "random_keys",
    "window",
]

Indices = int | Iterable[int] | None
DocumentIds = Sequence[int] | Sequence[Sequence[int]] | Tensor  # [position] or [batch, position]

MAX_INTEGER = 2**62  # positions are 64-bit integers, which masks add and multiply

causal: Mask = Causal()


def window(n: int) -> Mask:
    """Allow keys at a distance below ``n``.

    Args:
        n: Distance bound, at least 1. Together with ``causal``, ``n`` keys are allowed, including the query's own
            position; alone, 2n - 1.
    """
    return Window(_check_integer("window", n, 1))


def prefix(n: int) -> Mask:
    """Allow the first ``n`` keys."""
    return Prefix(_check_integer("prefix", n, 0))


def global_at(positions: int | Iterable[int]) -> Mask:
    """Allow every cell whose query or key is at one of these positions."""
    positions = positions if isinstance(positions, Iterable) else (positions,)
    return GlobalAt(tuple(sorted({_check_integer("global_at", position, 0) for position in positions})))


def random_keys(n: int, seed: int, length: int, block: int = 1) -> Mask:
    """Allow ``n`` random keys for each query, the same in all heads.

    Args:
        n: Number of keys per query; with ``block``, number of blocks of keys.
        length: Keys are drawn from positions 0 to ``length - 1``.
        block: Positions per block: the queries of a block share ``n`` random blocks of keys, as in BigBird. A block of
            64 or more lets the ``blocked`` backend skip most of a long text; single keys, the default, do not.
    """
    return RandomKeys(
        _check_integer("random_keys", n, 0),
        _check_integer("the seed of random_keys", seed, 0, 2**128),
        _check_integer("random_keys", length, 1),
        _check_integer("the block of random_keys", block, 1),
    )


def blocks(size: int | Sequence[int], shift: int | Sequence[int] = 0, grid: Sequence[int] | None = None) -> Mask:
    """Allow keys in the same block as the query: equal ``(position - shift) // size``, without wrapping around.

    Args:
        size: Positions per block; on a grid, (rows, columns).
        shift: Offset of the first block; on a grid, (rows, columns).
        grid: (rows, columns) of an image whose positions are numbered row by row; then both axes must agree, as in
            ``blocks((7, 7), grid=(56, 56), shift=(3, 3))``. None for a line of positions.
    """
    if grid is None:
        if isinstance(size, Sequence) or isinstance(shift, Sequence):
            raise ArgumentError("blocks with two sizes needs grid=(rows, columns)")
        return BlocksOf((_check_integer("blocks", size, 1),), (_check_integer("the shift of blocks", shift, 0),), ())

    sizes = size if isinstance(size, Sequence) else (size, size)
    shifts = shift if isinstance(shift, Sequence) else (shift, shift)
    if len(sizes) != 2 or len(shifts) != 2 or len(grid) != 2:
        raise ArgumentError(f"blocks on a grid takes pairs; got size {sizes}, shift {shifts}, grid {grid}")
    return BlocksOf(
        tuple(_check_integer("blocks", size, 1) for size in sizes),
        tuple(_check_integer("the shift of blocks", shift, 0) for shift in shifts),
        tuple(_check_integer("the grid of blocks", side, 1) for side in grid),
    )


def edge(query: Indices = None, key: Indices = None, head: Indices = None, batch: Indices = None) -> Mask:
    """Allow one cell, or a rectangle of cells. ``mask & ~edge(...)`` forbids it.

    Args:
        query: Query position or positions; None = all.
        key: Key position or positions; None = all.
        head: Head index or indices; None = all.
        batch: Batch row or rows; None = all.
    """
    return Edge(
        _sort_indices("query", query),
        _sort_indices("key", key),
        _sort_indices("head", head),
        _sort_indices("batch", batch),
    )


def _sort_indices(name: str, indices: Indices) -> tuple[int, ...] | None:
    if indices is None:
        return None
    numbers = indices if isinstance(indices, Iterable) else (indices,)
    distinct = tuple(sorted({_check_integer(f"the {name} of edge", number, 0) for number in numbers}))
    if not distinct:
        raise ArgumentError(f"edge got an empty list for {name}; leave {name} out to mean all")
    return distinct


def padding(lengths: int | Sequence[int] | Tensor) -> Mask:
    """Forbid the keys that are padding.

    Args:
        lengths: Number of real tokens in each batch row, with padding on the right; or a token mask
            ``bool[batch, key]``, True = real token. A single integer is an error.
    """
    if isinstance(lengths, int):
        raise ArgumentError(f"padding takes one length per batch row; write padding([{lengths}])")

    if isinstance(lengths, Tensor) and lengths.dtype == torch.bool:
        if lengths.dim() != 2:
            raise ShapeError(f"padding takes bool[batch, key] or lengths[batch], not bool{list(lengths.shape)}")
        return PaddingTable(lengths)

    if isinstance(lengths, Tensor):
        if lengths.dim() != 1 or lengths.is_floating_point():
            raise ShapeError(
                f"padding takes bool[batch, key] or integer lengths[batch], not {lengths.dtype}{list(lengths.shape)}"
            )
        lengths = lengths.tolist()

    checked = tuple(_check_integer("padding", length, 0) for length in lengths)
    if not checked:
        raise ArgumentError("padding needs the length of at least one row")
    return PaddingLengths(checked)


def documents(ids: DocumentIds, key_ids: DocumentIds | None = None) -> Mask:
    """Allow keys of the same document as the query.

    Args:
        ids: Document id of every position, ``[position]`` or ``[batch, position]``.
        key_ids: Document ids of the keys, if queries and keys belong to two sequences; ``ids`` by default.
    """
    query_table = _make_id_table(ids)
    key_table = query_table if key_ids is None else _make_id_table(key_ids)
    return Documents(query_table, key_table)


def _make_id_table(ids: DocumentIds) -> Tensor:
    try:
        table = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"documents takes integer ids, equally many in every row, not {ids!r}") from None
    if table.dim() not in (1, 2) or table.is_floating_point():
        raise ShapeError(
            f"documents takes integer ids[position] or ids[batch, position], not {table.dtype}{list(table.shape)}"
        )
    return table if table.dim() == 2 else table[None]


def given(tensor: Tensor) -> Mask:
    """Return a boolean tensor as a mask.

    Args:
        tensor: True = may attend, ``[query, key]`` or ``[batch or 1, head or 1, query, key]``, indexed by position.
    """
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ArgumentError(
            f"mask.given takes a boolean tensor, True = may attend, not {kind}; to add numbers, use bias.given"
        )
    if tensor.dim() not in (2, 4):
        raise ShapeError(f"mask.given takes [query, key] or [batch, head, query, key], not {list(tensor.shape)}")
    return Given(tensor if tensor.dim() == 4 else tensor[None, None])


def parse(text: str) -> Mask:
    """Parse an expression such as ``"causal & (window(4) | global_at([0]))"``. Nothing is executed."""
    from .notation import parse as parse_text

    return parse_text(text)


def _check_integer(name: str, number: object, smallest: int, largest: int = MAX_INTEGER) -> int:
    try:
        integer = operator.index(number) if isinstance(number, SupportsIndex) else None
    except TypeError:  # a tensor of floating-point numbers
        integer = None

    if integer is None:
        raise ArgumentError(f"{name} takes integers, not {number!r}")
    if integer < smallest or isinstance(number, bool):
        raise ArgumentError(f"{name} takes integers of at least {smallest}, not {number!r}")
    if integer > largest:
        raise ArgumentError(f"{name} takes integers of at most {largest}, not {number!r}")
    return integer
