"""Attention in a band around the diagonal, such as a sliding window: fused calls instead of a loop over blocks.

Every block of queries reads one window of adjacent keys. The windows are a strided view of a padded copy of the keys,
in which each window begins one block after the previous one, so that PyTorch's CPU kernel computes the blocks as if
they were heads; it returns the row log-sum-exp too. Its backward pass gives the gradients of each window, which are
added where windows overlap. Memory grows with the number of queries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .band_windows import Windows
from .protocol import AttentionOutput, AttentionRequest, check_backward, get_table_versions

# Keys in the windows of one backward call, times their width: their gradients are stored before they are added up.
# Measured: larger buffers are slower, as the system clears their pages in every call.
MAX_WINDOW_NUMBERS = 2**22


def compute(request: AttentionRequest) -> AttentionOutput | None:
    """Compute a request, or return None if it is not dot-product attention in a band."""
    if request.mask is None or request.bias is not None or request.dropout or not request.score.is_dot_product:
        return None
    if not _has_kernel(request.query):
        return None
    windows = Windows.plan(request.mask, request.grid)
    if windows is None:
        return None
    dtype = torch.promote_types(request.query.dtype, torch.float32)
    scaled_query = request.score.fold_into_query(request.query.to(dtype))
    assert scaled_query is not None
    query, scale = scaled_query
    plan = BandPlan(windows, scale, get_table_versions(request.mask))
    output, logsumexp = _BandAttention.apply(plan, query, request.key, request.value)  # type: ignore[no-untyped-call]
    if bool(logsumexp.isnan().any()):
        # NaN or infinity in a key reaches all queries of its block in this kernel, which adds -inf to forbidden scores.
        return None
    return AttentionOutput(output.to(request.query.dtype), logsumexp=logsumexp if request.logsumexp else None)


def _has_kernel(query: Tensor) -> bool:
    return query.device.type == "cpu" and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


class BandPlan(NamedTuple):
    """What the forward and the backward pass share."""

    windows: Windows
    scale: float
    table_versions: list[int]  # of the mask's tables, which the backward pass reads again


class _Call(NamedTuple):
    """The part of the windows that one call of the kernel computes."""

    selection: tuple[slice, slice]  # sequences and blocks
    added_mask: Tensor  # 0 or -inf, [sequence, block, query, key]
    is_empty: Tensor  # rows that may attend to no key, [block or 1, query]


class _Layout:
    """Query, key and value in blocks and windows, as the kernel reads them."""

    def __init__(self, windows: Windows, query: Tensor, key: Tensor, value: Tensor) -> None:
        self.windows = windows
        self.batch, self.heads, self.queries, _ = query.shape
        self.sequences, self.groups = self.batch * self.heads, key.shape[1]
        # The kernel needs values as wide as keys; columns of zeros change neither scores nor outputs.
        self.width = max(query.shape[-1], value.shape[-1])
        self.query = self.split_queries(query, self.width)
        self.padded = self._pad_keys(key, value, query.dtype)
        self.keys, self.values = self._view_windows()

    def split_queries(self, tensor: Tensor, width: int) -> Tensor:
        """Return ``[batch, head, query, width]`` as ``[sequence, block, query, width]``, filled up with zeros."""
        count, block = self.windows.block_count, self.windows.block
        columns, rows = width - tensor.shape[-1], count * block - self.queries
        if columns or rows:
            tensor = functional.pad(tensor, (0, columns, 0, rows))
        # the kernel reads rows of adjacent numbers, whatever the strides say
        return tensor.reshape(self.sequences, count, block, width).contiguous()

    def join_queries(self, blocks: Tensor, width: int) -> Tensor:
        """Undo ``split_queries``."""
        return blocks.view(self.batch, self.heads, -1, blocks.shape[-1])[:, :, : self.queries, :width]

    def _pad_keys(self, key: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
        """Copy keys and values inside the band for every head, ``[2, sequence, padded key, width]``."""
        shape = (2, self.batch, self.groups, self.heads // self.groups, self.windows.padded_length, self.width)
        padded, inside = key.new_empty(shape, dtype=dtype), self.windows.padded_keys
        padded[..., : inside.start, :] = 0.0
        padded[..., inside.stop :, :] = 0.0
        for copy, tensor in zip(padded, (key, value), strict=True):
            copy[..., inside, : tensor.shape[-1]] = tensor[:, :, None, self.windows.keys]
            copy[..., inside, tensor.shape[-1] :] = 0.0
        return padded.view(2, self.sequences, -1, self.width)

    def unpad_keys(self, padded: Tensor, like: Tensor) -> Tensor:
        """Add up the gradients of the heads of each group; outside the band they are 0."""
        inside = padded.view(self.batch, self.groups, self.heads // self.groups, -1, self.width)
        inside = inside[..., self.windows.padded_keys, : like.shape[-1]]
        inside = inside.sum(2) if inside.shape[2] > 1 else inside.squeeze(2)
        if inside.shape == like.shape:
            return inside.to(like.dtype)
        gradient = torch.zeros_like(like)
        gradient[:, :, self.windows.keys] = inside
        return gradient

    def _view_windows(self) -> tuple[Tensor, Tensor]:
        """View padded keys and values as overlapping windows, ``[sequence, block, key, width]``."""
        windows = self.windows
        size = (2, self.sequences, windows.block_count, windows.width, self.width)
        stride = (*self.padded.stride()[:2], windows.block * self.width, self.width, 1)
        keys, values = self.padded.as_strided(size, stride).unbind()
        return keys, values

    def iterate_calls(self, limit: int) -> Iterator[_Call]:
        """Yield what each call of the kernel computes, at most ``limit`` numbers of keys; unread keys become zero."""
        windows = self.windows
        window_size = windows.width * self.width
        for group in windows.group_sequences():
            pieces, unread = windows.evaluate_mask(group, self.query.dtype)
            if unread is not None:  # 0 * NaN is NaN, and padding may hold anything
                self.padded[:, group.sequences].masked_fill_(unread[:, None], 0.0)
            for piece in pieces:
                for blocks in _split(piece.blocks, limit // window_size):
                    part = slice(blocks.start - piece.blocks.start, blocks.stop - piece.blocks.start)
                    is_shared = len(piece.added_mask) == 1
                    added_mask = piece.added_mask if is_shared else piece.added_mask[part]
                    is_empty = piece.is_empty if is_shared else piece.is_empty[part]
                    for sequences in _split(group.sequences, limit // (window_size * _count(blocks))):
                        shape = (_count(sequences), _count(blocks), *added_mask.shape[1:])
                        yield _Call((sequences, blocks), added_mask.expand(shape), is_empty)


def _split(indices: slice, limit: int) -> list[slice]:
    """Split a slice into equal parts of at most ``limit`` indices, and at least 1."""
    count = _count(indices)
    parts = -(-count // max(limit, 1))
    bounds = [indices.start + count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _count(indices: slice) -> int:
    return int(indices.stop - indices.start)


class _BandAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: BandPlan, query, key, value):  # type: ignore[no-untyped-def]
        layout = _Layout(plan.windows, query, key, value)
        output_blocks = torch.empty_like(layout.query)
        logsumexp_blocks = layout.query.new_empty(layout.query.shape[:-1])
        for call in layout.iterate_calls(sys.maxsize):
            selection = call.selection
            output_blocks[selection], logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                layout.query[selection],
                layout.keys[selection],
                layout.values[selection],
                attn_mask=call.added_mask,
                scale=plan.scale,
            )
            logsumexp_blocks[selection] = logsumexp.masked_fill(call.is_empty, float("-inf"))

        output = layout.join_queries(output_blocks, value.shape[-1])
        logsumexp = layout.join_queries(logsumexp_blocks[..., None], 1).squeeze(-1)
        ctx.plan = plan
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    def backward(ctx, grad_output, _):  # type: ignore[no-untyped-def]
        plan: BandPlan = ctx.plan
        check_backward(plan.windows.mask, plan.table_versions)
        query, key, value, output, logsumexp = ctx.saved_tensors
        layout = _Layout(plan.windows, query, key, value)
        grad_blocks, output_blocks = (layout.split_queries(tensor, layout.width) for tensor in (grad_output, output))
        # An empty row has weights exp(-inf - 0) = 0.
        finite = logsumexp.masked_fill(logsumexp == float("-inf"), 0.0)
        logsumexp_blocks = layout.split_queries(finite[..., None], 1).squeeze(-1)

        grad_query, grad_padded = torch.empty_like(layout.query), torch.zeros_like(layout.padded)
        for call in layout.iterate_calls(MAX_WINDOW_NUMBERS):
            selection = call.selection
            grad_query[selection], *grad_windows = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad_blocks[selection],
                layout.query[selection],
                layout.keys[selection],
                layout.values[selection],
                output_blocks[selection],
                logsumexp_blocks[selection],
                0.0,
                False,
                attn_mask=call.added_mask,
                scale=plan.scale,
            )
            for grad, windows_grad in zip(grad_padded, grad_windows, strict=True):
                _add_windows(grad, windows_grad, selection, plan.windows)

        return (
            None,
            layout.join_queries(grad_query, query.shape[-1]),
            layout.unpad_keys(grad_padded[0], key),
            layout.unpad_keys(grad_padded[1], value),
        )


def _add_windows(padded: Tensor, windows_grad: Tensor, selection: tuple[slice, slice], windows: Windows) -> None:
    """Add the gradients of overlapping windows to those of the padded keys, one block of every window at a time."""
    sequences, blocks = selection
    key_blocks = padded.view(len(padded), -1, windows.block, padded.shape[-1])
    for part in range(windows.part_count):
        columns = windows_grad[:, :, part * windows.block : (part + 1) * windows.block]
        key_blocks[sequences, blocks.start + part : blocks.stop + part, : columns.shape[2]] += columns
