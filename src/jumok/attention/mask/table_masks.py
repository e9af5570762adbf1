"""Masks that look something up: lengths, document ids, or a tensor that somebody computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.axes import Allowed

from .base import BlockClasses, Mask, classify, ranges_meet


@dataclass(frozen=True, repr=False)
class PaddingLengths(Mask):
    """key < length of the batch's own row: the padding on the right is nobody's to see. Forbids keys only."""

    lengths: tuple[int, ...]

    def evaluate(self, grid: Grid) -> Allowed:
        return grid.key < self._length(grid)

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        lengths = self._length(blocks.grid)
        return classify(blocks.key_low < lengths, blocks.key_high < lengths)

    def _length(self, grid: Grid) -> Tensor:
        lengths = torch.tensor(self.lengths, device=grid.key.device)
        return lengths[_row(lengths, grid)]

    def covers(self, grid: Grid) -> bool:
        return grid.contiguous and grid.highest("key") < min(self.lengths)

    def limits(self) -> dict[str, int]:
        return {"batch": len(self.lengths)}

    def extent(self) -> int:
        return max(self.lengths) + 2

    def __repr__(self) -> str:
        return f"padding({list(self.lengths)})"


class _Table(Mask):
    """A mask that holds tensors: compared by what is in them, and therefore not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def tables(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            torch.equal(one, two) for one, two in zip(self.tables(), other.tables(), strict=True)
        )


def _row(table: Tensor, grid: Grid) -> Tensor:
    """Which row of a [batch or 1, ...] table each batch entry reads."""
    return grid.batch if table.shape[0] > 1 else torch.zeros_like(grid.batch)


@dataclass(frozen=True, repr=False, eq=False)
class PaddingTable(_Table):
    """table[batch, key]: True = a real token. Padding on either side, or anywhere."""

    table: Bool[Tensor, "batch key"]

    def tables(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def evaluate(self, grid: Grid) -> Allowed:
        return self.table.to(grid.key.device)[_row(self.table, grid), grid.key]

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        real = self.table.to(blocks.keys.device)[_row(self.table, blocks.grid).view(-1, 1, 1), blocks.keys]
        return classify(real.any(-1), real.all(-1))[:, None, None, :]

    def limits(self) -> dict[str, int]:
        return {"batch": self.table.shape[0], "key": self.table.shape[1]}

    def extent(self) -> int:
        return self.table.shape[1]

    def __repr__(self) -> str:
        return f"padding(bool{list(self.table.shape)})"


@dataclass(frozen=True, repr=False, eq=False)
class Documents(_Table):
    """Same id: several texts packed in one row do not see each other."""

    ids: Tensor  # [batch or 1, position], read by queries
    key_ids: Tensor  # the same tensor, unless queries and keys are of two sequences

    def tables(self) -> tuple[Tensor, ...]:
        return (self.ids, self.key_ids)

    def evaluate(self, grid: Grid) -> Allowed:
        device = grid.key.device
        of_query = self.ids.to(device)[_row(self.ids, grid), grid.query]
        of_key = self.key_ids.to(device)[_row(self.key_ids, grid), grid.key]
        return of_query == of_key

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        device = blocks.keys.device
        query = self.ids.to(device)[_row(self.ids, blocks.grid).view(-1, 1, 1), blocks.queries]
        key = self.key_ids.to(device)[_row(self.key_ids, blocks.grid).view(-1, 1, 1), blocks.keys]
        query, key = query[:, None, :, None], key[:, None, None, :]
        return ranges_meet(query.amin(-1), query.amax(-1), key.amin(-1), key.amax(-1))

    def limits(self) -> dict[str, int]:
        batch = max(self.ids.shape[0], self.key_ids.shape[0])
        return {"batch": batch, "query": self.ids.shape[1], "key": self.key_ids.shape[1]}

    def extent(self) -> int:
        return self.ids.shape[1]

    def __repr__(self) -> str:
        few = self.ids.numel() <= 16 and self.key_ids is self.ids
        return f"documents({self.ids.tolist() if few else f'int{list(self.ids.shape)}'})"


@dataclass(frozen=True, repr=False, eq=False)
class Given(_Table):
    """table[batch or 1, head or 1, query position, key position], as somebody computed it."""

    table: Bool[Tensor, "batch head query key"]

    def tables(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def evaluate(self, grid: Grid) -> Allowed:
        table = self.table.to(grid.key.device)
        head = grid.head if table.shape[1] > 1 else torch.zeros_like(grid.head)
        return table[_row(table, grid), head, grid.query, grid.key]

    def classify_blocks(self, blocks: BlockGrid) -> BlockClasses:
        table = self.table.to(blocks.keys.device)
        batch = _row(table, blocks.grid).view(-1, 1, 1, 1, 1, 1)
        head = (blocks.grid.head if table.shape[1] > 1 else torch.zeros_like(blocks.grid.head)).view(1, -1, 1, 1, 1, 1)
        cells = table[batch, head, blocks.queries[:, None, :, :, None, None], blocks.keys[:, None, None, None, :, :]]
        return classify(cells.any(-1).any(3), cells.all(-1).all(3))

    def limits(self) -> dict[str, int]:
        return dict(zip(("batch", "head", "query", "key"), self.table.shape, strict=True))

    def extent(self) -> int:
        return max(self.table.shape[2:])

    def __repr__(self) -> str:
        return f"given(bool{list(self.table.shape)})"
