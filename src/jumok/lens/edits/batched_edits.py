"""Apply many edits in one batch: every batch row holds the same text under a different edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask import Mask
from jumok.attention.mask.base import PARTIAL
from jumok.tap import Listener

RowIndices = Int[Tensor, " row"]


class EditPerRow(Listener):
    """Base class of listeners that change the value of one tap, differently in each batch row."""

    def __init__(self, tap: str) -> None:
        self._tap = tap

    def accepts(self, site: str) -> bool:
        return site == self._tap

    def __call__(self, site: str, value: Any) -> Any:
        return self.edit(value)

    def edit(self, value: Any) -> Any:
        """Return the edited value."""
        raise NotImplementedError


class AblateHeadPerRow(EditPerRow):
    """In batch row r, replaces the output of head ``heads[r]`` of one attention by ``replacements[r]``.

    An attention over image windows has several parts (windows) per image.
    """

    def __init__(self, site: str, heads: RowIndices, replacements: Float[Tensor, "row part query width"]) -> None:
        super().__init__(f"{site}.output")
        self.heads, self.replacements = heads, replacements
        self._rows_so_far = 0  # a recurrent decoder calls its attention once for each step

    def edit(self, value: Tensor) -> Tensor:
        # the windows of one image are adjacent in the batch
        texts = value.unflatten(0, (len(self.heads), -1)).clone()
        end = self._rows_so_far + value.shape[2]
        rows = torch.arange(len(texts), device=value.device)
        replacements = self.replacements[:, :, self._rows_so_far : end].to(value)
        texts[rows, :, self.heads.to(value.device)] = replacements
        self._rows_so_far = end
        return texts.flatten(0, 1)


class PatchPositionPerRow(EditPerRow):
    """In batch row r, replaces the residual stream that enters one block at ``positions[r]`` by that of a source."""

    def __init__(self, block: str, positions: RowIndices, source: Float[Tensor, "1 position width"]) -> None:
        super().__init__(f"{block}.input")
        self.positions, self.source = positions, source

    def edit(self, value: Tensor) -> Tensor:
        patched = value.clone()
        positions = self.positions.to(value.device)
        patched[torch.arange(len(positions), device=value.device), positions] = self.source[0, positions].to(value)
        return patched


class KnockOutEdgePerRow(EditPerRow):
    """In batch row r, forbids one head of one attention to attend from one query to one key."""

    def __init__(self, site: str, heads: RowIndices, queries: RowIndices, keys: RowIndices) -> None:
        super().__init__(f"{site}.mask")
        self.mask = ForbidOneEdge(heads, queries, keys)

    def edit(self, value: Mask | None) -> Mask:
        return self.mask if value is None else value & self.mask


@dataclass(frozen=True, eq=False, repr=False)
class ForbidOneEdge(Mask):
    """A mask that forbids one cell in each batch row."""

    heads: RowIndices
    queries: RowIndices
    keys: RowIndices

    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        batch = grid.batch
        head, query, key = (indices.to(batch.device)[batch] for indices in (self.heads, self.queries, self.keys))
        return ~((grid.head == head) & (grid.query == query) & (grid.key == key))

    def classify_blocks(self, blocks: BlockGrid) -> Tensor:
        return torch.full((1, 1, 1, 1), PARTIAL, dtype=torch.int8, device=blocks.keys.device)

    def __repr__(self) -> str:
        return f"all_but_one_edge({len(self.heads)} rows)"
