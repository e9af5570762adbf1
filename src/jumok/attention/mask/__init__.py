"""Masks: who may attend to whom. Boolean, True = may attend; values that compose with ``&``, ``|`` and ``~``.

A mask is a predicate on (batch, head, query position, key position). It is never a tensor until a backend asks
for a tile of it, and because it reads *positions*, a decoding step with a cache needs no other mask.

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

causal: Mask = Causal()


def window(n: int) -> Mask:
    """Keys closer than ``n``: with ``causal`` that is ``n`` keys, the query's own included; alone 2n-1."""
    return Window(_whole("window", n, 1))


def prefix(n: int) -> Mask:
    """The first ``n`` keys."""
    return Prefix(_whole("prefix", n, 0))


def global_at(positions: int | Iterable[int]) -> Mask:
    """Query or key stands at one of these positions."""
    positions = positions if isinstance(positions, Iterable) else (positions,)
    return GlobalAt(tuple(sorted({_whole("global_at", position, 0) for position in positions})))


def random_keys(n: int, seed: int, length: int) -> Mask:
    """``n`` keys of the first ``length``, drawn for each query; the same for all heads."""
    return RandomKeys(
        _whole("random_keys", n, 0),
        _whole("the seed of random_keys", seed, 0, 2**128),
        _whole("random_keys", length, 1),
    )


def blocks(size: int | Sequence[int], shift: int | Sequence[int] = 0, grid: Sequence[int] | None = None) -> Mask:
    """Same block: ``(position - shift) // size`` is equal, without wrapping around. With ``grid=(rows, columns)``
    positions are read row by row and both axes must agree: ``blocks((7, 7), grid=(56, 56), shift=(3, 3))``."""
    if grid is None:
        if isinstance(size, Sequence) or isinstance(shift, Sequence):
            raise ArgumentError("blocks with two sizes needs grid=(rows, columns)")
        return BlocksOf((_whole("blocks", size, 1),), (_whole("the shift of blocks", shift, 0),), ())
    sizes = size if isinstance(size, Sequence) else (size, size)
    shifts = shift if isinstance(shift, Sequence) else (shift, shift)
    if len(sizes) != 2 or len(shifts) != 2 or len(grid) != 2:
        raise ArgumentError(f"blocks on a grid takes pairs; got size {sizes}, shift {shifts}, grid {grid}")
    return BlocksOf(
        tuple(_whole("blocks", one, 1) for one in sizes),
        tuple(_whole("the shift of blocks", one, 0) for one in shifts),
        tuple(_whole("the grid of blocks", one, 1) for one in grid),
    )


def edge(
    query: int | Iterable[int] | None = None,
    key: int | Iterable[int] | None = None,
    head: int | Iterable[int] | None = None,
    batch: int | Iterable[int] | None = None,
) -> Mask:
    """That cell; several numbers make a rectangle, None means all."""

    def several(name: str, given: int | Iterable[int] | None) -> tuple[int, ...] | None:
        if given is None:
            return None
        numbers = given if isinstance(given, Iterable) else (given,)
        found = tuple(sorted({_whole(f"the {name} of edge", number, 0) for number in numbers}))
        if not found:
            raise ArgumentError(f"edge got an empty list for {name}; leave it out to mean all")
        return found

    return Edge(several("query", query), several("key", key), several("head", head), several("batch", batch))


def padding(lengths: int | Sequence[int] | Tensor) -> Mask:
    """Forbids the keys that are padding: from lengths (padding on the right), or from bool[batch, key], True = real."""
    if isinstance(lengths, int):
        raise ArgumentError(f"padding takes a length for each row of the batch: padding([{lengths}])")
    if isinstance(lengths, Tensor) and lengths.dtype == torch.bool:
        if lengths.dim() != 2:
            raise ShapeError(f"padding takes bool[batch, key] or lengths[batch], not bool{list(lengths.shape)}")
        return PaddingTable(lengths)
    if isinstance(lengths, Tensor):
        if lengths.dim() != 1 or lengths.is_floating_point():
            raise ShapeError(
                f"padding takes bool[batch, key] or whole lengths[batch], not {lengths.dtype}{list(lengths.shape)}"
            )
        lengths = lengths.tolist()
    whole = tuple(_whole("padding", length, 0) for length in lengths)
    if not whole:
        raise ArgumentError("padding needs the length of at least one row")
    return PaddingLengths(whole)


Ids = Sequence[int] | Sequence[Sequence[int]] | Tensor  # [position] or [batch, position]


def documents(ids: Ids, key_ids: Ids | None = None) -> Mask:
    """Query and key have the same id: ids[position] or ids[batch, position]."""

    def table(given: Ids) -> Tensor:
        try:
            tensor = given if isinstance(given, Tensor) else torch.tensor(given)
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"documents takes whole ids, as many in every row, not {given!r}") from None
        if tensor.dim() not in (1, 2) or tensor.is_floating_point():
            raise ShapeError(
                f"documents takes whole ids[position] or ids[batch, position], not {tensor.dtype}{list(tensor.shape)}"
            )
        return tensor if tensor.dim() == 2 else tensor[None]

    of_query = table(ids)
    return Documents(of_query, of_query if key_ids is None else table(key_ids))


def given(tensor: Tensor) -> Mask:
    """A boolean tensor, True = may attend: [query, key] or [batch or 1, head or 1, query, key]."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ArgumentError(
            f"mask.given takes a boolean tensor, True = may attend, not {kind}; numbers to add are a bias"
        )
    if tensor.dim() not in (2, 4):
        raise ShapeError(f"mask.given takes [query, key] or [batch, head, query, key], not {list(tensor.shape)}")
    return Given(tensor if tensor.dim() == 4 else tensor[None, None])


def parse(text: str) -> Mask:
    """The mask that this text means: ``parse("causal & (window(4) | global_at([0]))")``. Runs nothing."""
    from .notation import parse as parse_text

    return parse_text(text)


LARGEST = 2**62  # positions are 64-bit numbers, and are added and multiplied


def _whole(name: str, number: object, least: int, most: int = LARGEST) -> int:
    try:
        whole = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"{name} takes whole numbers, not {number!r}") from None
    if whole < least or isinstance(number, bool):
        raise ArgumentError(f"{name} takes whole numbers of at least {least}, not {number!r}")
    if whole > most:
        raise ArgumentError(f"{name} takes whole numbers of at most {most}, not {number!r}")
    return whole
