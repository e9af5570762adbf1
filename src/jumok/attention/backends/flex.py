"""PyTorch's FlexAttention, compiled: inference with sparse masks. Never chosen by "auto": it compiles for seconds.

On a CPU its backward pass raises, and a compiled log-sum-exp is refused; so patterns *train* on ``blocked``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from jumok.attention.grid import Grid, Positions
from jumok.attention.mask.base import And, Mask, Not, Or
from jumok.attention.mask.position_masks import RandomKeys
from jumok.attention.mask.table_masks import PaddingLengths, PaddingTable
from jumok.attention.score import ScaledDot

from .protocol import AttentionOutput, AttentionRequest

MOST_KERNELS = 256  # compiled variants (mask, shapes, number type) in one process


def explain_refusal(request: AttentionRequest) -> str | None:
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
    if request.mask is not None and _random(request.mask):
        return 'flex cannot draw random_keys inside its kernel; use backend="blocked" or "sdpa"'
    if request.query.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return (
            f'flex computes float32, bfloat16 and float16, not {request.query.dtype}; use backend="blocked" or "sdpa"'
        )
    if 0 in request.query.shape or 0 in request.key.shape:
        return 'flex needs at least one query and one key; use backend="blocked" or "sdpa"'
    return None


def _random(mask: Mask) -> bool:
    if isinstance(mask, And | Or):
        return _random(mask.left) or _random(mask.right)
    return _random(mask.inner) if isinstance(mask, Not) else isinstance(mask, RandomKeys)


def _traceable(mask: Mask, keys: int) -> Mask:
    """The same mask without tensors made while it is read: those the compiler cannot follow."""
    if isinstance(mask, And | Or):
        return type(mask)(_traceable(mask.left, keys), _traceable(mask.right, keys))
    if isinstance(mask, Not):
        return Not(_traceable(mask.inner, keys))
    if isinstance(mask, PaddingLengths):
        return PaddingTable(torch.arange(keys) < torch.tensor(mask.lengths)[:, None])
    return mask


class _Cell:
    """A grid of one cell, by numbers that the compiler traces."""

    def __init__(self, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> None:
        self.batch, self.head, self.query, self.key = batch, head, query, key


def compute(request: AttentionRequest) -> AttentionOutput:
    score = request.score
    assert isinstance(score, ScaledDot)
    # each mask is compiled by itself; the compiler's own limit of eight would refuse the ninth
    with torch._dynamo.config.patch(recompile_limit=MOST_KERNELS):
        output = _run(request, score)
    return AttentionOutput(output)


def _run(request: AttentionRequest, score: ScaledDot) -> Tensor:
    return _compiled()(
        request.query,
        request.key,
        request.value,
        score_mod=None if score.softcap is None else _capped(score.softcap),
        block_mask=None if request.mask is None else _block_mask(request.mask, request.grid),
        scale=score._scale(request.query),
        enable_gqa=request.key.shape[1] != request.query.shape[1],
    )


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # fullgraph: without it a failed trace falls back to slow eager code in silence
    return torch.compile(flex_attention, fullgraph=True, dynamic=False)


@lru_cache(maxsize=32)
def _capped(softcap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return capped


def _block_mask(mask: Mask, grid: Grid) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    mask = _traceable(mask, grid.highest("key") + 1)
    where_query, where_key = _place(grid.query_positions), _place(grid.key_positions)

    def allows(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        cell = _Cell(batch, head, where_query(batch, query), where_key(batch, key))
        return mask.evaluate(cell)  # type: ignore[arg-type]  # it reads the same four coordinates

    batch, head, queries, keys = grid.shape
    return create_block_mask(allows, batch, head, queries, keys, device=str(grid.device))


def _place(positions: Positions) -> Callable[[Tensor, Tensor], Tensor]:
    if isinstance(positions, range):
        start, step = positions.start, positions.step
        return lambda batch, index: start + step * index
    if positions.dim() == 1 or positions.shape[0] == 1:
        line = positions.reshape(-1)
        return lambda batch, index: line[index]
    return lambda batch, index: positions[batch, index]
