"""PyTorch's fused kernels: torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..grid import Grid
from ..groups import spread
from ..mask.positions import Causal
from ..request import Answer, Request
from ..score import ScaledDot, Score

_NO_DOT = Score.as_dot


def refuses(request: Request) -> str | None:
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


def _is_dot(request: Request) -> bool:
    # asked without computing: General's own product is made once, in compute
    return type(request.score).as_dot is not _NO_DOT


def _flash(request: Request) -> bool:
    return (
        request.query.device.type == "cpu"
        and request.dropout == 0
        and request.key.shape[-1] == request.value.shape[-1]
        and request.query.shape[-2] > 0
        and request.key.shape[-2] > 0
    )


def compute(request: Request) -> Answer:
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
        return Answer(output, logsumexp=logsumexp)
    if key.shape[1] != heads:
        # the kernel reads the views of `expand` as they are; nothing is copied for a group's heads
        key, value = spread(key, heads), spread(value, heads)
    output = functional.scaled_dot_product_attention(
        query, key, value, table, dropout_p=request.dropout, is_causal=causal, scale=scale
    )
    return Answer(output)


def _mask(request: Request) -> tuple[bool, Tensor | None]:
    """(is_causal, table): the kernel's own causality where it means the same, else a table; no mask, neither."""
    mask, bias = request.mask, request.bias
    if mask is not None and mask.covers(request.grid):
        mask = None
    if bias is None:
        if mask is None:
            return False, None
        if isinstance(mask, Causal) and _aligned(request.grid):
            return True, None
        return False, mask.allowed(request.grid)
    values = bias.values(request.grid).to(request.query.dtype)
    if mask is not None:
        values = values.masked_fill(~mask.allowed(request.grid), float("-inf"))
    return False, values.expand(*values.shape[:2], *request.grid.shape[2:])


def _aligned(grid: Grid) -> bool:
    """is_causal counts queries and keys from the same corner: right only where the positions are the same."""
    return isinstance(grid.query_positions, range) and grid.query_positions == grid.key_positions


def own_causality(request: Request) -> bool:
    """Would the kernel skip the future by itself?"""
    return request.bias is None and isinstance(request.mask, Causal) and _aligned(request.grid)
