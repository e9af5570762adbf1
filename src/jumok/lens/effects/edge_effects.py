"""Measure the effect of removing edges: estimate all of them by a gradient, measure the most important ones exactly."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.edits.apply_edits import KnockOutEdgePerRow
from jumok.lens.edits.edit_types import KnockOut
from jumok.reporting import Progress

from .edit_runner import EditRunner
from .effect_table import Effect, sort_by_size

CONTROL_POOL = 4096  # random edges that controls are chosen from

Table = Float[Tensor, "query key"]
Tables = dict[tuple[str, int], Table]  # by site and head


class Edge(NamedTuple):
    """One cell of a head's map: a query that attends to a key, by index."""

    site: str
    head: int
    query: int
    key: int


def measure_edges(
    runner: EditRunner, sites: Sequence[str], verify: int | None, controls: int, seed: int, progress: Progress
) -> tuple[tuple[Effect, ...], tuple[Effect, ...]]:
    """Measure the effects of the most important edges of these attentions, and those of their controls."""
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
    effects = measure_exactly(runner, measured, progress)

    rows = []
    for edge in chosen:
        control_effects = tuple(effects[control] for control in controls_of[edge])
        larger = sum(abs(effect) >= abs(effects[edge]) for effect in control_effects)
        row = _describe_edge(runner, edge, tables, effects[edge])
        rows.append(replace(row, rank=larger + 1, of=len(control_effects) + 1, control_effects=control_effects))
    sampled = [edge for edge in measured if edge not in controls_of]
    return sort_by_size(rows), tuple(_describe_edge(runner, edge, tables, effects[edge]) for edge in sampled)


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
    runner: EditRunner, site: str, head: int, weights: Table, gradient: Float[Tensor, "query width"]
) -> Table:
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
    return estimates.abs() * runner.metric.direction if runner.metric.direction else estimates


def measure_exactly(runner: EditRunner, edges: Sequence[Edge], progress: Progress) -> dict[Edge, float]:
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
            differences = runner.measure(KnockOutEdgePerRow(site, heads, queries, keys), site, len(batch))
            effects.update(zip(batch, differences.tolist(), strict=True))
            progress(len(effects), len(edges))
    return effects


def _describe_edge(runner: EditRunner, edge: Edge, tables: EdgeTables, effect: float) -> Effect:
    layer = runner.capture.sites.get_layer(edge.site)
    attention = runner.capture.attentions[edge.site]
    query, key = attention.query_positions[edge.query], attention.key_positions[edge.key]
    table = tables.weights[edge.site, edge.head]
    return Effect(
        layer=layer,
        head=edge.head,
        effect=effect,
        edit=KnockOut(layer, edge.head, query, key),
        query=edge.query,
        key=edge.key,
        weight=tables.get_weight(edge),
        estimate=float(tables.estimates[edge.site, edge.head][edge.query, edge.key]),
        row_edges=int((table[edge.query] > 0).sum()),
    )


class EdgeTables(NamedTuple):
    """The weight and the estimated effect of every edge. Cells with weight 0 are not edges."""

    weights: Tables
    estimates: Tables

    def list_all(self) -> list[Edge]:
        """Return all edges."""
        return [
            Edge(site, head, query, key)
            for (site, head), table in self.weights.items()
            for query, key in (table > 0).nonzero().tolist()
        ]

    def find_largest(self, tables: Tables, count: int) -> list[Edge]:
        """Return the edges with the largest absolute entries of ``weights`` or ``estimates``, the largest first."""
        candidates: list[tuple[float, Edge]] = []
        for (site, head), table in tables.items():
            sizes = table.abs().masked_fill(self.weights[site, head] <= 0, -1.0).flatten()
            largest, indices = sizes.topk(min(count, len(sizes)))
            for size, index in zip(largest.tolist(), indices.tolist(), strict=True):
                if size >= 0:
                    candidates.append((size, Edge(site, head, *divmod(index, table.shape[1]))))
        candidates.sort(key=lambda candidate: -candidate[0])
        return [edge for _, edge in candidates[:count]]

    def sample(self, count: int, generator: random.Random) -> list[Edge]:
        """Draw random edges, the same number from each head. Most of them have small weights, because most edges do."""
        per_head = max(1, count // len(self.weights))
        edges: list[Edge] = []
        for (site, head), table in self.weights.items():
            indices = (table.flatten() > 0).nonzero().flatten().tolist()
            for index in generator.sample(indices, min(per_head, len(indices))):
                edges.append(Edge(site, head, *divmod(index, table.shape[1])))
        return edges

    def get_weight(self, edge: Edge) -> float:
        """Return the weight of an edge."""
        return float(self.weights[edge.site, edge.head][edge.query, edge.key])


class SimilarWeightFinder:
    """Finds the edges of a pool whose weights are closest to that of a given edge, by ratio."""

    def __init__(self, tables: EdgeTables, pool: Sequence[Edge]) -> None:
        self.tables = tables
        self.pool = sorted((self._log_weight(edge), edge) for edge in pool)

    def find(self, edge: Edge, count: int) -> list[Edge]:
        """Return the edges of the pool with the most similar weights, the edge itself excluded."""
        log_weight = self._log_weight(edge)
        index = bisect.bisect_left(self.pool, (log_weight, edge))
        nearby = self.pool[max(0, index - count - 1) : index + count + 1]
        candidates = ((abs(other_weight - log_weight), other) for other_weight, other in nearby if other != edge)
        return [candidate for _, candidate in sorted(candidates)[:count]]

    def _log_weight(self, edge: Edge) -> float:
        return math.log(max(self.tables.get_weight(edge), 1e-12))
