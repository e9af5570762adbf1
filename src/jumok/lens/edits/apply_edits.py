"""Apply edits: a tap listener that replaces masks, scores and outputs at the edited sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture
from jumok.lens.sites import normalise_index
from jumok.tap import Listener

from .edit_types import Ablate, Edit, KnockOut, Patch, Remask, Scale, as_tuple

Tapped = Mask | Score | Tensor | None
HeadIndex = slice | list[int]  # selects heads of a tensor [batch, head, query, width]


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
            edits: The edits to apply.
            find_sites: Returns the attention sites of an edit.
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

    def accepts(self, site: str) -> bool:
        """Return whether there are edits for this tap, or for the mask or score of the same attention.

        Args:
            site: The full site name.
        """
        return site in self.edits_by_tap or site in self._sites_by_query_tap

    def __call__(self, site: str, value: Tapped) -> Tapped:
        """Return the edited value.

        Args:
            site: The full site name.
            value: Queries, a mask or None, a score, or the output of heads or of a block.
        """
        if site in self._sites_by_query_tap:
            assert isinstance(value, Tensor)
            self._head_counts[self._sites_by_query_tap[site]] = value.shape[1]
            return value
        self._applied.add(site)
        edits = self.edits_by_tap[site]
        attention = site.rpartition(".")[0]
        if isinstance(value, Tensor):
            first_row = self._rows_so_far.get(site, 0)
            self._rows_so_far[site] = first_row + value.shape[-2]
            for edit in edits:
                if site.endswith(".output"):
                    edit = _count_heads_from_start(edit, value.shape[1], attention)
                value = _edit_output(edit, value, site, first_row)
            return value
        for edit in edits:
            edit = _count_heads_from_start(edit, self._head_counts[attention], attention)
            value = _scale_score(edit, value) if isinstance(value, Score) else _edit_mask(edit, value)
        return value

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
        """Raise an ArgumentError if a Patch names a position that the model did not process."""
        positions = as_tuple(edit.positions) if isinstance(edit, Patch) else None
        count = self._rows_so_far.get(tap, 0)
        if positions is not None and positions[-1] >= count:
            raise ArgumentError(f"{tap} has {count} positions, counted from 0; {positions[-1]} is not one of them")


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
    """Return the edit with negative heads replaced by those that they mean.

    Raises:
        ArgumentError: If the attention has no such head.
    """
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


def _edit_output(edit: Edit, output: Tensor, site: str, first_row: int) -> Tensor:
    """Return the output after an Ablate or Patch.

    Sites that end in "output" hold the outputs of heads ``[batch, head, query, width]``; those of blocks, MLPs and
    residual streams hold ``[batch, query, width]``.
    """
    assert isinstance(edit, Ablate | Patch)
    if not site.endswith(".output"):
        if isinstance(edit, Ablate):
            return ablate_output(edit, output, site, None)
        return _patch_rows(edit, output, output, _get_activation(edit.source, site), first_row)

    indices = as_tuple(edit.head)
    heads: HeadIndex = slice(None) if indices is None else list(indices)
    selected = output[:, heads]
    if isinstance(edit, Ablate):
        replacement = ablate_output(edit, selected, site, heads)
    else:
        source = _get_activation(edit.source, site)
        replacement = _patch_rows(edit, output, selected, source[:, heads], first_row)
    edited = output.clone()
    edited[:, heads] = replacement
    return edited


def _patch_rows(edit: Patch, output: Tensor, selected: Tensor, source: Tensor, first_row: int) -> Tensor:
    """Return ``selected`` with the rows of the patched positions taken from ``source``."""
    rows = range(first_row, first_row + output.shape[-2])
    requested = as_tuple(edit.positions)
    positions = rows if requested is None else [position for position in requested if position in rows]
    if positions and max(positions) >= source.shape[-2]:
        raise ArgumentError(
            f"the source capture has {source.shape[-2]} positions, counted from 0; {max(positions)} is not one of them"
        )
    if source.shape[0] not in (1, selected.shape[0]) or source.shape[-1] != selected.shape[-1]:
        raise ArgumentError(
            f"the source capture has {source.shape[0]} texts with vectors of width {source.shape[-1]}, but this "
            f"forward pass has {selected.shape[0]} with width {selected.shape[-1]}; capture one text, or as many"
        )
    target_rows = torch.tensor([position - first_row for position in positions], dtype=torch.long)
    source_rows = torch.tensor(list(positions), dtype=torch.long)
    target_rows, source_rows = target_rows.to(selected.device), source_rows.to(source.device)
    replacement = source.index_select(-2, source_rows).to(selected)
    replacement = replacement.expand_as(selected.index_select(-2, target_rows))
    return selected.index_copy(-2, target_rows, replacement)


def ablate_output(edit: Ablate, output: Tensor, site: str, heads: HeadIndex | None) -> Tensor:
    """Return the ablated output.

    Args:
        edit: How to ablate.
        output: The output of the selected heads ``[batch, head, query, width]``, or of the block or MLP
            ``[batch, query, width]``.
        site: The full site name, for reading ``edit.source``.
        heads: Which heads of the source ``output`` holds; None for a block or an MLP.
    """
    if edit.by == "zero":
        return torch.zeros_like(output)
    source = output
    if edit.source is not None:
        activation = _get_activation(edit.source, site)
        source = (activation if heads is None else activation[:, heads]).to(output)
    elif output.shape[0] == output.shape[-2] == 1:
        # the mean of a single position is itself, and there is nothing else to resample: the edit would do nothing
        raise ArgumentError(
            f"{site.rpartition('.')[0]} processes one position at a time, but {edit.by!r} needs several; pass "
            'source=lens.run(..., keep=("output",))'
        )
    if edit.by == "mean":
        return source.mean((0, source.dim() - 2), keepdim=True).expand_as(output)

    generator = torch.Generator().manual_seed(edit.seed)
    avoid_self = edit.source is None
    rows = _sample_indices(source.shape[-2], output.shape[-2], avoid_self and source.shape[-2] > 1, generator)
    texts = _sample_indices(source.shape[0], output.shape[0], avoid_self and source.shape[-2] == 1, generator)
    return source.index_select(0, texts.to(source.device)).index_select(-2, rows.to(source.device))


def _sample_indices(available: int, count: int, avoid_self: bool, generator: torch.Generator) -> Tensor:
    """Draw ``count`` indices below ``available``; with ``avoid_self`` the i-th index is never i."""
    if avoid_self:
        return (torch.arange(count) + torch.randint(1, available, (count,), generator=generator)) % available
    return torch.randint(available, (count,), generator=generator)


def _get_activation(source: Capture | None, site: str) -> Tensor:
    """Return the tensor that the source capture recorded at a site."""
    activation = None if source is None else source.activations.get(site)
    if activation is None:
        word = site.rpartition(".")[2]
        raise ArgumentError(f"the source capture did not record {site}; create it with lens.run(..., keep={word!r})")
    return activation


class TemperatureScore(Score):
    """A wrapper that divides the scores of some heads by a temperature."""

    def __init__(self, inner: Score, scaled_heads: tuple[int, ...] | None, temperature: int | float) -> None:
        """Create a score.

        Args:
            inner: The score to divide.
            scaled_heads: The heads whose scores are divided, sorted; None means all.
            temperature: The divisor, above 0.
        """
        self.inner, self.scaled_heads, self.temperature = inner, scaled_heads, temperature
        self.sink = inner.sink

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise an error if the widths do not fit the inner score.

        Args:
            query: Queries ``[batch, head, query, head_width]``.
            key: Keys ``[batch, group, key, head_width]``.
        """
        self.inner.check(query, key)

    @property
    def heads(self) -> int:
        """More than 1 if heads differ, so that the score must be evaluated on all heads at once."""
        return 1 if self.scaled_heads is None else 2

    def evaluate(self, query: Tensor, key: Tensor) -> Tensor:
        """Compute the scores ``[batch, head, query, key]``.

        Args:
            query: Queries ``[batch, head, query, head_width]``.
            key: Keys ``[batch, group, key, head_width]``.
        """
        return self.inner.evaluate(query, key) * self._build_inverse_temperatures(query)

    def fold_into_query(self, query: Tensor) -> tuple[Tensor, float] | None:
        """Return the scaled queries and the scale if the inner score is a dot product, else None.

        Args:
            query: Queries ``[batch, head, query, head_width]``.
        """
        product = self.inner.fold_into_query(query)
        return None if product is None else (product[0] * self._build_inverse_temperatures(query), product[1])

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        """Return the parameters of the inner score."""
        return self.inner.gradient_tensors

    def _build_inverse_temperatures(self, query: Tensor) -> Tensor:
        """Return the factor of each head, ``[head, 1, 1]``."""
        factors = query.new_ones(query.shape[1], 1, 1)
        factors[slice(None) if self.scaled_heads is None else list(self.scaled_heads)] = 1 / self.temperature
        return factors
