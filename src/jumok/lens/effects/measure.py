"""Does it matter? The effect of silencing each head, or of cutting each edge, beside controls.

    effects = jumok.effect(model, tokens, metric=LogitDifference(" Mary", " John"), over="heads")

An effect is metric(edited) - metric(clean). Heads are all measured. Edges are too many: a gradient screens them, the
ones that look largest are then cut for good, and so are random edges of equal weight, which say how unusual an effect
is: that is the rank, and the p-value.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok import defaults
from jumok.errors import ArgumentError
from jumok.lens.edits.apply_edits import ablate_tensor
from jumok.lens.edits.batched_edits import AblateHeadPerRow, KnockOutEdgePerRow
from jumok.lens.edits.edit_types import ABLATION_METHODS, Ablate
from jumok.lens.lens import Lens

from .edit_bench import EditRunner
from .effect_table import Effect, Effects
from .metrics import Divergence, Metric, Similarity

OVER = ("heads", "edges")
POOL = 4096  # random edges that controls are chosen from
Progress = Callable[[int, int], None]  # done, of all
Edge = tuple[str, int, int, int]  # site, head, query, key


def effect(
    model: Any,
    *inputs: Any,
    metric: Metric | None = None,
    over: str = "heads",
    by: str = "zero",
    verify: int | None = defaults.VERIFIED_EDGES,
    controls: int = defaults.CONTROL_EDGES,
    layers: int | str | Iterable[int | str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Effects:
    """The effect of every head, or of the edges that matter most, on one text.

    model, inputs, settings: as a lens takes them. metric: from jumok.lens.effects.metrics; None asks how likely
    the model's own
        answer is.
    by: how a head is silenced: zero, mean, resample (see Ablate).
    verify: of edges, how many of the largest by gradient, and by weight, are cut for good; None cuts every edge.
    controls: random edges of equal weight that each of them is compared with.
    layers: only this one, or these.
    """
    if over not in OVER:
        raise ArgumentError(f"over is one of {', '.join(OVER)}, not {over!r}")
    if by not in ABLATION_METHODS:
        raise ArgumentError(f"by is one of {', '.join(ABLATION_METHODS)}, not {by!r}")
    if over == "edges" and by != "zero":
        raise ArgumentError(f'by={by!r} says how a head is silenced; an edge is cut: leave it out, or over="heads"')
    if controls < 1:
        raise ArgumentError(f"controls is how many random edges each is compared with, at least 1; not {controls}")
    if verify is not None and verify < 1:
        raise ArgumentError(f"verify is how many edges are cut for good, at least 1, or None for all; not {verify}")
    with Lens(model) as lens:
        bench = EditRunner(lens, inputs, settings, metric)
        sites = bench.run.sites
        named = [layers] if isinstance(layers, int | str) else layers
        chosen = sites.names if named is None else [sites.find(one) for one in named]
        if not chosen:
            raise ArgumentError("layers is empty; leave it out to mean all")
        tell = progress or (lambda done, of: None)
        if over == "heads":
            return _heads(bench, chosen, by, seed, tell)
        return _edges(bench, chosen, verify, controls, seed, tell)


# heads


def _heads(bench: EditRunner, sites: Sequence[str], by: str, seed: int, tell: Progress) -> Effects:
    rows: list[Effect] = []
    total = sum(bench.run.attentions[site].heads for site in sites)
    for site in sites:
        heads = range(bench.run.attentions[site].heads)
        for some in _pieces(heads, bench.rows_at_once):
            listener = AblateHeadPerRow(site, torch.tensor(some), _instead(bench, site, some, by, seed))
            found = bench.edited(listener, site, len(some)) - bench.value
            rows += [_head(bench, site, head, value) for head, value in zip(some, found.tolist(), strict=True)]
            tell(len(rows), total)
    return Effects.ranked(rows, bench, "heads")


def _head(bench: EditRunner, site: str, head: int, value: float) -> Effect:
    """With where it looks from the place that is measured, which is what people ask next."""
    layer, attention = bench.run.sites.get_layer(site), bench.run.attentions[site]
    place = getattr(bench.metric, "position", None)  # a loss over a text has none
    if place is None or attention.batch != 1 or (len(bench.run.sites.stacks) > 1 and "encoder" in site.split(".")[:2]):
        return Effect(layer, head, value)
    place = place if 0 <= place < attention.queries else max(0, attention.queries + min(place, -1))
    row = bench.run.row(site, head, place)
    return Effect(layer, head, value, weight=float(row.max()), looks_at=int(row.argmax()))


def _instead(
    bench: EditRunner, site: str, heads: Sequence[int], by: str, seed: int
) -> Float[Tensor, "row part query w"]:
    """What each head gives when it is silenced: as Ablate would have it, for it alone."""
    kept = bench.run.kept[f"{site}.output"]  # [part, head, query, width]
    edit = Ablate(by=by, seed=seed)
    return torch.stack([ablate_tensor(edit, kept[:, [head]], site, None)[:, 0] for head in heads])


# edges


def _edges(
    bench: EditRunner, sites: Sequence[str], verify: int | None, controls: int, seed: int, tell: Progress
) -> Effects:
    draw = random.Random(seed)
    weights, estimates = {}, {}
    gradients = bench.gradients()
    for site in sites:
        if bench.run.attentions[site].batch != 1:
            raise ArgumentError(
                f"{site} looks inside windows; edges of windows are cut by KnockOut(batch=...), heads here"
            )
        for head in range(bench.run.attentions[site].heads):
            weights[site, head] = bench.run.weights(site, head)
            estimates[site, head] = estimate_edge_effects(bench, site, head, weights[site, head], gradients[site][head])
    known = _Known(weights, estimates)
    if verify is None:
        chosen = known.all()
        pool = chosen
    else:
        chosen = list(dict.fromkeys([*known.largest(estimates, verify), *known.largest(weights, verify)]))
        pool = known.random(POOL, draw)
    alike = _Alike(known, pool)
    compared = {edge: alike(edge, controls) for edge in chosen}
    wanted = list(dict.fromkeys([*chosen, *(one for some in compared.values() for one in some)]))
    exact = _cut(bench, wanted, tell)
    rows = []
    for edge in chosen:
        others = compared[edge]
        larger = sum(abs(exact[one]) >= abs(exact[edge]) for one in others)
        rows.append(_row(bench, edge, known, exact, larger + 1, len(others) + 1))
    taken = set(chosen)
    sampled = [_row(bench, one, known, exact, None, None) for one in wanted if one not in taken]
    return Effects.ranked(rows, bench, "edges", sampled, every=verify is None)


def estimate_edge_effects(
    bench: EditRunner, site: str, head: int, weights: Float[Tensor, "query key"], gradient: Float[Tensor, "query width"]
) -> Float[Tensor, "query key"]:
    """What cutting each edge would change, to first order in what the head gives.

    Without key k the rest of the row is shared out anew, so the head gives (o - a v_k) / (1 - a) instead of o: it
    changes by a / (1 - a) (o - v_k), which is exact; only what the model makes of it is taken as a straight line.
    """
    output = bench.run.kept[f"{site}.output"][0, head].float()
    # a recurrent decoder looks at the same keys at every step, and they were kept every time
    values = bench.run.kept[f"{site}.value"][:, :, -weights.shape[1] :]
    value = values[0, head // (bench.run.attentions[site].heads // values.shape[1])].float()
    slope = gradient.float()
    own = (slope * output).sum(-1, keepdim=True)
    share = weights.float()
    alone = share > 1 - 1e-6  # nothing is left of the row: the head gives 0
    ratio = share / (1 - share).clamp_min(1e-6)
    found = torch.where(alone, -own.expand_as(share), ratio * (own - slope @ value.T))
    if isinstance(bench.metric, Divergence):
        return found.abs()
    return -found.abs() if isinstance(bench.metric, Similarity) else found


class _Known:
    """Every edge that a head has: its weight, and what the gradient makes of it. Weights of 0 are no edges."""

    def __init__(self, weights: dict[tuple[str, int], Tensor], estimates: dict[tuple[str, int], Tensor]) -> None:
        self.weights, self.estimates = weights, estimates

    def all(self) -> list[Edge]:
        return [
            (site, head, query, key)
            for (site, head), table in self.weights.items()
            for query, key in (table > 0).nonzero().tolist()
        ]

    def largest(self, tables: dict[tuple[str, int], Tensor], count: int) -> list[Edge]:
        found: list[tuple[float, Edge]] = []
        for (site, head), table in tables.items():
            flat = table.abs().masked_fill(self.weights[site, head] <= 0, -1.0).flatten()
            values, places = flat.topk(min(count, len(flat)))
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                if value >= 0:
                    found.append((value, (site, head, place // table.shape[1], place % table.shape[1])))
        return [edge for _, edge in sorted(found, key=lambda one: -one[0])[:count]]

    def random(self, count: int, draw: random.Random) -> list[Edge]:
        """So many edges, each head as many: drawn evenly, so that most have small weights, as most edges do."""
        each = max(1, count // len(self.weights))
        found: list[Edge] = []
        for (site, head), table in self.weights.items():
            places = (table.flatten() > 0).nonzero().flatten().tolist()
            for place in draw.sample(places, min(each, len(places))):
                found.append((site, head, place // table.shape[1], place % table.shape[1]))
        return found

    def weight(self, edge: Edge) -> float:
        site, head, query, key = edge
        return float(self.weights[site, head][query, key])

    def estimate(self, edge: Edge) -> float:
        site, head, query, key = edge
        return float(self.estimates[site, head][query, key])


class _Alike:
    """Finds the edges of a pool whose weights are nearest to that of another, by their ratio."""

    def __init__(self, known: _Known, pool: Sequence[Edge]) -> None:
        self.known = known
        self.pool = sorted((_size(known.weight(edge)), edge) for edge in pool)

    def __call__(self, edge: Edge, count: int) -> list[Edge]:
        own = _size(self.known.weight(edge))
        place = bisect.bisect_left(self.pool, (own, edge))
        near = self.pool[max(0, place - count - 1) : place + count + 1]
        others = ((abs(size - own), one) for size, one in near if one != edge)
        return [one for _, one in sorted(others)[:count]]


def _size(weight: float) -> float:
    return math.log(max(weight, 1e-12))


def _cut(bench: EditRunner, edges: Sequence[Edge], tell: Progress) -> dict[Edge, float]:
    """The effect of each edge, cut for good; those of one attention run together."""
    by_site: dict[str, list[Edge]] = {}
    for edge in edges:
        by_site.setdefault(edge[0], []).append(edge)
    exact: dict[Edge, float] = {}
    for site, some in by_site.items():
        found = bench.run.attentions[site]
        places = torch.tensor(found.query_positions), torch.tensor(found.key_positions)
        for piece in _pieces(some, bench.rows_at_once):
            heads, queries, keys = (torch.tensor([edge[axis] for edge in piece]) for axis in (1, 2, 3))
            listener = KnockOutEdgePerRow(site, heads, places[0][queries], places[1][keys])
            values = bench.edited(listener, site, len(piece)) - bench.value
            exact.update(zip(piece, values.tolist(), strict=True))
            tell(len(exact), len(edges))
    return exact


def _row(
    bench: EditRunner, edge: Edge, known: _Known, exact: dict[Edge, float], rank: int | None, of: int | None
) -> Effect:
    site, head, query, key = edge
    layer = bench.run.sites.get_layer(site)
    return Effect(layer, head, exact[edge], query, key, known.weight(edge), known.estimate(edge), rank, of)


def _pieces(some: Sequence[Any], size: int) -> list[Any]:
    return [some[first : first + size] for first in range(0, len(some), size)]
