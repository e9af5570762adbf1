"""PyTorch's fused kernels: ``torch.nn.functional.scaled_dot_product_attention``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jumok.attention.groups import expand_groups
from jumok.attention.mask.position_masks import Causal
from jumok.attention.score import ScaledDot, Score

from .protocol import AttentionOutput, AttentionRequest

_NOT_A_DOT_PRODUCT = Score.fold_into_query  # scores that are dot products override it


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return why the request cannot be computed here and which backend can, or None.

    Args:
        request: The checked arguments of ``attend()``.
    """
    if request.weights:
        return 'sdpa keeps no weights; use backend="explicit"'
    score = request.score
    if isinstance(score, ScaledDot) and score.softcap is not None:
        return 'sdpa has no softcap; use backend="blocked" or "explicit"'
    if score.sink is not None:
        return 'sdpa has no sink; use backend="blocked" or "explicit"'
    if request.logsumexp and not _has_logsumexp_kernel(request):
        return (
            "sdpa returns the row log-sum-exp only from its CPU kernel, without dropout, "
            'for values as wide as keys; use backend="blocked" or "explicit"'
        )
    # The method is compared, not called: General's product is computed once, in compute().
    if type(score).fold_into_query is _NOT_A_DOT_PRODUCT:
        return f'sdpa computes dot products, not {type(score).__name__}; use backend="explicit" or "blocked"'
    return None


def _has_logsumexp_kernel(request: AttentionRequest) -> bool:
    return (
        request.query.device.type == "cpu"
        and request.dropout == 0
        and request.key.shape[-1] == request.value.shape[-1]
        and request.query.shape[-2] > 0
        and request.key.shape[-2] > 0
    )


def compute(request: AttentionRequest) -> AttentionOutput:
    """Compute a request.

    Args:
        request: The checked arguments of ``attend()``.
    """
    scaled_query = request.score.fold_into_query(request.query)
    assert scaled_query is not None, "explain_refusal() refuses scores that are not dot products"
    query, scale = scaled_query
    key, value, heads = request.key, request.value, request.query.shape[1]
    is_causal, table = _make_mask_and_bias_arguments(request)
    if request.logsumexp:
        return _compute_with_logsumexp(query, key, value, scale, is_causal, table)

    is_grouped = key.shape[1] != heads
    if is_grouped and table is None and not is_causal:
        # Without a mask all heads of a group are treated alike, so their rows are stacked into one head.
        query = query.reshape(query.shape[0], key.shape[1], -1, query.shape[-1])
        output = functional.scaled_dot_product_attention(query, key, value, dropout_p=request.dropout, scale=scale)
        return AttentionOutput(output.view(*request.query.shape[:3], value.shape[-1]).to(request.query.dtype))

    output = functional.scaled_dot_product_attention(
        query, key, value, table, dropout_p=request.dropout, is_causal=is_causal, scale=scale, enable_gqa=is_grouped
    )
    if output.dtype is not request.query.dtype:  # inside autocast
        output = output.to(request.query.dtype)
    return AttentionOutput(output)


def _compute_with_logsumexp(
    query: Tensor, key: Tensor, value: Tensor, scale: float, is_causal: bool, table: Tensor | None
) -> AttentionOutput:
    if table is not None and table.dtype == torch.bool:  # this kernel takes numbers to add
        table = torch.zeros_like(table, dtype=query.dtype).masked_fill(~table, float("-inf"))
    heads = query.shape[1]
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query,
        expand_groups(key, heads),
        expand_groups(value, heads),
        0.0,
        is_causal,
        attn_mask=table,
        scale=scale,
    )
    return AttentionOutput(output, logsumexp=logsumexp)


def _make_mask_and_bias_arguments(request: AttentionRequest) -> tuple[bool, Tensor | None]:
    """Return (is_causal, attn_mask) for the kernel."""
    mask, bias = request.mask, request.bias
    if is_kernel_causal(request):
        return True, None
    if mask is not None and mask.allows_all(request.grid):
        mask = None
    if bias is None:
        return False, None if mask is None else mask.evaluate(request.grid)

    table = bias.evaluate(request.grid)
    if request.query.dtype.itemsize < table.dtype.itemsize:
        limits = torch.finfo(request.query.dtype)  # a large finite bias must not become infinite in half precision
        table = table.clamp(limits.min, limits.max)
    table = table.to(request.query.dtype)
    if mask is not None:
        table = table.masked_fill(~mask.evaluate(request.grid), float("-inf"))
    return False, table.expand(*table.shape[:2], *request.grid.shape[2:])


def is_kernel_causal(request: AttentionRequest) -> bool:
    """Return whether the kernel's ``is_causal`` flag expresses mask and bias of the request.

    The flag counts queries and keys from 0, so it is right only if their positions are equal.

    Args:
        request: The checked arguments of ``attend()``.
    """
    return (
        request.bias is None
        and isinstance(request.mask, Causal)
        and isinstance(request.query_positions, range)
        and request.query_positions == request.key_positions
        and request.query_positions.step == 1
    )
