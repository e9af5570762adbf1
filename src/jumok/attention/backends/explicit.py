"""The formula as it is written: softmax(scores + bias, where the mask allows) x value. The reference.

Every other backend is held to this one, and this one to plain loops in float64. Keeps n x n numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jumok import axes
from jumok.attention.groups import grouped_matmul

from .protocol import AttentionOutput, AttentionRequest


def explain_refusal(request: AttentionRequest) -> str | None:
    return None


def compute(request: AttentionRequest) -> AttentionOutput:
    with torch.autocast(request.query.device.type, enabled=False):  # float32, whatever surrounds us
        return _computed(request)


def _computed(request: AttentionRequest) -> AttentionOutput:
    # float32: a softmax in bfloat16 loses the small weights
    dtype = torch.promote_types(request.query.dtype, torch.float32)
    query, key, value = (tensor.to(dtype) for tensor in (request.query, request.key, request.value))
    allowed = None if request.mask is None else request.mask.evaluate(request.grid)
    if allowed is not None:
        key, value = _silenced(key, value, allowed)
    scores = request.score.evaluate(query, key)
    if request.bias is not None:
        scores = scores + request.bias.evaluate(request.grid).to(dtype)
    weights, logsumexp = _softmax(scores, allowed, request.score.sink, request.logsumexp)
    # the weights handed back are those before dropout: their rows sum to 1
    kept = functional.dropout(weights, request.dropout) if request.dropout else weights
    output = grouped_matmul(kept, value).to(request.query.dtype)
    return AttentionOutput(output, weights.to(request.query.dtype) if request.weights else None, logsumexp)


def _silenced(key: Tensor, value: Tensor, allowed: axes.Allowed) -> tuple[Tensor, Tensor]:
    """Zeros in place of keys that nobody may attend to: 0 x NaN is NaN, and padding may hold anything."""
    read = allowed.any(-2)  # [batch or 1, head or 1, key or 1]
    groups = key.shape[1]
    if read.shape[1] > groups:
        read = read.unflatten(1, (groups, -1)).any(2)
    silent = ~read[..., None]
    return key.masked_fill(silent, 0.0), value.masked_fill(silent, 0.0)


def _softmax(
    scores: axes.Scores, allowed: axes.Allowed | None, sink: Tensor | None, logsumexp: bool
) -> tuple[axes.Weights, axes.LogSumExp | None]:
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    if sink is not None:
        column = sink.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
        # the sink takes its share of every row and gives nothing for it
        return (
            torch.cat([scores, column], -1).softmax(-1)[..., :-1],
            torch.logsumexp(torch.cat([scores, column], -1), -1) if logsumexp else None,
        )
    total = torch.logsumexp(scores, -1) if logsumexp else None
    if allowed is None:
        return scores.softmax(-1), total
    # A row of -inf has no softmax, forward or backward: give it finite scores, then take its weights away.
    empty = ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0), total
