"""The reference backend: softmax(scores + bias, masked) @ value, as the formula is written.

Every other backend is tested against this one, and this one against plain loops in float64. Needs O(n^2) memory.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jumok import axes
from jumok.attention.groups import multiply_by_group

from .protocol import AttentionOutput, AttentionRequest, disable_autocast


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return None: this backend computes every request."""
    return None


def compute(request: AttentionRequest) -> AttentionOutput:
    """Compute a request."""
    with disable_autocast(request):  # float32 even inside autocast: a softmax in bfloat16 loses the small weights
        dtype = torch.promote_types(request.query.dtype, torch.float32)
        query, key, value = (tensor.to(dtype) for tensor in (request.query, request.key, request.value))
        allowed = None if request.mask is None else request.mask.evaluate(request.grid)
        if allowed is not None:
            key, value = zero_unread_keys(key, value, allowed)

        scores = request.score.evaluate(query, key)
        if request.bias is not None:
            scores = scores + request.bias.evaluate(request.grid).to(dtype)
        weights, logsumexp = _softmax(scores, allowed, request.score.convert_sink(scores), request.logsumexp)

        # The weights that are returned are those before dropout: their rows sum to 1.
        dropped = functional.dropout(weights, request.dropout) if request.dropout else weights
        output = multiply_by_group(dropped, value).to(request.query.dtype)
    return AttentionOutput(output, weights.to(request.query.dtype) if request.weights else None, logsumexp)


def zero_unread_keys(key: Tensor, value: Tensor, allowed: axes.Allowed) -> tuple[Tensor, Tensor]:
    """Replace keys that no query may attend to by zeros: 0 * NaN is NaN, and padding may hold anything."""
    used = allowed.any(-2)  # [batch or 1, head or 1, key or 1]
    groups = key.shape[1]
    if used.shape[1] > groups:
        used = used.unflatten(1, (groups, -1)).any(2)
    unused = ~used[..., None]
    return key.masked_fill(unused, 0.0), value.masked_fill(unused, 0.0)


def _softmax(
    scores: axes.Scores, allowed: axes.Allowed | None, sink: Tensor | None, logsumexp: bool
) -> tuple[axes.Weights, axes.LogSumExp | None]:
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))

    if sink is not None:  # one more column, which takes its share of every row and has no value
        column = sink[:, None, None].expand(*scores.shape[:-1], 1)
        extended = torch.cat([scores, column], -1)
        total = torch.logsumexp(extended, -1) if logsumexp else None
        return extended.softmax(-1)[..., :-1], total

    total = torch.logsumexp(scores, -1) if logsumexp else None
    if allowed is None:
        return scores.softmax(-1), total

    # A row of -inf has no softmax, neither forward nor backward: compute it with finite scores, then zero its weights.
    empty = ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0), total
