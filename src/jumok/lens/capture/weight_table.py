"""Attention weights that a model returned itself: they can be read, but not edited or computed tile by tile."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .captured_attention import AllowedTile, CapturedAttention, Tile


@dataclass
class WeightTable(CapturedAttention):
    """The weights of one attention, as a table.

    Attributes:
        table: The weights ``[batch, head, query, key]``.
    """

    table: Tensor = field(default_factory=lambda: torch.zeros(1, 1, 0, 0))

    @property
    def heads(self) -> int:
        return self.table.shape[1]

    @property
    def batch(self) -> int:
        return self.table.shape[0]

    @property
    def queries(self) -> int:
        return self.table.shape[2]

    @property
    def keys(self) -> int:
        return self.table.shape[3]

    @property
    def query_positions(self) -> list[int]:
        return list(range(self.queries))

    @property
    def key_positions(self) -> list[int]:
        return list(range(self.keys))

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def bytes(self) -> int:
        return self.table.untyped_storage().nbytes()

    def tile(self, row: int, head: int, queries: slice, keys: slice) -> Tile:
        return self.table[row, head, queries, keys].float()

    @property
    def needs_full_rows(self) -> bool:
        return False

    def bound_keys(self, queries: slice) -> tuple[int, int]:
        return 0, self.keys

    def evaluate_mask(self, row: int, head: int, queries: slice, keys: slice) -> AllowedTile:
        return self.table[row, head, queries, keys] > 0
