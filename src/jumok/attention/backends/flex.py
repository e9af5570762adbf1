"""PyTorch's FlexAttention, compiled: inference with sparse masks. "auto" never selects it, as it compiles for seconds.

On a CPU its backward pass is not implemented, and it cannot return the log-sum-exp; use ``blocked`` for training.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from jumok.attention.grid import Grid, Positions
from jumok.attention.mask.base import Mask
from jumok.attention.score import ScaledDot

from .protocol import AttentionOutput, AttentionRequest

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

MAX_KERNELS = 256  # compiled variants (mask, shapes, dtype) in one process


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return why the request cannot be computed here and which backend can, or None."""
    if request.weights:
        return 'flex keeps no weights; use backend="explicit"'
    if request.logsumexp:
        return 'flex keeps no row log-sum-exp; use backend="blocked" or "explicit"'
    if torch.is_grad_enabled() and any(t.requires_grad for t in (request.query, request.key, request.value)):
        return 'flex is for inference (torch.no_grad); to train use backend="blocked" or "sdpa"'
    if request.dropout:
        return 'flex has no dropout; use backend="blocked" or "sdpa"'
    if not isinstance(request.score, ScaledDot) or request.score.sink is not None:
        return f'flex computes dot products, not {request.score!r}; use backend="explicit" or "blocked"'
    if request.bias is not None:
        return 'flex takes no bias; use backend="blocked" or "sdpa"'
    if request.mask is not None and not request.mask.is_traceable:
        return 'flex cannot draw random_keys inside its kernel; use backend="blocked" or "sdpa"'
    if request.query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return (
            f'flex computes float32, bfloat16 and float16, not {request.query.dtype}; use backend="blocked" or "sdpa"'
        )
    if 0 in request.query.shape or 0 in request.key.shape:
        return 'flex needs at least one query and one key; use backend="blocked" or "sdpa"'
    return None


class _Cell(Grid):
    """A grid of one cell, whose coordinates are scalar tensors that the compiler traces."""

    def __init__(self, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> None:
        self._batch, self._head, self._query, self._key = batch, head, query, key

    @property
    def batch(self) -> Tensor:
        return self._batch

    @property
    def head(self) -> Tensor:
        return self._head


def compute(request: AttentionRequest) -> AttentionOutput:
    """Compute a request."""
    score = request.score
    assert isinstance(score, ScaledDot)
    # Every mask is compiled separately; the compiler's default limit of eight would refuse the ninth.
    with torch._dynamo.config.patch(recompile_limit=MAX_KERNELS):
        output = _compile_flex_attention()(
            # New tensor objects on the same memory. With attend(x, y, y) after attend(x, y, z), the compiler's guard
            # that no two arguments are one object fails, and its report of that raises AttributeError if one of the
            # calls has a mask and the other has none.
            request.query.detach(),
            request.key.detach(),
            request.value.detach(),
            score_mod=None if score.softcap is None else _make_softcap_function(score.softcap),
            block_mask=None if request.mask is None else _make_block_mask(request.mask, request.grid),
            scale=score.get_scale(request.query),
            enable_gqa=request.key.shape[1] != request.query.shape[1],
        )
    return AttentionOutput(output)


@lru_cache(maxsize=1)
def _compile_flex_attention() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # fullgraph: without it, a failed trace silently falls back to slow eager code
    return torch.compile(flex_attention, fullgraph=True, dynamic=False)


@lru_cache(maxsize=32)
def _make_softcap_function(softcap: float) -> Callable[..., Tensor]:
    def apply_softcap(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return apply_softcap


def _make_block_mask(mask: Mask, grid: Grid) -> BlockMask:
    from torch.nn.attention.flex_attention import create_block_mask

    mask = mask.make_traceable(grid.max_position("key") + 1)
    get_query_position = _make_position_function(grid.query_positions)
    get_key_position = _make_position_function(grid.key_positions)

    def is_allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.evaluate(_Cell(batch, head, get_query_position(batch, query), get_key_position(batch, key)))

    batch, head, queries, keys = grid.shape
    return create_block_mask(is_allowed, batch, head, queries, keys, device=str(grid.device))


def _make_position_function(positions: Positions) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from (batch row, index) to the position."""
    if isinstance(positions, range):
        start, step = positions.start, positions.step
        return lambda batch, index: start + step * index
    positions = positions.detach()  # queries and keys may have one tensor of positions (see compute)
    if positions.dim() == 1 or positions.shape[0] == 1:
        line = positions.reshape(-1)
        return lambda batch, index: line[index]
    return lambda batch, index: positions[batch, index]
