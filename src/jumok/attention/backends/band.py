"""Attention in a band around the diagonal, such as a sliding window: fused calls instead of a loop over blocks.

Every block of queries reads one window of adjacent keys. The windows are a strided view of a padded copy of the keys,
in which each window begins one block after the previous one, so that PyTorch's CPU kernel computes the blocks as if
they were heads; it returns the row log-sum-exp too. Its backward pass gives the gradients of each window, which are
added where windows overlap. Memory grows with the number of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jumok.attention.score import Score
from jumok.errors import BackendError

from .band_windows import Piece, Windows
from .protocol import AttentionOutput, AttentionRequest

MAX_WINDOW_BYTES = 2**26  # of the gradients of windows, before they are added up

_NOT_A_DOT_PRODUCT = Score.fold_into_query  # scores that are dot products override it


def compute(request: AttentionRequest) -> AttentionOutput | None:
    """Compute a request, or return None if it is not dot-product attention in a band.

    Args:
        request: The checked arguments of ``attend()``.
    """
    if request.mask is None or request.bias is not None or request.dropout or not _has_kernel(request.query):
        return None
    if type(request.score).fold_into_query is _NOT_A_DOT_PRODUCT:
        return None
    windows = Windows.plan(request.mask, request.grid)
    if windows is None:
        return None
    dtype = torch.promote_types(request.query.dtype, torch.float32)
    scaled_query = request.score.fold_into_query(request.query.to(dtype))
    if scaled_query is None:  # a softcap or a sink
        return None

    query, scale = scaled_query
    plan = BandPlan(windows, scale, [table._version for table in request.mask.tables])
    output, logsumexp = _BandAttention.apply(plan, query, request.key, request.value)  # type: ignore[no-untyped-call]
    if bool(logsumexp.isnan().any()):
        # NaN or infinity in a key reaches all queries of its block in this kernel, which adds -inf to forbidden scores.
        return None
    return AttentionOutput(output.to(request.query.dtype), logsumexp=logsumexp if request.logsumexp else None)


def _has_kernel(query: Tensor) -> bool:
    return query.device.type == "cpu" and hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")


@dataclass(frozen=True, eq=False)
class BandPlan:
    """What the forward and the backward pass share.

    Args:
        windows: The windows.
        scale: Factor of the dot products.
        table_versions: Versions of the mask's tables, which the backward pass reads again.
    """

    windows: Windows
    scale: float
    table_versions: list[int]

    def check_unchanged(self) -> None:
        """Raise BackendError if a table of the mask has changed since the forward pass."""
        if self.table_versions != [table._version for table in self.windows.mask.tables]:
            raise BackendError(
                "a table of the mask was changed between the forward and the backward pass; pass a copy of it"
            )


class _Call(NamedTuple):
    """The part of the windows that one call of the kernel computes."""

    index: tuple[slice, slice]  # sequences and blocks
    added_mask: Tensor  # 0 or -inf, [sequence, block, query, key]
    is_empty: Tensor  # rows that may attend to no key, [block or 1, query]


class _Layout:
    """Copies of query, key and value in blocks; the keys and values are padded to whole windows."""

    def __init__(self, windows: Windows, query: Tensor, key: Tensor, value: Tensor) -> None:
        self.windows = windows
        self.batch, self.heads, self.queries, self.query_width = query.shape
        self.groups = key.shape[1]
        # The kernel needs values as wide as keys; columns of zeros change neither scores nor outputs.
        self.width = max(query.shape[-1], value.shape[-1])
        self.query = self.split_queries(query, self.width)
        self.padded_key = self._pad_keys(key, query.dtype)
        self.padded_value = self._pad_keys(value, query.dtype)

    @property
    def sequences(self) -> int:
        return self.batch * self.heads

    def split_queries(self, tensor: Tensor, width: int) -> Tensor:
        """Return ``[batch, head, query, width]`` as ``[sequence, block, query, width]``, filled up with zeros."""
        count, block = self.windows.block_count, self.windows.block
        columns, rows = width - tensor.shape[-1], count * block - self.queries
        if columns or rows:
            tensor = functional.pad(tensor, (0, columns, 0, rows))
        return tensor.reshape(self.sequences, count, block, width)

    def join_queries(self, blocks: Tensor, width: int) -> Tensor:
        """Undo ``split_queries``."""
        return blocks.view(self.batch, self.heads, -1, self.width)[:, :, : self.queries, :width]

    @property
    def padded_length(self) -> int:
        return (self.windows.block_count + self.windows.part_count - 1) * self.windows.block

    @property
    def padded_keys(self) -> slice:
        """Where the keys are in the padded copy."""
        keys = self.windows.keys
        return slice(keys.start - self.windows.first, keys.start - self.windows.first + len(keys))

    def _pad_keys(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the keys inside the band, one copy per head, ``[sequence, padded key, width]``."""
        keys, heads_per_group = self.windows.keys, self.heads // self.groups
        padded = tensor.new_zeros(self.batch, self.groups, heads_per_group, self.padded_length, self.width, dtype=dtype)
        inside = tensor[:, :, None, keys.start : keys.start + len(keys)]
        padded[..., self.padded_keys, : tensor.shape[-1]] = inside
        return padded.view(self.sequences, self.padded_length, self.width)

    def unpad_keys(self, padded: Tensor, like: Tensor) -> Tensor:
        """Undo ``_pad_keys``: add up the heads of each group, and put zeros outside the band."""
        keys = self.windows.keys
        inside = padded.view(self.batch, self.groups, -1, self.padded_length, self.width)
        inside = inside[..., self.padded_keys, : like.shape[-1]].sum(2)
        if len(keys) == like.shape[2]:
            return inside.to(like.dtype)
        full = torch.zeros_like(like)
        full[:, :, keys.start : keys.start + len(keys)] = inside
        return full

    def view_windows(self, padded: Tensor) -> Tensor:
        """View padded keys or values as overlapping windows, ``[sequence, block, key, width]``."""
        windows = self.windows
        size = (self.sequences, windows.block_count, windows.width, self.width)
        return padded.as_strided(size, (padded.stride(0), windows.block * self.width, self.width, 1))

    def iterate_calls(self) -> Iterator[_Call]:
        """Yield what each call of the kernel computes; unread keys are zero from then on."""
        windows = self.windows
        window_bytes = windows.width * self.width * self.query.element_size()
        for group in windows.group_sequences():
            pieces = windows.evaluate_mask(group)
            self._zero_unread_keys(group.sequences, pieces)
            for blocks, allowed in pieces:
                for part in _split(blocks, MAX_WINDOW_BYTES // window_bytes):
                    cells = allowed if len(allowed) == 1 else allowed[part.start - blocks.start :][: _size(part)]
                    added_mask = torch.zeros(cells.shape, dtype=self.query.dtype, device=self.query.device)
                    added_mask.masked_fill_(~cells, float("-inf"))
                    is_empty = ~cells.any(-1)
                    for sequences in _split(group.sequences, MAX_WINDOW_BYTES // (window_bytes * _size(part))):
                        shape = (_size(sequences), _size(part), *cells.shape[1:])
                        yield _Call((sequences, part), added_mask.expand(shape), is_empty)

    def _zero_unread_keys(self, sequences: slice, pieces: list[Piece]) -> None:
        """Replace keys that no query reads by zeros: 0 * NaN is NaN, and padding may hold anything."""
        unread = self.windows.find_unread_keys(pieces)
        if bool(unread[self.padded_keys].any()):
            for padded in (self.padded_key, self.padded_value):
                padded[sequences].masked_fill_(unread[:, None], 0.0)


def _split(indices: slice, limit: int) -> list[slice]:
    """Split a slice into equal parts of at most ``limit`` indices, and at least 1."""
    count = _size(indices)
    parts = -(-count // max(limit, 1))
    bounds = [indices.start + count * part // parts for part in range(parts + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _size(indices: slice) -> int:
    return int(indices.stop - indices.start)


class _BandAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: BandPlan, query, key, value):  # type: ignore[no-untyped-def]
        layout = _Layout(plan.windows, query, key, value)
        keys, values = layout.view_windows(layout.padded_key), layout.view_windows(layout.padded_value)
        output_blocks = torch.empty_like(layout.query)
        logsumexp_blocks = layout.query.new_empty(layout.query.shape[:-1])
        for call in layout.iterate_calls():
            index = call.index
            output_blocks[index], logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                layout.query[index], keys[index], values[index], attn_mask=call.added_mask, scale=plan.scale
            )
            logsumexp_blocks[index] = logsumexp.masked_fill(call.is_empty, float("-inf"))

        output = layout.join_queries(output_blocks, value.shape[-1])
        logsumexp = logsumexp_blocks.view(layout.batch, layout.heads, -1)[:, :, : layout.queries]
        ctx.plan = plan
        ctx.save_for_backward(query, key, value, output, logsumexp)
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    def backward(ctx, grad_output, _):  # type: ignore[no-untyped-def]
        if torch.is_grad_enabled():  # create_graph=True, but the gradients computed here have no graph
            raise BackendError('blocked has no second derivative; use backend="explicit"')
        plan: BandPlan = ctx.plan
        plan.check_unchanged()
        query, key, value, output, logsumexp = ctx.saved_tensors
        layout, windows = _Layout(plan.windows, query, key, value), plan.windows
        keys, values = layout.view_windows(layout.padded_key), layout.view_windows(layout.padded_value)
        grad_blocks, output_blocks = (layout.split_queries(tensor, layout.width) for tensor in (grad_output, output))
        # An empty row has weights exp(-inf - 0) = 0.
        finite = logsumexp.masked_fill(logsumexp == float("-inf"), 0.0)
        logsumexp_blocks = layout.split_queries(finite[..., None], width=1).squeeze(-1)

        grad_query = torch.empty_like(layout.query)
        grad_key, grad_value = torch.zeros_like(layout.padded_key), torch.zeros_like(layout.padded_value)
        for call in layout.iterate_calls():
            index = call.index
            grad_query[index], *grad_windows = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad_blocks[index],
                layout.query[index],
                keys[index],
                values[index],
                output_blocks[index],
                logsumexp_blocks[index],
                0.0,
                False,
                attn_mask=call.added_mask,
                scale=plan.scale,
            )
            for grad, grad_window in zip((grad_key, grad_value), grad_windows, strict=True):
                _add_windows(grad, grad_window, index, windows)

        return (
            None,
            layout.join_queries(grad_query, query.shape[-1]),
            layout.unpad_keys(grad_key, key),
            layout.unpad_keys(grad_value, value),
        )


def _add_windows(padded: Tensor, windows_grad: Tensor, index: tuple[slice, slice], windows: Windows) -> None:
    """Add the gradients of overlapping windows to those of the padded keys, one block of every window at a time."""
    sequences, blocks = index
    blocks_of_keys = padded.view(len(padded), -1, windows.block, padded.shape[-1])
    for part in range(windows.part_count):
        columns = windows_grad[:, :, part * windows.block : (part + 1) * windows.block]
        blocks_of_keys[sequences, blocks.start + part : blocks.stop + part, : columns.shape[2]] += columns
