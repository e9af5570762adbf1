"""Apply edits: tap listeners that replace masks, scores and outputs at the edited sites.

``EditListener`` applies a list of edits to a forward pass. The listeners with ``PerRow`` apply many edits in one batch:
every batch row holds the same text under a different edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention.grid import Grid
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.lens.capture.recorder import RECORDED, Recorder
from jumok.lens.sites import Sites, normalize_index
from jumok.tap import Listener

from .edit_base import Edit, TapCall, as_tuple

Tapped = Any  # queries, a mask or None, a score, an output, ... by the tap
RowIndices = Int[Tensor, " row"]


class EditListener(Listener):
    """Applies a list of edits to a model, in their order."""

    def __init__(self, edits: Sequence[Edit], sites: Sites, model: nn.Module) -> None:
        self.edits_by_tap: dict[str, list[Edit]] = {}  # by the full name of the tap ("blocks.3.attention.mask")
        for edit in edits:
            # a decoder's block has two attentions, but one MLP and one residual stream: each edit applies once
            for tap in dict.fromkeys(edit.find_taps(sites, model)):
                self.edits_by_tap.setdefault(tap, []).append(edit)
        # a mask or a score does not say how many heads there are, but the queries do
        self._query_taps = {f"{tap.rpartition('.')[0]}.query" for tap in self.edits_by_tap}
        self._head_counts: dict[str, int] = {}
        self._applied: set[str] = set()
        self._rows_so_far: dict[str, int] = {}  # decoding calls a tap several times, with new rows each time
        # the masks of all attentions, where an edit needs them
        self._masks = Recorder()
        self._needs_masks = any(edit.needs_masks for edit in edits)

    def accepts(self, site: str) -> bool:
        return site in self.edits_by_tap or site in self._query_taps or self._records_mask(site)

    def requests(self, site: str) -> bool:
        return False

    def _records_mask(self, site: str) -> bool:
        return self._needs_masks and site.rpartition(".")[2] in RECORDED and not site.endswith(".logsumexp")

    def __call__(self, site: str, value: Tapped) -> Tapped:
        if site in self._query_taps:
            self._head_counts[site.rpartition(".")[0]] = value.shape[1]
        if site in self.edits_by_tap:
            value = self._edit(site, value)
        if self._records_mask(site):
            # of queries and keys, only the number is needed
            self._masks(site, value[..., :0] if site.endswith((".query", ".key")) else value)
        return value

    def _edit(self, site: str, tapped: Tapped) -> Tapped:
        self._applied.add(site)
        first_row = self._rows_so_far.get(site, 0)
        if isinstance(tapped, Tensor):
            self._rows_so_far[site] = first_row + tapped.shape[-2]
        for edit in self.edits_by_tap[site]:
            heads = as_tuple(edit.head)
            if heads is not None:
                attention = site.rpartition(".")[0]
                count = tapped.shape[1] if isinstance(tapped, Tensor) else self._head_counts[attention]
                heads = tuple(sorted({normalize_index(head, count, attention, "heads") for head in heads}))
            tapped = edit.apply(tapped, TapCall(site, heads, first_row, self._masks.attentions))
        return tapped

    def check_applied(self) -> None:
        """Raise an ArgumentError if an edit changed nothing because the model never reached its tap."""
        missed = sorted(set(self.edits_by_tap) - self._applied)
        if missed:
            edit = self.edits_by_tap[missed[0]][0]
            raise ArgumentError(f"the model never reached {missed[0]}, so {edit} changed nothing; choose another layer")
        for tap, edits in self.edits_by_tap.items():
            for edit in edits:
                edit.check_rows(tap, self._rows_so_far.get(tap, 0))


class EditPerRow(Listener):
    """Base class of listeners that change the value of one tap, differently in each batch row."""

    def __init__(self, tap: str) -> None:
        self._tap = tap

    def accepts(self, site: str) -> bool:
        return site == self._tap


class ReplaceHeadPerRow(EditPerRow):
    """In batch row r, replaces the output of head ``heads[r]`` of one attention by ``replacements[r]``.

    An attention over image windows has several parts (windows) per image.
    """

    def __init__(self, site: str, heads: RowIndices, replacements: Float[Tensor, "row part query width"]) -> None:
        super().__init__(f"{site}.output")
        self.heads, self.replacements = heads, replacements
        self._rows_so_far = 0  # a recurrent decoder calls its attention once for each step

    def __call__(self, site: str, value: Tensor) -> Tensor:
        # the windows of one image are adjacent in the batch
        texts = value.unflatten(0, (len(self.heads), -1)).clone()
        end = self._rows_so_far + value.shape[2]
        rows = torch.arange(len(texts), device=value.device)
        replacements = self.replacements[:, :, self._rows_so_far : end].to(value)
        texts[rows, :, self.heads.to(value.device)] = replacements
        self._rows_so_far = end
        return texts.flatten(0, 1)


class ReplacePositionPerRow(EditPerRow):
    """In batch row r, replaces the value of a tap at ``positions[r]``, a residual stream or an MLP's output, by that of
    a source."""

    def __init__(self, tap: str, positions: RowIndices, source: Float[Tensor, "1 position width"]) -> None:
        super().__init__(tap)
        self.positions, self.source = positions, source

    def __call__(self, site: str, value: Tensor) -> Tensor:
        patched = value.clone()
        positions = self.positions.to(value.device)
        patched[torch.arange(len(positions), device=value.device), positions] = self.source[0, positions].to(value)
        return patched


class KnockOutEdgePerRow(EditPerRow):
    """In batch row r, forbids one head of one attention to attend from one query to one key."""

    def __init__(self, site: str, heads: RowIndices, queries: RowIndices, keys: RowIndices) -> None:
        super().__init__(f"{site}.mask")
        self.mask = ForbidOneEdge(heads, queries, keys)

    def __call__(self, site: str, value: Mask | None) -> Mask:
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

    def __repr__(self) -> str:
        return f"all_but_one_edge({len(self.heads)} rows)"
