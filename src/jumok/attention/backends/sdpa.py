"""PyTorch's fused kernels: ``torch.nn.functional.scaled_dot_product_attention``."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from jumok import axes
from jumok.attention.groups import expand_groups
from jumok.attention.mask.position_masks import Causal
from jumok.attention.score import ScaledDot

from .explicit import zero_unread_keys
from .protocol import AttentionOutput, AttentionRequest


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return why the request cannot be computed here and which backend can, or None."""
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
    if not score.is_dot_product:
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
    """Compute a request."""
    scaled_query = request.score.fold_into_query(request.query)
    assert scaled_query is not None, "explain_refusal() refuses scores that are not dot products"
    query, scale = scaled_query
    key, value, heads = request.key, request.value, request.query.shape[1]
    is_causal, table, allowed = _make_mask_and_bias_arguments(request)
    if allowed is not None and not _are_finite(key, value):
        key, value = zero_unread_keys(key, value, allowed)
    if request.logsumexp:
        return _compute_with_logsumexp(query, key, value, scale, is_causal, table)

    is_grouped = True if key.shape[1] != heads else False  # noqa: SIM210  # torch.compile: no symbolic bool
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
    # the kernel reads rows of adjacent numbers, whatever the strides say
    query, key, value = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (query, key, value))
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, expand_groups(key, heads), expand_groups(value, heads), 0.0, is_causal, attn_mask=table, scale=scale
    )
    return AttentionOutput(output, logsumexp=logsumexp)


def _are_finite(key: Tensor, value: Tensor) -> bool:
    """Return whether keys and values are known to be finite: by their sums, where reading a number is cheap."""
    if key.is_meta:  # no numbers; finite ones are the usual case, whose memory is counted
        return True
    if key.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    try:
        return math.isfinite(key.detach().sum().item()) and math.isfinite(value.detach().sum().item())
    except RuntimeError:  # inside torch.func.vmap, tensors have no single number
        return False


def _make_mask_and_bias_arguments(request: AttentionRequest) -> tuple[bool, Tensor | None, axes.Allowed | None]:
    """Return (is_causal, attn_mask) for the kernel, and the allowed cells if there is a mask."""
    mask, bias = request.mask, request.bias
    if is_kernel_causal(request):
        return True, None, None
    allowed = None if mask is None or mask.allows_all(request.grid) else mask.evaluate(request.grid)
    if bias is None:
        return False, allowed, allowed

    table, dtype = bias.evaluate(request.grid), request.query.dtype
    if request.query.device.type == "cpu":
        dtype = torch.promote_types(dtype, torch.float32)  # the scores of half precision are float32 in these kernels
    elif dtype.itemsize < table.dtype.itemsize:
        limits = torch.finfo(dtype)  # a large finite bias must not become infinite in half precision
        table = table.clamp(limits.min, limits.max)
    table = table.to(dtype)
    if allowed is not None:
        table = table.masked_fill(~allowed, float("-inf"))
    return False, table.expand(*table.shape[:2], *request.grid.shape[2:]), allowed


def is_kernel_causal(request: AttentionRequest) -> bool:
    """Return whether the kernel's ``is_causal`` flag expresses mask and bias of the request.

    The flag counts queries and keys from 0, so it is right only if their positions are equal.
    """
    return (
        request.bias is None
        and isinstance(request.mask, Causal)
        and isinstance(request.query_positions, range)
        and request.query_positions == request.key_positions
        and request.query_positions.step == 1
    )
