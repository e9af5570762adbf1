"""Measure the effect of ablating each head, many heads in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.lens.edits.ablation import ablate_output
from jumok.lens.edits.batched_edits import AblateHeadPerRow
from jumok.lens.edits.edit_types import Ablate
from jumok.lens.sites import SOURCE

from .edit_runner import EditRunner
from .effect_table import Effect, Effects, rank_effects

Progress = Callable[[int, int], None]  # measured edits, total


def measure_heads(runner: EditRunner, sites: Sequence[str], ablation: Ablate, progress: Progress) -> Effects:
    """Measure the effect of every head of these attentions.

    Args:
        runner: The model with its text and metric.
    """
    rows: list[Effect] = []
    total = sum(runner.capture.attentions[site].heads for site in sites)
    for site in sites:
        heads = range(runner.capture.attentions[site].heads)
        for first in range(0, len(heads), runner.rows_per_batch):
            batch = heads[first : first + runner.rows_per_batch]
            replacements = _compute_replacements(runner, site, batch, ablation)
            listener = AblateHeadPerRow(site, torch.tensor(batch), replacements)
            differences = runner.measure(listener, site, len(batch)) - runner.clean_value
            rows += [
                _describe_head(runner, site, head, difference, ablation)
                for head, difference in zip(batch, differences.tolist(), strict=True)
            ]
            progress(len(rows), total)
    return Effects(
        "heads",
        runner.metric,
        runner.clean_value,
        rank_effects(rows),
        by=ablation.by,
        sites=tuple(runner.capture.sites.names),
        head_counts=runner.head_counts,
    )


def _compute_replacements(
    runner: EditRunner, site: str, heads: Sequence[int], ablation: Ablate
) -> Float[Tensor, "row part query width"]:
    """Compute what each head outputs when it alone is ablated."""
    output = runner.capture.activations[f"{site}.output"]  # [part, head, query, width]
    attentions = runner.capture.attentions
    return torch.stack(
        [ablate_output(ablation, output[:, [head]], f"{site}.output", [head], attentions)[:, 0] for head in heads]
    )


def _describe_head(runner: EditRunner, site: str, head: int, difference: float, ablation: Ablate) -> Effect:
    """Build the effect of a head, with the key that it attends to most from the measured position."""
    capture = runner.capture
    layer, attention = capture.sites.get_layer(site), capture.attentions[site]
    edit = replace(ablation, layer=layer, head=head)
    position = runner.metric.measured_position
    # the metric reads positions of the target, where there is one
    is_encoder = capture.sites.has_target and capture.sites.get_sides(site).queries == SOURCE
    if position is None or attention.batch != 1 or is_encoder:
        return Effect(layer, head, difference, edit)
    if not 0 <= position < attention.queries:
        position = max(0, attention.queries + min(position, -1))
    row = capture.row(site, head, position)
    return Effect(layer, head, difference, edit, weight=float(row.max()), looks_at=int(row.argmax()))
