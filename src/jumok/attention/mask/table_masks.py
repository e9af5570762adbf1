"""Masks that read a table: lengths, document ids, or a boolean tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid, read_cells
from jumok.axes import Allowed
from jumok.errors import ArgumentError, ShapeError

from .base import BlockClasses, Mask, check_integer, classify, classify_equality, mask_function

DocumentIds = Sequence[int] | Sequence[Sequence[int]] | Tensor  # [position] or [batch, position]


class _TableMask(Mask):
    """A mask that holds tensors: equal if the tensors are equal, and therefore not hashable."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, table.name) for table in dataclasses.fields(self))  # type: ignore[arg-type]

    def make_traceable(self, keys: int) -> Mask:
        return type(self)(*(table.detach() for table in self.tables))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            torch.equal(table, other_table) for table, other_table in zip(self.tables, other.tables, strict=True)
        )


def _find_batch_indices(table: Tensor, grid: Grid) -> Tensor:
    """Return the row of a [batch or 1, ...] table for each batch row."""
    return grid.batch if table.shape[0] > 1 else torch.zeros_like(grid.batch)


@dataclass(frozen=True, repr=False)
class PaddingLengths(Mask):
    """key < length of the batch row: forbids the keys that are padding on the right."""

    lengths: tuple[int, ...]

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key < self._select_row_lengths(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        lengths = self._select_row_lengths(blocks.grid)
        return classify(blocks.key_low < lengths, blocks.key_high < lengths)

    def _select_row_lengths(self, grid: Grid) -> Tensor:
        lengths = torch.tensor(self.lengths, device=grid.key.device)
        return lengths[_find_batch_indices(lengths, grid)]

    def allows_all(self, grid: Grid) -> bool:
        return grid.contiguous and grid.max_position("key") < min(self.lengths)

    def make_traceable(self, keys: int) -> Mask:
        return PaddingTable(torch.arange(keys) < torch.tensor(self.lengths)[:, None])

    @property
    def table_sizes(self) -> dict[str, int]:
        return {"batch": len(self.lengths)}

    @property
    def drawing_size(self) -> int:
        return max(self.lengths) + 2

    def __repr__(self) -> str:
        return f"padding({list(self.lengths)})"


@dataclass(frozen=True, repr=False, eq=False)
class PaddingTable(_TableMask):
    """table[batch, key], True = real token; the padding may be anywhere. Forbids keys only."""

    table: Bool[Tensor, "batch key"]

    def evaluate(self, grid: Grid) -> Allowed:
        return self.table.to(grid.key.device)[_find_batch_indices(self.table, grid), grid.key]

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        batch = _find_batch_indices(self.table, blocks.grid).view(-1, 1, 1)
        real = self.table.to(blocks.keys.device)[batch, blocks.keys]
        return classify(real.any(-1), real.all(-1))[:, None, None, :]

    @property
    def table_sizes(self) -> dict[str, int]:
        return {"batch": self.table.shape[0], "key": self.table.shape[1]}

    def __repr__(self) -> str:
        return f"padding(bool{list(self.table.shape)})"


@mask_function("padding([5, 3])")
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

    checked = tuple(check_integer("padding", length, 0) for length in lengths)
    if not checked:
        raise ArgumentError("padding needs the length of at least one row")
    return PaddingLengths(checked)


@dataclass(frozen=True, repr=False, eq=False)
class Documents(_TableMask):
    """Same id: several documents packed into one row do not attend to each other."""

    ids: Tensor  # of the queries, [batch or 1, position]
    key_ids: Tensor  # the same tensor, unless queries and keys belong to two sequences

    def evaluate(self, grid: Grid) -> Allowed:
        device = grid.key.device
        query_ids = self.ids.to(device)[_find_batch_indices(self.ids, grid), grid.query]
        key_ids = self.key_ids.to(device)[_find_batch_indices(self.key_ids, grid), grid.key]
        return query_ids == key_ids

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        device = blocks.keys.device
        query_batch = _find_batch_indices(self.ids, blocks.grid).view(-1, 1, 1)
        key_batch = _find_batch_indices(self.key_ids, blocks.grid).view(-1, 1, 1)
        query_ids = self.ids.to(device)[query_batch, blocks.queries][:, None, :, None]
        key_ids = self.key_ids.to(device)[key_batch, blocks.keys][:, None, None, :]
        return classify_equality(query_ids.amin(-1), query_ids.amax(-1), key_ids.amin(-1), key_ids.amax(-1))

    @property
    def table_sizes(self) -> dict[str, int]:
        batch = max(self.ids.shape[0], self.key_ids.shape[0])
        return {"batch": batch, "query": self.ids.shape[1], "key": self.key_ids.shape[1]}

    def __repr__(self) -> str:
        is_short = self.ids.numel() <= 16 and self.key_ids is self.ids
        return f"documents({self.ids.tolist() if is_short else f'int{list(self.ids.shape)}'})"


@mask_function("documents([0, 0, 1])")
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


@dataclass(frozen=True, repr=False, eq=False)
class Given(_TableMask):
    """table[batch or 1, head or 1, query position, key position], True = may attend."""

    table: Bool[Tensor, "batch head query key"]

    def evaluate(self, grid: Grid) -> Allowed:
        return read_cells(self.table, grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        table = self.table.to(blocks.keys.device)
        batch = _find_batch_indices(table, blocks.grid).view(-1, 1, 1, 1, 1, 1)
        head = blocks.grid.head if table.shape[1] > 1 else torch.zeros_like(blocks.grid.head)
        queries = blocks.queries[:, None, :, :, None, None]
        keys = blocks.keys[:, None, None, None, :, :]
        cells = table[batch, head[..., None, None], queries, keys]
        return classify(cells.any(-1).any(3), cells.all(-1).all(3))

    @property
    def table_sizes(self) -> dict[str, int]:
        return dict(zip(("batch", "head", "query", "key"), self.table.shape, strict=True))

    def __repr__(self) -> str:
        return f"given(bool{list(self.table.shape)})"


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
