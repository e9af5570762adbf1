"""Linear attention in O(n): keys and values are folded into one small state, and queries read that.

For ``score.Kernel`` under causal and padding masks. Causal rows are computed in chunks: within a chunk by the
formula, before it by the running state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.attention.groups import grouped_matmul
from jumok.attention.mask.base import And, Mask
from jumok.attention.mask.position_masks import Causal
from jumok.attention.mask.table_masks import PaddingLengths, PaddingTable
from jumok.attention.score import Kernel

from .protocol import AttentionOutput, AttentionRequest

CHUNK = 128  # rows computed by the formula; the states kept are n / CHUNK


def explain_refusal(request: AttentionRequest) -> str | None:
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
    causal, paddings = _parts(request.mask)
    if paddings is None:
        return f'linear takes causal and padding masks, not {request.mask!r}; use backend="blocked" or "explicit"'
    if causal and not request.grid.contiguous:
        return 'linear needs causal positions as ranges; use backend="blocked" or "explicit"'
    return None


def _parts(mask: Mask | None) -> tuple[bool, list[Mask] | None]:
    """(is causality in it, the paddings); None in place of the paddings where there is anything else."""
    if mask is None:
        return False, []
    if isinstance(mask, Causal):
        return True, []
    if isinstance(mask, PaddingLengths | PaddingTable):
        return False, [mask]
    if isinstance(mask, And):
        left, right = _parts(mask.left), _parts(mask.right)
        if left[1] is not None and right[1] is not None:
            return left[0] or right[0], left[1] + right[1]
    return False, None


def compute(request: AttentionRequest) -> AttentionOutput:
    with torch.autocast(request.query.device.type, enabled=False):  # float32, whatever surrounds us
        return _computed(request)


def _computed(request: AttentionRequest) -> AttentionOutput:
    assert isinstance(request.score, Kernel)
    # float32: sums over thousands of keys
    dtype = torch.promote_types(request.query.dtype, torch.float32)
    causal, paddings = _parts(request.mask)
    key, value = request.key.to(dtype), request.value.to(dtype)
    real: Tensor | None = None
    for padding in paddings or []:
        allowed = padding.evaluate(request.grid).expand(request.grid.shape[0], 1, 1, request.grid.shape[3])
        real = allowed if real is None else real & allowed
    if real is not None:
        hidden = ~real.transpose(-1, -2)
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)  # padding may hold NaN
    queries, _ = request.score.feature_map.queries(request.query.to(dtype))
    keys, _ = request.score.feature_map.keys(key)
    if real is not None:
        keys = keys.masked_fill(hidden, 0.0)
    # a column of ones carries the sum that each row is divided by
    carried = torch.cat([value, value.new_ones(*value.shape[:-1], 1)], -1)
    if causal:
        start = request.grid.lowest("query") - request.grid.lowest("key")
        joined = _causal(queries, keys, carried, start)
    else:
        joined = grouped_matmul(queries, keys.transpose(-1, -2) @ carried)
    output, total = joined[..., :-1], joined[..., -1:]
    return AttentionOutput((output / total.masked_fill(total == 0, 1.0)).to(request.query.dtype))


def _causal(queries: Tensor, keys: Tensor, carried: Tensor, start: int) -> Tensor:
    """Row i reads keys 0 .. start + i. ``start`` is how many keys stand before the first query."""
    length = queries.shape[2]
    before = keys[:, :, : max(start, 0)].transpose(-1, -2) @ carried[:, :, : max(start, 0)]
    keys, carried = (_aligned(tensor, start, length) for tensor in (keys, carried))
    missing = -length % CHUNK
    queries, keys, carried = (
        torch.nn.functional.pad(tensor, (0, 0, 0, missing)).unflatten(2, (-1, CHUNK))
        for tensor in (queries, keys, carried)
    )
    states = keys.transpose(-1, -2) @ carried  # what each chunk adds: [batch, group, chunk, feature, width]
    earlier = states.cumsum(2) - states + before[:, :, None]
    chunks = keys.shape[2]

    def product(left: Tensor, right: Tensor) -> Tensor:
        # chunks stand in the batch's place, so that grouped heads need no second formula
        folded = grouped_matmul(left.transpose(1, 2).flatten(0, 1), right.transpose(1, 2).flatten(0, 1))
        return folded.unflatten(0, (-1, chunks)).transpose(1, 2)

    within = product(queries, keys.transpose(-1, -2)).tril()
    joined = product(within, carried) + product(queries, earlier)
    return joined.flatten(2, 3)[:, :, :length]


def _aligned(tensor: Tensor, start: int, length: int) -> Tensor:
    """The keys that stand where the queries stand, zeros where there is none."""
    front = min(max(-start, 0), length)
    tensor = tensor[:, :, max(start, 0) : max(start + length, 0)][:, :, : length - front]
    return torch.nn.functional.pad(tensor, (0, 0, front, length - front - tensor.shape[2]))
