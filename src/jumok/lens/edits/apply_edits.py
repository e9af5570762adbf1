"""Apply edits: a tap listener that replaces masks, scores and outputs at the edited sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.lens.capture.recorder import RECORDED, Recorder
from jumok.lens.sites import normalise_index
from jumok.tap import Listener

from .ablation import ablate_output, get_activation
from .edit_types import Ablate, Edit, KnockOut, Patch, Remask, Scale, as_tuple

Tapped = Any  # queries, a mask or None, a score, an output, ... by the site


class EditListener(Listener):
    """Applies a list of edits, in their order.

    Attributes:
        edits_by_tap: The edits of each full site name ("blocks.3.attention.mask").
    """

    def __init__(
        self,
        edits: Sequence[Edit],
        find_sites: Callable[[Edit], frozenset[str]],
        find_mlp: Callable[[str], str],
        find_block: Callable[[str], str],
    ) -> None:
        """Create a listener.

        Args:
            find_mlp: Returns the name of the block whose MLP belongs to an attention site.
            find_block: Returns the name of the block that contains an attention site.
        """
        self.edits_by_tap: dict[str, list[Edit]] = {}
        for edit in edits:
            # a decoder's block has two attentions, but one MLP and one residual stream: each edit applies once
            taps = dict.fromkeys(_get_tap_name(edit, site, find_mlp, find_block) for site in find_sites(edit))
            for tap in taps:
                self.edits_by_tap.setdefault(tap, []).append(edit)
        self._sites_by_query_tap = {
            f"{tap.removesuffix(suffix)}.query": tap.removesuffix(suffix)
            for suffix in (".mask", ".score")
            for tap in self.edits_by_tap
            if tap.endswith(suffix)
        }
        self._head_counts: dict[str, int] = {}
        self._applied: set[str] = set()
        self._rows_so_far: dict[str, int] = {}  # decoding calls a tap several times, with new rows each time
        # the masks of all attentions, where a mean or a sample of this forward pass needs them
        self._masks = Recorder()
        ablations = [edit for edit in edits if isinstance(edit, Ablate)]
        self._needs_masks = any(edit.by != "zero" and edit.source is None for edit in ablations)

    def accepts(self, site: str) -> bool:
        return site in self.edits_by_tap or site in self._sites_by_query_tap or self._records_mask(site)

    def requests(self, site: str) -> bool:
        return False

    def _records_mask(self, site: str) -> bool:
        return self._needs_masks and site.rpartition(".")[2] in RECORDED and not site.endswith(".logsumexp")

    def __call__(self, site: str, value: Tapped) -> Tapped:
        if site in self._sites_by_query_tap:
            assert isinstance(value, Tensor)
            self._head_counts[self._sites_by_query_tap[site]] = value.shape[1]
        if site in self.edits_by_tap:
            value = self._edit(site, value)
        if self._records_mask(site):
            # of queries and keys, only the number is needed
            self._masks(site, value[..., :0] if site.endswith((".query", ".key")) else value)
        return value

    def _edit(self, site: str, tapped: Tapped) -> Tapped:
        """Apply the edits of a tap."""
        self._applied.add(site)
        edits = self.edits_by_tap[site]
        attention = site.rpartition(".")[0]
        if isinstance(tapped, Tensor):
            first_row = self._rows_so_far.get(site, 0)
            self._rows_so_far[site] = first_row + tapped.shape[-2]
            for edit in edits:
                if site.endswith(".output"):
                    edit = _count_heads_from_start(edit, tapped.shape[1], attention)
                tapped = self._edit_output(edit, tapped, site, first_row)
            return tapped
        for edit in edits:
            edit = _count_heads_from_start(edit, self._head_counts[attention], attention)
            tapped = _scale_score(edit, tapped) if isinstance(tapped, Score) else _edit_mask(edit, tapped)
        return tapped

    def _edit_output(self, edit: Edit, output: Tensor, site: str, first_row: int) -> Tensor:
        """Return the output after an Ablate or Patch.

        Sites that end in "output" hold the outputs of heads ``[batch, head, query, width]``; those of blocks, MLPs and
        residual streams hold ``[batch, query, width]``.
        """
        assert isinstance(edit, Ablate | Patch)
        if not site.endswith(".output"):
            return self._replace_output(edit, output, site, None, first_row)
        heads = list(range(output.shape[1])) if edit.head is None else list(as_tuple(edit.head) or ())
        edited = output.clone()
        edited[:, heads] = self._replace_output(edit, output[:, heads], site, heads, first_row)
        return edited

    def _replace_output(
        self, edit: Ablate | Patch, output: Tensor, site: str, heads: list[int] | None, first_row: int
    ) -> Tensor:
        """Return what replaces the output of some heads, of a block, an MLP or a residual stream."""
        if isinstance(edit, Ablate):
            return ablate_output(edit, output, site, heads, self._masks.attentions, first_row)
        source = get_activation(edit.source, site, output)
        return _patch_rows(edit, output, source if heads is None else source[:, heads], first_row)

    def check_applied(self) -> None:
        """Raise an ArgumentError if an edit changed nothing because the model never reached its tap."""
        missed = sorted(set(self.edits_by_tap) - self._applied)
        if missed:
            edit = self.edits_by_tap[missed[0]][0]
            raise ArgumentError(f"the model never reached {missed[0]}, so {edit} changed nothing; choose another layer")
        for tap, edits in self.edits_by_tap.items():
            for edit in edits:
                self._check_positions(edit, tap)

    def _check_positions(self, edit: Edit, tap: str) -> None:
        """Raise an ArgumentError if the positions of a Patch are not those of the text."""
        if not isinstance(edit, Patch) or edit.source is None:
            return
        positions, count = as_tuple(edit.positions), self._rows_so_far.get(tap, 0)
        if positions is not None and positions[-1] >= count:
            raise ArgumentError(f"{tap} has {count} positions, counted from 0; {positions[-1]} is not one of them")
        available = edit.source.activations[tap].shape[-2]
        if positions is None and available != count:
            raise ArgumentError(
                f"the source capture has {available} positions at {tap}, but this text has {count}, so they do not "
                "belong together; patch a text of the same length, or name the positions that are equal in both: "
                "positions=..."
            )


def _get_tap_name(edit: Edit, site: str, find_mlp: Callable[[str], str], find_block: Callable[[str], str]) -> str:
    """Return the full name of the tap that an edit of an attention site changes."""
    if isinstance(edit, Remask | KnockOut):
        return f"{site}.mask"
    if isinstance(edit, Scale):
        return f"{site}.score"
    if isinstance(edit, Ablate | Patch) and edit.part == "mlp":
        return f"{find_mlp(site)}.feedforward_output"
    if isinstance(edit, Patch) and edit.part == "residual":
        return f"{find_block(site)}.input"
    if isinstance(edit, Ablate) and edit.head is None:
        return f"{site}.block_output"
    return f"{site}.output"


def _count_heads_from_start(edit: Edit, count: int, attention: str) -> Edit:
    """Return the edit with negative heads replaced by those that they mean."""
    heads = as_tuple(getattr(edit, "head", None))
    if heads is None:
        return edit
    return replace(edit, head=[normalise_index(head, count, attention, "heads") for head in heads])  # type: ignore[call-arg]


def _edit_mask(edit: Edit, mask: Mask | None) -> Mask | None:
    """Return the mask after a KnockOut or Remask."""
    if isinstance(edit, KnockOut):
        return edit.mask if mask is None else mask & edit.mask
    assert isinstance(edit, Remask)
    if edit.head is None:
        return edit.mask
    edited_heads = masks.edge(head=as_tuple(edit.head))
    before = masks.edge() if mask is None else mask
    after = masks.edge() if edit.mask is None else edit.mask
    return (before & ~edited_heads) | (after & edited_heads)


def _scale_score(edit: Edit, score: Score) -> Score:
    """Return the score that a Scale divides by its temperature."""
    assert isinstance(edit, Scale)
    return TemperatureScore(score, as_tuple(edit.head), edit.temperature)


def _patch_rows(edit: Patch, output: Tensor, source: Tensor, first_row: int) -> Tensor:
    """Return the output with the rows of the patched positions taken from ``source``."""
    rows = range(first_row, first_row + output.shape[-2])
    requested = as_tuple(edit.positions)
    positions = rows if requested is None else [position for position in requested if position in rows]
    if positions and max(positions) >= source.shape[-2]:
        raise ArgumentError(
            f"the source capture has {source.shape[-2]} positions, counted from 0; {max(positions)} is not one of them"
        )
    if source.shape[0] not in (1, output.shape[0]):
        raise ArgumentError(
            f"the source capture has {source.shape[0]} texts, but this forward pass has {output.shape[0]}; capture one "
            "text, or as many"
        )
    source_rows = torch.tensor(list(positions), dtype=torch.long, device=output.device)
    target_rows = source_rows - first_row
    replacement = source.index_select(-2, source_rows).expand_as(output.index_select(-2, target_rows))
    return output.index_copy(-2, target_rows, replacement)


class TemperatureScore(Score):
    """A wrapper that divides the scores of some heads by a temperature."""

    def __init__(self, inner: Score, scaled_heads: tuple[int, ...] | None, temperature: int | float) -> None:
        """Create a score.

        Args:
            scaled_heads: The heads whose scores are divided, sorted; None means all.
            temperature: The divisor, above 0.
        """
        self.inner, self.scaled_heads, self.temperature = inner, scaled_heads, temperature
        self.sink = inner.sink

    def check(self, query: Tensor, key: Tensor) -> None:
        self.inner.check(query, key)

    @property
    def heads(self) -> int:
        """More than 1 if heads differ, so that the score must be evaluated on all heads at once."""
        return 1 if self.scaled_heads is None else 2

    def evaluate(self, query: Tensor, key: Tensor) -> Tensor:
        return self.inner.evaluate(query, key) * self._build_inverse_temperatures(query)

    def fold_into_query(self, query: Tensor) -> tuple[Tensor, float] | None:
        product = self.inner.fold_into_query(query)
        return None if product is None else (product[0] * self._build_inverse_temperatures(query), product[1])

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return self.inner.gradient_tensors

    def _build_inverse_temperatures(self, query: Tensor) -> Tensor:
        """Return the factor of each head, ``[head, 1, 1]``."""
        factors = query.new_ones(query.shape[1], 1, 1)
        factors[slice(None) if self.scaled_heads is None else list(self.scaled_heads)] = 1 / self.temperature
        return factors
