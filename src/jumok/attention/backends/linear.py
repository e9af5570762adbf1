"""Linear attention in O(n): keys and values are summed into one small state, which the queries read.

For ``score.Kernel`` with causal and padding masks. Causal rows are computed in chunks: by the explicit formula within a
chunk, and by the running state for everything before it.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

from jumok.attention.groups import multiply_by_group
from jumok.attention.mask.position_masks import Causal
from jumok.attention.mask.table_masks import PaddingLengths, PaddingTable
from jumok.attention.score import Kernel

from .protocol import AttentionOutput, AttentionRequest, disable_autocast

CHUNK = 128  # rows computed by the explicit formula; n / CHUNK states are stored


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return why the request cannot be computed here and which backend can, or None."""
    if not isinstance(request.score, Kernel):
        return f'linear computes score.Kernel, not {type(request.score).__name__}; use backend="sdpa" or "explicit"'
    if request.weights:
        return 'linear keeps no weights; use backend="explicit"'
    if request.logsumexp:
        return 'linear keeps no row log-sum-exp; use backend="blocked" or "explicit"'
    if request.bias is not None:
        return 'linear takes no bias; use backend="blocked" or "explicit"'
    if request.dropout:
        return 'linear has no weights to drop; use backend="blocked" or "explicit"'

    parts = [] if request.mask is None else request.mask.conjuncts
    if not all(isinstance(part, Causal | PaddingLengths | PaddingTable) for part in parts):
        return f'linear takes causal and padding masks, not {request.mask!r:.80}; use backend="blocked" or "explicit"'
    if any(isinstance(part, Causal) for part in parts) and not request.grid.contiguous:
        return 'linear needs causal positions as ranges; use backend="blocked" or "explicit"'
    return None


def compute(request: AttentionRequest) -> AttentionOutput:
    """Compute a request."""
    score, parts = request.score, [] if request.mask is None else request.mask.conjuncts
    assert isinstance(score, Kernel)
    with disable_autocast(request):  # float32 even inside autocast: sums over thousands of keys
        dtype = torch.promote_types(request.query.dtype, torch.float32)
        key, value = request.key.to(dtype), request.value.to(dtype)
        paddings = [part.evaluate(request.grid) for part in parts if not isinstance(part, Causal)]
        padded = ~reduce(torch.logical_and, paddings).transpose(-1, -2) if paddings else None  # [batch or 1, 1, key, 1]
        if padded is not None:
            key, value = key.masked_fill(padded, 0.0), value.masked_fill(padded, 0.0)  # padding may hold NaN

        queries, _ = score.feature_map.map_queries(request.query.to(dtype))
        keys, _ = score.feature_map.map_keys(key)
        if padded is not None:
            keys = keys.masked_fill(padded, 0.0)

        # A column of ones gives the sum that each row is divided by.
        extended = torch.cat([value, value.new_ones(*value.shape[:-1], 1)], -1)
        if any(isinstance(part, Causal) for part in parts):
            start = request.grid.min_position("query") - request.grid.min_position("key")
            sums = _compute_causal_sums(queries, keys, extended, start)
        else:
            sums = multiply_by_group(queries, keys.transpose(-1, -2) @ extended)

        output, total = sums[..., :-1], sums[..., -1:]
    return AttentionOutput((output / total.masked_fill(total == 0, 1.0)).to(request.query.dtype))


def _compute_causal_sums(queries: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
    """Return for row i the sum over keys 0 .. start + i; ``start`` is the number of keys before the first query."""
    length = queries.shape[2]
    initial_state = keys[:, :, : max(start, 0)].transpose(-1, -2) @ values[:, :, : max(start, 0)]
    keys, values = (_align_with_queries(tensor, start, length) for tensor in (keys, values))
    missing = -length % CHUNK
    queries, keys, values = (
        functional.pad(tensor, (0, 0, 0, missing)).unflatten(2, (-1, CHUNK)) for tensor in (queries, keys, values)
    )

    chunk_states = keys.transpose(-1, -2) @ values  # [batch, group, chunk, feature, width]
    earlier_states = chunk_states.cumsum(2) - chunk_states + initial_state[:, :, None]
    within = _multiply_chunks(queries, keys.transpose(-1, -2)).tril()
    sums = _multiply_chunks(within, values) + _multiply_chunks(queries, earlier_states)
    return sums.flatten(2, 3)[:, :, :length]


def _multiply_chunks(left: Tensor, right: Tensor) -> Tensor:
    """Multiply [batch, head, chunk, ...] by [batch, group, chunk, ...], with the chunks as batch rows."""
    chunks = right.shape[2]
    product = multiply_by_group(left.transpose(1, 2).flatten(0, 1), right.transpose(1, 2).flatten(0, 1))
    return product.unflatten(0, (-1, chunks)).transpose(1, 2)


def _align_with_queries(tensor: Tensor, start: int, length: int) -> Tensor:
    """Return the keys at the positions of the queries, with zeros where there is no key."""
    front = min(max(-start, 0), length)
    tensor = tensor[:, :, max(start, 0) : max(start + length, 0)][:, :, : length - front]
    return functional.pad(tensor, (0, 0, front, length - front - tensor.shape[2]))
