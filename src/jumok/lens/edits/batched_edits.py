"""Many edits in one batch: every row of it is the same text under an edit of its own."""

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

Numbers = Int[Tensor, " row"]


class AblateHeadPerRow(Listener):
    """A listener: in row r of the batch, head ``heads[r]`` of one attention gives ``instead[r]`` [query, width], as
    Ablate has it."""

    def __init__(self, site: str, heads: Numbers, instead: Float[Tensor, "row part query width"]) -> None:
        self.site, self.heads, self.instead = site, heads, instead
        self.begin = 0  # a recurrent decoder looks step by step

    def accepts(self, site: str) -> bool:
        return site == f"{self.site}.output"

    def __call__(self, site: str, value: Tensor) -> Tensor:
        # several parts a text (windows of a picture): those of one text stand together
        texts = value.unflatten(0, (len(self.heads), -1)).clone()
        end = self.begin + value.shape[2]
        rows = torch.arange(len(texts), device=value.device)
        texts[rows, :, self.heads.to(value.device)] = self.instead[:, :, self.begin : end].to(value)
        self.begin = end
        return texts.flatten(0, 1)


@dataclass(frozen=True)
class KnockOutEdgePerRow(Listener):
    """A listener: in row r of the batch, one head of one attention may not look from one query to one key, as KnockOut
    has it."""

    site: str
    heads: Numbers
    queries: Numbers
    keys: Numbers

    def accepts(self, site: str) -> bool:
        return site == f"{self.site}.mask"

    def __call__(self, site: str, value: Any) -> Any:
        rest = AllButOneEdge(self.heads, self.queries, self.keys)
        return rest if value is None else value & rest


@dataclass(frozen=True, eq=False, repr=False)
class AllButOneEdge(Mask):
    """Every cell but one of each batch row."""

    heads: Numbers
    queries: Numbers
    keys: Numbers

    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        batch = grid.batch
        at = [one.to(batch.device)[batch] for one in (self.heads, self.queries, self.keys)]
        return ~((grid.head == at[0]) & (grid.query == at[1]) & (grid.key == at[2]))

    def classify_blocks(self, blocks: BlockGrid) -> Tensor:
        return torch.full((1, 1, 1, 1), PARTIAL, dtype=torch.int8, device=blocks.keys.device)

    def __repr__(self) -> str:
        return f"uncut({len(self.heads)} rows)"
