"""Measure the effect of removing edges: estimate all of them by a gradient, measure the most important ones exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.edits.batched_edits import KnockOutEdgePerRow
from jumok.lens.edits.edit_types import KnockOut

from .edge_tables import Edge, EdgeTables, SimilarWeightFinder
from .edit_runner import EditRunner
from .effect_table import Effect, Effects, sort_by_size
from .head_effects import Progress
from .metrics import Divergence, Similarity

CONTROL_POOL = 4096  # random edges that controls are chosen from


def measure_edges(
    runner: EditRunner, sites: Sequence[str], verify: int | None, controls: int, seed: int, progress: Progress
) -> Effects:
    """Measure the effects of the most important edges of these attentions.

    Args:
        runner: The model with its text and metric.
        verify: How many edges to measure exactly, by gradient and again by weight; None measures every edge.
        controls: How many random edges of similar weight each edge is compared with.

    Raises:
        ArgumentError: If an attention works on windows of an image.
    """
    tables = _build_tables(runner, sites)
    if verify is None:
        chosen = tables.list_all()
        pool = chosen
    else:
        by_estimate = tables.find_largest(tables.estimates, verify)
        by_weight = tables.find_largest(tables.weights, verify)
        chosen = list(dict.fromkeys([*by_estimate, *by_weight]))
        pool = tables.sample(CONTROL_POOL, random.Random(seed))
    finder = SimilarWeightFinder(tables, pool)
    controls_of = {edge: finder.find(edge, controls) for edge in chosen}
    control_edges = [control for edges in controls_of.values() for control in edges]
    measured = list(dict.fromkeys([*chosen, *control_edges]))
    effects = _measure_exactly(runner, measured, progress)

    rows = []
    for edge in chosen:
        control_effects = tuple(effects[control] for control in controls_of[edge])
        larger = sum(abs(effect) >= abs(effects[edge]) for effect in control_effects)
        row = _describe_edge(runner, edge, tables, effects, larger + 1, len(control_effects) + 1)
        rows.append(replace(row, control_effects=control_effects))
    chosen_set = set(chosen)
    sampled = [_describe_edge(runner, edge, tables, effects, None, None) for edge in measured if edge not in chosen_set]
    return Effects(
        "edges",
        runner.metric,
        runner.clean_value,
        sort_by_size(rows),
        sampled=tuple(sampled),
        every=verify is None,
        sites=tuple(runner.capture.sites.names),
        head_counts=runner.head_counts,
    )


def _build_tables(runner: EditRunner, sites: Sequence[str]) -> EdgeTables:
    """Compute the weight and the estimated effect of every edge."""
    weights, estimates = {}, {}
    gradients = runner.compute_gradients()
    for site in sites:
        attention = runner.capture.attentions[site]
        if attention.batch != 1:
            raise ArgumentError(
                f"{site} attends inside windows, and effect cannot measure their edges; use KnockOut(batch=...) for "
                'the edges of a window, or over="heads"'
            )
        for head in range(attention.heads):
            weights[site, head] = runner.capture.weights(site, head)
            estimates[site, head] = estimate_edge_effects(
                runner, site, head, weights[site, head], gradients[site][head]
            )
    return EdgeTables(weights, estimates)


def estimate_edge_effects(
    runner: EditRunner,
    site: str,
    head: int,
    weights: Float[Tensor, "query key"],
    gradient: Float[Tensor, "query width"],
) -> Float[Tensor, "query key"]:
    """Estimate the effect of removing each edge, to first order in the head's output.

    Without key k the remaining weights renormalise, so the output o of a row becomes (o - a v_k) / (1 - a), where a is
    the weight and v_k the value. It changes by a / (1 - a) (o - v_k), exactly; only the metric is linearised.
    """
    output = runner.capture.activations[f"{site}.output"][0, head].float()
    # a recurrent decoder attends to the same keys at every step and records their values each time
    all_values = runner.capture.activations[f"{site}.value"][:, :, -weights.shape[1] :]
    heads_per_group = runner.capture.attentions[site].heads // all_values.shape[1]
    values = all_values[0, head // heads_per_group].float()
    gradient, weights = gradient.float(), weights.float()

    along_output = (gradient * output).sum(-1, keepdim=True)
    along_values = gradient @ values.T
    ratio = weights / (1 - weights).clamp_min(1e-6)
    is_only_key = weights > 1 - 1e-6  # removing it leaves an empty row, and the head outputs 0
    estimates = torch.where(is_only_key, -along_output.expand_as(weights), ratio * (along_output - along_values))
    # any change of the output increases a divergence and decreases a similarity
    if isinstance(runner.metric, Divergence):
        return estimates.abs()
    return -estimates.abs() if isinstance(runner.metric, Similarity) else estimates


def _measure_exactly(runner: EditRunner, edges: Sequence[Edge], progress: Progress) -> dict[Edge, float]:
    """Measure the effect of removing each edge; edges of one attention run in batches."""
    by_site: dict[str, list[Edge]] = {}
    for edge in edges:
        by_site.setdefault(edge.site, []).append(edge)
    effects: dict[Edge, float] = {}
    for site, site_edges in by_site.items():
        attention = runner.capture.attentions[site]
        query_positions = torch.tensor(attention.query_positions)
        key_positions = torch.tensor(attention.key_positions)
        for first in range(0, len(site_edges), runner.rows_per_batch):
            batch = site_edges[first : first + runner.rows_per_batch]
            heads = torch.tensor([edge.head for edge in batch])
            queries = query_positions[[edge.query for edge in batch]]
            keys = key_positions[[edge.key for edge in batch]]
            listener = KnockOutEdgePerRow(site, heads, queries, keys)
            differences = runner.measure(listener, site, len(batch)) - runner.clean_value
            effects.update(zip(batch, differences.tolist(), strict=True))
            progress(len(effects), len(edges))
    return effects


def _describe_edge(
    runner: EditRunner, edge: Edge, tables: EdgeTables, effects: dict[Edge, float], rank: int | None, of: int | None
) -> Effect:
    layer = runner.capture.sites.get_layer(edge.site)
    attention = runner.capture.attentions[edge.site]
    query, key = attention.query_positions[edge.query], attention.key_positions[edge.key]
    return Effect(
        layer=layer,
        head=edge.head,
        effect=effects[edge],
        edit=KnockOut(layer, edge.head, query, key),
        query=edge.query,
        key=edge.key,
        weight=tables.get_weight(edge),
        estimate=tables.get_estimate(edge),
        rank=rank,
        of=of,
        row_edges=tables.count_row_edges(edge),
    )
