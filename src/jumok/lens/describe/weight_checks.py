"""A whole run in a few numbers: checks that must hold, and summaries that are not what the model computed.

    rollout  attention multiplied through the layers, half of each layer being its residual path (Abnar and Zuidema
             2020). It knows nothing of values, MLPs or norms.
    flow     the largest flow from each input to a token through the same graph (the same paper).

Both are pictures of the weights alone. Whether a token matters, jumok.effect says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.capture import Capture

ROWS = 256  # at once


class WeightCheck(NamedTuple):
    """What must hold of a head's weights. sums: how far the sum of a row is from 1, at most (rows that may look nowhere
    aside, and what a sink takes). future: position by position the sum of weight on later tokens; the largest."""

    sums: float
    future: float


def check(run: Capture, layer: int | str, head: int, batch: int = 0) -> WeightCheck:
    sums = ahead = 0.0
    for tile, later in _rows(run, layer, head, batch):
        ahead = max(ahead, float((tile * later).sum(-1).max()))
        total = tile.sum(-1)
        looking = total > 0
        if looking.any():
            sums = max(sums, float((total[looking] - 1).abs().max()))
    return WeightCheck(sums, ahead)


def future(run: Capture, layer: int | str, head: int, batch: int = 0) -> Float[Tensor, " query"]:
    """Position by position, the sum of weight on later positions: exactly 0 wherever a causal mask is."""
    return torch.cat([(tile * later).sum(-1) for tile, later in _rows(run, layer, head, batch)]).float()


def _rows(run: Capture, layer: int | str, head: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of a head's weights, a few at a time, and which of their keys are later."""
    found = run.attention(layer)
    queries, keys = torch.tensor(found.query_positions), torch.tensor(found.key_positions)
    for begin in range(0, found.queries, ROWS):
        rows = slice(begin, min(begin + ROWS, found.queries))
        yield run.tile(layer, head, rows, slice(None), batch).double().cpu(), keys[None] > queries[rows][:, None]


def compute_rollout(run: Capture, batch: int = 0, layers: int | None = None) -> Float[Tensor, "query key"]:
    """[token, input]: how much of each input is in each token by the weights alone. ``layers``: the first so many."""
    sites = _one_stack(run)[:layers]
    through: Tensor | None = None
    for site in sites:
        step = _with_residual(run.mean_weights(site, batch).double())
        through = step if through is None else step @ through
    assert through is not None
    return through.float()


def flow(run: Capture, query: int, batch: int = 0) -> Float[Tensor, " key"]:
    """[input]: how much can flow from each input to one token, each edge carrying at most its weight."""
    import networkx

    graph: Any = networkx.DiGraph()
    sites = _one_stack(run)
    count = run.attentions[sites[0]].queries
    if not 0 <= query < count:
        raise ArgumentError(f"there are {count} tokens, counted from 0; {query} is none of them")
    for layer, site in enumerate(sites):
        step = _with_residual(run.mean_weights(site, batch).double())
        for row, column in (step > 0).nonzero().tolist():
            graph.add_edge((layer, column), (layer + 1, row), capacity=float(step[row, column]))
    top = (len(sites), query)
    found = [
        networkx.maximum_flow_value(graph, (0, place), top) if (0, place) in graph and top in graph else 0.0
        for place in range(count)
    ]
    return torch.tensor(found)


def _with_residual(weights: Tensor) -> Tensor:
    mixed = weights + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    return mixed / mixed.sum(-1, keepdim=True)


def _one_stack(run: Capture) -> list[str]:
    """The layers that are multiplied: one stack of self-attentions over the same places."""
    sites = run.sites.names
    sizes = {(run.attentions[site].queries, run.attentions[site].keys) for site in sites}
    if len(run.sites.stacks) != 1 or len(sizes) != 1 or len(set(next(iter(sizes)))) != 1:
        raise ArgumentError(
            "rollout and flow are of one stack of self-attentions over the same tokens; this model has none"
        )
    return sites
