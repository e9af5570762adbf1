"""Block-sparse attention in plain PyTorch: forbidden blocks are neither computed nor stored. Trains on CPU and GPU.

Dot products in a band around the diagonal are computed by ``band.py``, all others tile by tile:

1. Block classes. The mask classifies blocks of 128 queries and 64 keys from their lowest and highest positions: EMPTY,
   PARTIAL or FULL. It may answer EMPTY or FULL only if that is certain. ``&`` is the minimum, ``|`` the maximum, and
   ``~`` reverses the order (Kleene's logic). Layouts of hashable masks are cached.
2. Key runs. Adjacent key blocks that are not empty form a run of at most 1,024 keys. Empty blocks are never read, and
   where a run is full, the mask is not evaluated again.
3. Tiles. A block of queries on a key run is score + bias, masked, as in the explicit backend, so every score, bias and
   mask works. Keys that no query of a tile reads are replaced by zeros, because 0 x NaN is NaN.
4. The tiles of a row are joined by the online softmax of Milakov and Gimelshein (2018).
5. The backward pass computes the scores of each tile again from query, key and the row log-sum-exp (Dao et al. 2022),
   and draws the same dropout again, so memory grows with n, not with n^2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention.groups import multiply_by_group, sum_products_by_group

from . import band
from .block_plan import KeyRun, Plan, TileMask, collect_gradient_tensors
from .protocol import AttentionOutput, AttentionRequest, check_backward, disable_autocast


def explain_refusal(request: AttentionRequest) -> str | None:
    """Return why the request cannot be computed here and which backend can, or None."""
    if request.query.is_meta:
        return (
            'blocked reads the mask, but tensors on the meta device hold no numbers; use backend="explicit" or "sdpa"'
        )
    if torch._C._are_functorch_transforms_active():
        return 'blocked has no rule for torch.func (grad, vmap, ...); use backend="explicit" or "sdpa"'
    return 'blocked keeps no weights; use backend="explicit"' if request.weights else None


def compute(request: AttentionRequest) -> AttentionOutput:
    """Compute a request."""
    with disable_autocast(request):  # both passes compute in float32 or float64
        answer = band.compute(request)
        if answer is not None:
            return answer
        plan = Plan.make(request)
        output, logsumexp = _BlockedAttention.apply(  # type: ignore[no-untyped-call]
            plan, *collect_gradient_tensors(request)
        )
    return AttentionOutput(output, logsumexp=logsumexp if request.logsumexp else None)


def _select_keys(tensor: Tensor, tile: TileMask, dtype: torch.dtype) -> Tensor:
    """Return the keys or values of a tile; those that none of its queries reads become zeros: 0 * NaN is NaN, and
    padding may hold anything."""
    selected, unused = tensor[:, :, tile.keys].to(dtype), tile.unused
    if unused is None:
        return selected
    groups = selected.shape[1]
    if unused.shape[1] > groups:
        unused = unused.unflatten(1, (groups, -1)).all(2)
    return selected.masked_fill(unused[..., None], 0.0)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, query, key, value, *parameters):  # type: ignore[no-untyped-def]
        batch, head, length, _ = query.shape
        output = query.new_zeros(batch, head, length, value.shape[-1])
        logsumexp = torch.full((batch, head, length), float("-inf"), dtype=plan.dtype, device=query.device)
        sink = plan.score.convert_sink(logsumexp)
        if sink is not None:  # a row that reads no key still has the sink
            logsumexp.copy_(sink[:, None].expand_as(logsumexp))

        for queries, runs in plan.iterate_rows():
            block = query[:, :, queries].to(plan.dtype)
            block_output = _compute_query_block(plan, block, key, value, queries, runs)
            if block_output is not None:
                output[:, :, queries], logsumexp[:, :, queries] = block_output

        ctx.plan = plan
        ctx.save_for_backward(query, key, value, output, logsumexp, *parameters)
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    def backward(ctx, grad_output, _):  # type: ignore[no-untyped-def]
        plan: Plan = ctx.plan
        check_backward(plan.mask, plan.table_versions)
        query, key, value, output, logsumexp, *parameters = ctx.saved_tensors
        needed = [index for index, is_needed in enumerate(ctx.needs_input_grad[4:]) if is_needed]
        gradients = _Gradients(
            torch.zeros_like(query, dtype=plan.dtype),
            torch.zeros_like(key, dtype=plan.dtype),
            torch.zeros_like(value, dtype=plan.dtype),
            {index: torch.zeros_like(parameters[index]) for index in needed},
        )

        for queries, runs in plan.iterate_rows():
            grad_block = grad_output[:, :, queries].to(plan.dtype)
            # the sum of p * dp over a row, sink included, is output . grad_output
            row_sum = (grad_block * output[:, :, queries].to(plan.dtype)).sum(-1, keepdim=True)
            total = logsumexp[:, :, queries, None]
            total = total.masked_fill(total == float("-inf"), float("inf"))  # empty rows: exp(-inf) is 0
            block = _BackwardBlock(queries, query[:, :, queries].to(plan.dtype), grad_block, row_sum, total)
            for run in runs:
                _add_tile_gradients(plan, gradients, block, key, value, parameters, run)
            _add_sink_gradient(plan, gradients, block, parameters)

        return (
            None,
            gradients.query.to(query.dtype),
            gradients.key.to(key.dtype),
            gradients.value.to(value.dtype),
            *(gradients.parameters.get(index) for index in range(len(parameters))),
        )


class _Gradients(NamedTuple):
    """The gradients that the backward pass adds up; those of parameters by index."""

    query: Tensor
    key: Tensor
    value: Tensor
    parameters: dict[int, Tensor]


class _BackwardBlock(NamedTuple):
    """One block of queries in the backward pass."""

    queries: slice
    query: Tensor
    grad_output: Tensor
    row_sum: Tensor  # sum of weight * gradient of the weight, over each row
    total: Tensor  # row log-sum-exp; infinity for empty rows


def _add_tile_gradients(
    plan: Plan,
    gradients: _Gradients,
    block: _BackwardBlock,
    key: Tensor,
    value: Tensor,
    parameters: list[Tensor],
    run: KeyRun,
) -> None:
    tile = plan.get_tile_mask(block.queries, run)
    keys, forbidden = tile.keys, tile.forbidden
    if keys.start == keys.stop:
        return
    tile_key, tile_value = _select_keys(key, tile, plan.dtype), _select_keys(value, tile, plan.dtype)

    with torch.enable_grad():
        query_leaf = block.query.detach().requires_grad_()
        key_leaf = tile_key.detach().requires_grad_()
        scores = plan.compute_unmasked_scores(query_leaf, key_leaf, block.queries, keys)

    masked = scores.detach()
    if forbidden is not None:
        masked = masked.masked_fill(forbidden, float("-inf"))
    weights = torch.exp(masked - block.total)
    dropout_factor = plan.make_dropout_factor(weights.shape, block.queries, keys)
    dropped = weights if dropout_factor is None else weights * dropout_factor
    gradients.value[:, :, keys] += sum_products_by_group(dropped, block.grad_output, value.shape[1])

    grad_weights = multiply_by_group(block.grad_output, tile_value.transpose(-1, -2))
    if dropout_factor is not None:
        grad_weights *= dropout_factor
    grad_scores = grad_weights.sub_(block.row_sum).mul_(weights)

    leaves = [query_leaf, key_leaf, *(parameters[index] for index in gradients.parameters)]
    grad_query, grad_key, *grad_parameters = torch.autograd.grad(scores, leaves, grad_scores, allow_unused=True)
    gradients.query[:, :, block.queries] += grad_query
    gradients.key[:, :, keys] += grad_key
    for index, grad in zip(gradients.parameters, grad_parameters, strict=True):
        if grad is not None:
            gradients.parameters[index].add_(grad)


def _add_sink_gradient(plan: Plan, gradients: _Gradients, block: _BackwardBlock, parameters: list[Tensor]) -> None:
    sink, finite_sink = plan.score.sink, plan.score.convert_sink(block.total)
    if sink is None or finite_sink is None:
        return
    # d softmax / d sink: the sink's own weight, times (0 - row_sum)
    sink_weight = torch.exp(finite_sink.detach()[:, None, None] - block.total)
    for index, grad in gradients.parameters.items():
        if parameters[index] is sink or parameters[index].data_ptr() == sink.data_ptr():
            grad.sub_((sink_weight * block.row_sum).sum((0, 2, 3)).to(grad))


def _compute_query_block(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, queries: slice, runs: list[KeyRun]
) -> tuple[Tensor, Tensor] | None:
    """Return output and row log-sum-exp of one block of queries, or None if it reads no key."""
    if len(runs) == 1 and not (plan.needs_logsumexp or plan.dropout) and plan.score.sink is None:
        return _compute_single_run(plan, query, key, value, queries, runs[0])

    largest: Tensor | None = None
    total = output = query.new_zeros(())
    for run in runs:
        tile = plan.get_tile_mask(queries, run)
        if tile.keys.start == tile.keys.stop:
            continue
        scores = _compute_masked_scores(plan, query, key, queries, tile)
        new_largest = scores.amax(-1, keepdim=True)
        if largest is not None:
            new_largest = torch.maximum(new_largest, largest)
        base = new_largest.masked_fill(new_largest == float("-inf"), 0.0)  # an empty row so far: exp(-inf - 0) is 0

        weights = scores.sub_(base).exp_()
        tile_total = weights.sum(-1, keepdim=True)
        dropout_factor = plan.make_dropout_factor(weights.shape, queries, tile.keys)
        if dropout_factor is not None:
            weights *= dropout_factor
        tile_output = multiply_by_group(weights, _select_keys(value, tile, plan.dtype))

        if largest is None:
            total, output = tile_total, tile_output
        else:
            rescale = torch.exp(largest - base)
            total, output = total * rescale + tile_total, output * rescale + tile_output
        largest = new_largest

    if largest is None:
        return None
    sink = plan.score.convert_sink(total)
    if sink is not None:
        return _add_sink(sink, largest, total, output)
    # An empty row has total 0 and output 0: 0 / 1, and a log-sum-exp of -inf.
    return output / total.masked_fill(total == 0, 1.0), (largest + total.log()).squeeze(-1)


def _compute_masked_scores(plan: Plan, query: Tensor, key: Tensor, queries: slice, tile: TileMask) -> Tensor:
    scores = plan.compute_unmasked_scores(query, _select_keys(key, tile, plan.dtype), queries, tile.keys)
    if tile.forbidden is not None:
        scores.masked_fill_(tile.forbidden, float("-inf"))
    return scores


def _add_sink(sink: Tensor, largest: Tensor, total: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Add the sink to the sum of every row; a row without keys has output 0."""
    joined = torch.logaddexp(largest + total.log(), sink[:, None, None].expand_as(largest))
    base = largest.masked_fill(largest == float("-inf"), 0.0)
    return output * torch.exp(base - joined), joined.squeeze(-1)


def _compute_single_run(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, queries: slice, run: KeyRun
) -> tuple[Tensor, Tensor] | None:
    """Compute a block of queries that reads one run of keys by one fused softmax, without the log-sum-exp."""
    tile = plan.get_tile_mask(queries, run)
    if tile.keys.start == tile.keys.stop:
        return None

    weights = _compute_masked_scores(plan, query, key, queries, tile).softmax(-1)
    if tile.forbidden is not None:
        empty = tile.forbidden.all(-1, keepdim=True)
        if bool(empty.any()):
            weights = weights.masked_fill(empty, 0.0)
    return multiply_by_group(weights, _select_keys(value, tile, plan.dtype)), query.new_full((), float("-inf"))
