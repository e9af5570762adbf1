"""Check a head's weights, and follow the weights of all layers: attention rollout and flow (Abnar and Zuidema 2020).

Rollout and flow depend on weights only; they ignore values, MLPs and norms. ``jumok.effect`` measures whether a token
matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

ROWS_PER_TILE = 256


class WeightCheck(NamedTuple):
    """Properties of a head's weights.

    Attributes:
        sums: The largest difference of a row's sum from 1. Rows without any weight are ignored; an attention
            sink lowers the sums.
        future: The largest sum of weights on later positions; 0 for a causal head.
    """

    sums: float
    future: float


def check_weights(capture: Capture, layer: int | str, head: int, batch: int = 0) -> WeightCheck:
    """Check that a head's rows sum to 1, and compute its largest weight on later positions.

    Args:
        capture: The capture.
        layer: The layer's number or site name.
        head: The head.
        batch: The batch row.
    """
    sum_error = future = 0.0
    for tile, is_later in _iterate_tiles(capture, layer, head, batch):
        future = max(future, float((tile * is_later).sum(-1).max()))
        sums = tile.sum(-1)
        attending = sums > 0
        if attending.any():
            sum_error = max(sum_error, float((sums[attending] - 1).abs().max()))
    return WeightCheck(sum_error, future)


def sum_future_weights(capture: Capture, layer: int | str, head: int, batch: int = 0) -> Float[Tensor, " query"]:
    """Sum each query's weights on later positions; exactly 0 under a causal mask.

    Args:
        capture: The capture.
        layer: The layer's number or site name.
        head: The head.
        batch: The batch row.
    """
    sums = [(tile * is_later).sum(-1) for tile, is_later in _iterate_tiles(capture, layer, head, batch)]
    return torch.cat(sums).float()


def _iterate_tiles(capture: Capture, layer: int | str, head: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows of a head's weights in tiles, with a table that is True where the key is later than the query."""
    attention = capture.attention(layer)
    queries, keys = torch.tensor(attention.query_positions), torch.tensor(attention.key_positions)
    for begin in range(0, attention.queries, ROWS_PER_TILE):
        rows = slice(begin, min(begin + ROWS_PER_TILE, attention.queries))
        tile = capture.tile(layer, head, rows, slice(None), batch).double().cpu()
        yield tile, keys[None] > queries[rows][:, None]


def compute_attention_rollout(
    capture: Capture, batch: int = 0, layers: int | None = None
) -> Float[Tensor, "query key"]:
    """Multiply the mean weights of the layers; half of each layer is its residual connection.

    Args:
        capture: A capture of a model with a single stack of self-attentions.
        batch: The batch row.
        layers: How many of the first layers to multiply; default: all.

    Returns:
        ``[token, input]``: how much of each input is in each token according to the weights.

    Raises:
        ArgumentError: If the model has several stacks or attends to another sequence.
    """
    rollout: Tensor | None = None
    for site in _require_single_stack(capture)[:layers]:
        mixed = _add_residual(capture.mean_weights(site, batch).double())
        rollout = mixed if rollout is None else mixed @ rollout
    assert rollout is not None
    return rollout.float()


def compute_attention_flow(capture: Capture, query: int, batch: int = 0) -> Float[Tensor, " key"]:
    """Compute the maximum flow from each input to one token; the capacity of an edge is its weight.

    Args:
        capture: A capture of a model with a single stack of self-attentions.
        query: The index of the token.
        batch: The batch row.

    Raises:
        ArgumentError: If the token does not exist, or the model has several stacks.
    """
    import networkx

    sites = _require_single_stack(capture)
    count = capture.attentions[sites[0]].queries
    if not 0 <= query < count:
        raise ArgumentError(f"token {query} does not exist; there are {count} tokens, counted from 0")
    graph = networkx.DiGraph()
    for layer, site in enumerate(sites):
        mixed = _add_residual(capture.mean_weights(site, batch).double())
        for row, column in (mixed > 0).nonzero().tolist():
            graph.add_edge((layer, column), (layer + 1, row), capacity=float(mixed[row, column]))

    target = (len(sites), query)
    flows = []
    for position in range(count):
        source = (0, position)
        is_connected = source in graph and target in graph
        flows.append(networkx.maximum_flow_value(graph, source, target) if is_connected else 0.0)
    return torch.tensor(flows)


def _add_residual(weights: Tensor) -> Tensor:
    """Average the weights with the identity, and normalise the rows."""
    mixed = weights + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    return mixed / mixed.sum(-1, keepdim=True)


def _require_single_stack(capture: Capture) -> list[str]:
    """Return the site names of a single stack of self-attentions over the same tokens."""
    sizes = {count for attention in capture.attentions.values() for count in (attention.queries, attention.keys)}
    if len(capture.sites.stacks) != 1 or len(sizes) != 1:
        raise ArgumentError("rollout and flow need a model with one stack of self-attentions over the same tokens")
    return capture.sites.names
