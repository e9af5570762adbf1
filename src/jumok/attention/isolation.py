"""``attend(..., safe=True)``: NaN and infinity reach only the queries that may attend to them.

Keys and values that are not finite are replaced by zeros, any backend computes the attention, and the rows that may
attend to one of them become NaN, as do the rows of queries that are not finite. Dot products that may exceed the range
of the dtype are computed in float64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from .backends.protocol import AttentionOutput, AttentionRequest
from .grid import Grid, Positions
from .score import ScaledDot

MAX_CELLS = 2**24  # of the mask that are evaluated at once


def compute_isolated(
    request: AttentionRequest, compute: Callable[[AttentionRequest], AttentionOutput]
) -> AttentionOutput:
    """Compute a request so that a row depends on nothing but its query and the keys that it may attend to."""
    query, key, value = request.query, request.key, request.value
    if query.is_meta or not key.numel():
        return compute(request)

    largest_key, largest_value = _find_largest(key, value)
    if math.isfinite(largest_key) and math.isfinite(largest_value):
        return _compute_in_range(request, largest_key, compute)

    is_bad_key, is_bad_value = (~torch.isfinite(tensor).all(-1) for tensor in (key, value))  # [batch, group, key]
    is_bad = is_bad_key | is_bad_value
    key, value = (tensor.masked_fill(is_bad[..., None], 0.0) for tensor in (key, value))
    answer = _compute_in_range(dataclasses.replace(request, key=key, value=value), _find_largest(key)[0], compute)
    output = answer.output.masked_fill(_find_attending_queries(request, is_bad)[..., None], float("nan"))
    if answer.weights is not None or answer.logsumexp is not None:
        # a value changes neither the weights nor the log-sum-exp
        answer = _fill_rows(answer, _find_attending_queries(request, is_bad_key))
    return answer._replace(output=output)


def _fill_rows(answer: AttentionOutput, rows: Bool[Tensor, "batch head query"]) -> AttentionOutput:
    """Return NaN for these rows."""
    output, weights, logsumexp = answer
    return AttentionOutput(
        output.masked_fill(rows[..., None], float("nan")),
        None if weights is None else weights.masked_fill(rows[..., None], float("nan")),
        None if logsumexp is None else logsumexp.masked_fill(rows, float("nan")),
    )


def _find_largest(*tensors: Tensor) -> list[float]:
    """Return the largest absolute number of each tensor, or NaN if it contains NaN; reads each tensor once."""
    bounds = torch.stack([bound for tensor in tensors for bound in tensor.detach().aminmax()]).tolist()
    # a NaN is the smallest and the largest number at once
    return [max(-low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True)]


def _compute_in_range(
    request: AttentionRequest, largest_key: float, compute: Callable[[AttentionRequest], AttentionOutput]
) -> AttentionOutput:
    """Compute a request in float64 if a dot product may exceed the range of the dtype that backends compute in."""
    dtype = request.query.dtype
    if _bound_scores(request, largest_key) <= torch.finfo(torch.promote_types(dtype, torch.float32)).max / 2:
        return compute(request)
    is_bad_query = ~torch.isfinite(request.query).all(-1)
    if bool(is_bad_query.any()):  # their rows are NaN, unless they may attend to no key; fused kernels return 0 there
        query = request.query.masked_fill(is_bad_query[..., None], 0.0)
        answer = _compute_in_range(dataclasses.replace(request, query=query), largest_key, compute)
        every_key = torch.ones(request.key.shape[:3], dtype=torch.bool, device=query.device)
        return _fill_rows(answer, is_bad_query & _find_attending_queries(request, every_key))

    wide = {name: getattr(request, name).double() for name in ("query", "key", "value")}
    answer = compute(dataclasses.replace(request, **wide))
    weights = None if answer.weights is None else answer.weights.to(dtype)
    return AttentionOutput(answer.output.to(dtype), weights, answer.logsumexp)


def _bound_scores(request: AttentionRequest, largest_key: float) -> float:
    """Return a number that no dot product of a query and a key exceeds, before or after scaling; 0 for other scores."""
    score, query = request.score, request.query.detach()
    folded = (query, score.get_scale(query)) if isinstance(score, ScaledDot) else score.fold_into_query(query)
    if folded is None or not query.numel():
        return 0.0
    return _find_largest(folded[0])[0] * largest_key * request.key.shape[-1] * max(1.0, abs(folded[1]))


def _find_attending_queries(
    request: AttentionRequest, is_bad: Bool[Tensor, "batch group key"]
) -> Bool[Tensor, "batch head query"]:
    """Return which queries may attend to at least one of these keys."""
    batch, heads, queries, _ = request.query.shape
    is_bad = is_bad.repeat_interleave(heads // is_bad.shape[1], 1)  # [batch, head, key]
    if request.mask is None:
        return is_bad.any(-1, keepdim=True).expand(batch, heads, queries)

    attending = torch.zeros(batch, heads, queries, dtype=torch.bool, device=is_bad.device)
    indices = is_bad.any(0).any(0).nonzero().squeeze(-1)
    for part in indices.split(max(1, MAX_CELLS // max(1, batch * heads * queries))):
        keys = _select_positions(request.key_positions, part)
        grid = Grid(range(batch), range(heads), request.query_positions, keys, is_bad.device)
        attending |= (request.mask.evaluate(grid) & is_bad[:, :, None, part]).any(-1)
    return attending


def _select_positions(positions: Positions, indices: Tensor) -> Tensor:
    if isinstance(positions, range):
        return positions.start + positions.step * indices
    return positions.to(indices.device)[..., indices]
