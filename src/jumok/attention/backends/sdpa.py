"""PyTorch's fused kernels: torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jumok.attention.groups import spread
from jumok.attention.mask.position_masks import Causal
from jumok.attention.score import ScaledDot, Score

from .protocol import AttentionOutput, AttentionRequest

_NO_DOT = Score.as_dot


def explain_refusal(request: AttentionRequest) -> str | None:
    if request.weights:
        return 'sdpa keeps no weights; use backend="explicit"'
    score = request.score
    if isinstance(score, ScaledDot) and score.softcap is not None:
        return 'sdpa has no softcap; use backend="blocked" or "explicit"'
    if score.sink is not None:
        return 'sdpa has no sink; use backend="blocked" or "explicit"'
    if request.logsumexp and not _flash(request):
        return (
            "sdpa gives the row log-sum-exp only from its CPU kernel, without dropout, "
            'for values as wide as keys; use backend="blocked" or "explicit"'
        )
    if not _is_dot(request):
        return f'sdpa computes dot products, not {type(score).__name__}; use backend="explicit" or "blocked"'
    return None


def _is_dot(request: AttentionRequest) -> bool:
    # asked without computing: General's own product is made once, in compute
    return type(request.score).as_dot is not _NO_DOT


def _flash(request: AttentionRequest) -> bool:
    return (
        request.query.device.type == "cpu"
        and request.dropout == 0
        and request.key.shape[-1] == request.value.shape[-1]
        and request.query.shape[-2] > 0
        and request.key.shape[-2] > 0
    )


def compute(request: AttentionRequest) -> AttentionOutput:
    dotted = request.score.as_dot(request.query)
    assert dotted is not None, "refuses() lets only dot products through"
    query, scale = dotted
    key, value, heads = request.key, request.value, request.query.shape[1]
    causal, table = _mask(request)
    if request.logsumexp:
        if table is not None and table.dtype == torch.bool:  # here the kernel wants numbers to add
            table = torch.zeros_like(table, dtype=query.dtype).masked_fill(~table, float("-inf"))
        output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, spread(key, heads), spread(value, heads), 0.0, causal, attn_mask=table, scale=scale
        )
        return AttentionOutput(output, logsumexp=logsumexp)
    grouped = key.shape[1] != heads
    if grouped and table is None and not causal:
        # nothing tells the heads of a group apart: their rows stand under each other, and one head serves them
        query = query.reshape(query.shape[0], key.shape[1], -1, query.shape[-1])
        output = functional.scaled_dot_product_attention(query, key, value, dropout_p=request.dropout, scale=scale)
        return AttentionOutput(output.view(*request.query.shape[:3], value.shape[-1]).to(request.query.dtype))
    output = functional.scaled_dot_product_attention(
        query, key, value, table, dropout_p=request.dropout, is_causal=causal, scale=scale, enable_gqa=grouped
    )
    if output.dtype is not request.query.dtype:  # autocast has chosen another one
        output = output.to(request.query.dtype)
    return AttentionOutput(output)


def _mask(request: AttentionRequest) -> tuple[bool, Tensor | None]:
    """(is_causal, table): the kernel's own causality where it means the same, else a table; no mask, neither."""
    mask, bias = request.mask, request.bias
    if own_causality(request):
        return True, None
    if mask is not None and mask.covers(request.grid):
        mask = None
    if bias is None:
        return False, None if mask is None else mask.evaluate(request.grid)
    values = bias.evaluate(request.grid)
    if request.query.dtype.itemsize < values.dtype.itemsize:
        limits = torch.finfo(request.query.dtype)  # a large finite bias must not become infinite in half precision
        values = values.clamp(limits.min, limits.max)
    values = values.to(request.query.dtype)
    if mask is not None:
        values = values.masked_fill(~mask.evaluate(request.grid), float("-inf"))
    return False, values.expand(*values.shape[:2], *request.grid.shape[2:])


def own_causality(request: AttentionRequest) -> bool:
    """Does the kernel's is_causal say all that is asked for? It counts queries and keys from the same corner: right
    only where their positions are the same."""
    return (
        request.bias is None
        and isinstance(request.mask, Causal)
        and isinstance(request.query_positions, range)
        and request.query_positions == request.key_positions
        and request.query_positions.step == 1
    )
