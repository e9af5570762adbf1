"""Block-sparse attention of our own: what the mask forbids is neither computed nor kept. Trains on CPU and GPU.

Queries are taken a block at a time. The mask says of whole blocks of keys whether it reaches them; those that it
does are read as slices of the original tensors (no copies), a bounded number of keys at a time, with the running
softmax of Milakov and Gimelshein (2018) joining the parts. The backward pass computes each tile's scores again from
query, key and the row log-sum-exp (Dao et al. 2022), so memory grows with n, not with n x n. Because a tile is
score + bias, masked, like everywhere else, every score, bias and mask works here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention.bias import Bias
from jumok.attention.grid import BlockGrid, Grid, Positions
from jumok.attention.groups import grouped_matmul, grouped_outer
from jumok.attention.mask.base import EMPTY, FULL, Mask
from jumok.attention.score import Score
from jumok.errors import BackendError

from .protocol import AttentionOutput, AttentionRequest

# Measured (bench/attend.py): smaller query blocks waste less at the edges of a window, larger ones use the
# matrix product better; keys are looked at in finer steps because skipping them costs nothing.
QUERY_BLOCK = 128
KEY_BLOCK = 64
LONGEST_RUN = 1024  # keys in one tile: bounds memory where a row reads everything


def explain_refusal(request: AttentionRequest) -> str | None:
    return 'blocked keeps no weights; use backend="explicit"' if request.weights else None


def compute(request: AttentionRequest) -> AttentionOutput:
    plan = Plan.of(request)
    with torch.autocast(request.query.device.type, enabled=False):  # both passes compute in the plan's own type
        output, logsumexp = _Blocked.apply(plan, *_inputs(request))  # type: ignore[no-untyped-call]
    return AttentionOutput(output, logsumexp=logsumexp if request.logsumexp else None)


def _inputs(request: AttentionRequest) -> tuple[Tensor, ...]:
    """Whatever a gradient may have to reach; a tensor that serves twice is named once, and gets its whole gradient."""
    bias = () if request.bias is None else request.bias.gradient_tensors()
    others = {id(tensor): tensor for tensor in (*request.score.gradient_tensors(), *bias)}
    return request.query, request.key, request.value, *others.values()


def _snapshot(score: Score) -> Score:
    """The score with the parameters that it has now: a module's may be swapped before the backward pass
    (torch.func.functional_call does)."""
    if not isinstance(score, nn.Module):
        return score
    kept = copy.copy(score)
    kept._parameters = dict(score._parameters)
    return kept


class Run(NamedTuple):
    """Keys start..stop, read together; ``partial`` where the mask must be asked cell by cell."""

    start: int
    stop: int
    partial: bool


class Cells(NamedTuple):
    """The mask on one tile: which keys are worth reading, and which cells of those are forbidden."""

    keys: slice
    forbidden: Tensor | None
    silent: Tensor | None  # keys that no query of the tile reads, where there are such


def layout(mask: Mask | None, grid: Grid) -> list[list[Run]]:
    """For each block of queries, the runs of keys that the mask reaches."""
    queries, keys = grid.shape[2:]
    rows = -(-queries // QUERY_BLOCK)
    if mask is None or not queries or not keys:
        return [list(_chunks(0, keys, False)) for _ in range(rows)]
    reach = mask.classify_blocks(BlockGrid(grid, QUERY_BLOCK, KEY_BLOCK))
    # skipped only where no batch entry and no head reaches; asked cell by cell unless all reach everything
    size = (rows, -(-keys // KEY_BLOCK))
    largest = reach.amax((0, 1)).expand(size).tolist()
    smallest = reach.amin((0, 1)).expand(size).tolist()
    return [list(_runs(high, low, keys)) for high, low in zip(largest, smallest, strict=True)]


def _runs(largest: list[int], smallest: list[int], keys: int) -> Iterator[Run]:
    start: int | None = None
    for block, reach in enumerate([*largest, EMPTY]):
        if reach != EMPTY and start is None:
            start = block
        elif reach == EMPTY and start is not None:
            for run in _chunks(start * KEY_BLOCK, min(block * KEY_BLOCK, keys), False):
                inside = smallest[run.start // KEY_BLOCK : -(-run.stop // KEY_BLOCK)]
                yield run._replace(partial=min(inside) != FULL)
            start = None


def _chunks(start: int, stop: int, partial: bool) -> Iterator[Run]:
    for begin in range(start, stop, LONGEST_RUN):
        yield Run(begin, min(begin + LONGEST_RUN, stop), partial)


@lru_cache(maxsize=64)
def _known_layout(mask: Mask, heads: int, batch: int, queries: range, keys: range) -> list[list[Run]]:
    return layout(mask, Grid(range(batch), range(heads), queries, keys))


def _layout(mask: Mask | None, grid: Grid) -> list[list[Run]]:
    if mask is None:
        return layout(mask, grid)
    try:
        hash(mask)
    except TypeError:  # it holds a tensor
        return layout(mask, grid)
    positions: tuple[Positions, Positions] = (grid.query_positions, grid.key_positions)
    if isinstance(positions[0], range) and isinstance(positions[1], range):
        return _known_layout(mask, len(grid.heads), len(grid.batches), *positions)
    return layout(mask, grid)


def coverage(mask: Mask | None, grid: Grid) -> float:
    """The share of cells that this backend would compute: what ``auto`` decides by."""
    queries, keys = grid.shape[2:]
    if not queries or not keys:
        return 0.0
    rows = _layout(mask, grid)
    cells = sum(
        (run.stop - run.start) * (min((index + 1) * QUERY_BLOCK, queries) - index * QUERY_BLOCK)
        for index, runs in enumerate(rows)
        for run in runs
    )
    return cells / (queries * keys)


@dataclass(eq=False)
class Plan:
    """Which tiles there are, and how to make one. Made in the forward pass, read again in the backward."""

    rows: list[list[Run]]
    grid: Grid
    mask: Mask | None
    bias: Bias | None
    score: Score
    dropout: float
    seed: int
    dtype: torch.dtype
    versions: list[int]  # of the mask's tables: the backward pass reads them again
    totals: bool  # is the row log-sum-exp needed: by a listener, or by the backward pass
    _seen: dict[tuple[int, int, int], Cells] = field(default_factory=dict)

    @staticmethod
    def of(request: AttentionRequest) -> Plan:
        # drawn from torch's own stream, so that a seeded program stays reproducible
        seed = int(torch.randint(2**62, ()).item()) if request.dropout else 0
        dtype = torch.promote_types(request.query.dtype, torch.float32)
        rows = _layout(request.mask, request.grid)
        score, bias = _snapshot(request.score), request.bias
        learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _inputs(request))
        totals = request.logsumexp or learning
        versions = [table._version for table in request.mask.tables()] if request.mask is not None and learning else []
        return Plan(rows, request.grid, request.mask, bias, score, request.dropout, seed, dtype, versions, totals)

    def check_unchanged(self) -> None:
        if self.mask is not None and self.versions != [table._version for table in self.mask.tables()]:
            raise BackendError("a table of the mask was changed between the forward and the backward pass; give a copy")

    def tiles(self) -> Iterator[tuple[slice, list[Run]]]:
        queries = self.grid.shape[2]
        for index, runs in enumerate(self.rows):
            yield slice(index * QUERY_BLOCK, min((index + 1) * QUERY_BLOCK, queries)), runs

    def cells(self, queries: slice, run: Run) -> Cells:
        keys = slice(run.start, run.stop)
        if self.mask is None or not run.partial:
            return Cells(keys, None, None)
        if not (self.mask.relative and self.grid.contiguous):
            if not self.totals:  # no backward pass will ask again
                return self._evaluated(queries, keys)
            here = (queries.start, run.start, -1)
            if here not in self._seen:
                self._seen[here] = self._evaluated(queries, keys)
            return self._seen[here]
        # only query - key matters: tiles that lie alike are evaluated once
        shift = (queries.start - run.start, queries.stop - queries.start, run.stop - run.start)
        if shift not in self._seen:
            found = self._evaluated(queries, keys)
            near = slice(found.keys.start - run.start, found.keys.stop - run.start)
            self._seen[shift] = found._replace(keys=near)
        known = self._seen[shift]
        return known._replace(keys=slice(run.start + known.keys.start, run.start + known.keys.stop))

    def _evaluated(self, queries: slice, keys: slice) -> Cells:
        assert self.mask is not None
        tile = self.grid.tile(queries, keys)
        allowed = self.mask.evaluate(tile)
        allowed = allowed.expand(*allowed.shape[:2], *tile.shape[2:])
        read = allowed.any(-2)  # [batch or 1, head or 1, key]
        places = read.any(0).any(0).nonzero()
        if not len(places):
            return Cells(slice(keys.start, keys.start), None, None)
        first, last = int(places[0]), int(places[-1]) + 1
        read = read[..., first:last]
        silent = None if bool(read.all()) else ~read
        trimmed = slice(keys.start + first, keys.start + last)
        return Cells(trimmed, ~allowed[..., first:last], silent)

    def scores(self, query: Tensor, key: Tensor, queries: slice, keys: slice) -> Tensor:
        scores = self.score.evaluate(query, key)
        if self.bias is not None:
            scores = scores + self.bias.evaluate(self.grid.tile(queries, keys)).to(scores.dtype)
        return scores

    def kept(self, shape: torch.Size, queries: slice, keys: slice) -> Tensor | None:
        """Dropout's factor for one tile: the same numbers in the forward and in the backward pass."""
        if not self.dropout:
            return None
        place = queries.start * self.grid.shape[3] + keys.start
        generator = torch.Generator(self.grid.device).manual_seed((self.seed + place) % 2**63)
        keep = torch.rand(shape, generator=generator, device=self.grid.device) >= self.dropout
        return keep.to(self.dtype) / (1 - self.dropout)


def _quiet(tensor: Tensor, silent: Tensor | None) -> Tensor:
    """Zeros in place of keys that no query of this tile reads: 0 x NaN is NaN, and padding may hold anything."""
    if silent is None:
        return tensor
    groups = tensor.shape[1]
    if silent.shape[1] > groups:
        silent = silent.unflatten(1, (groups, -1)).all(2)
    return tensor.masked_fill(silent[..., None], 0.0)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan: Plan, query, key, value, *tensors):  # type: ignore[no-untyped-def]
        batch, head, length, _ = query.shape
        output = query.new_zeros(batch, head, length, value.shape[-1])
        logsumexp = torch.full((batch, head, length), float("-inf"), dtype=plan.dtype, device=query.device)
        if plan.score.sink is not None:  # where a row reads nothing, the sink is all that there is
            logsumexp.copy_(plan.score.sink.to(plan.dtype)[:, None].expand_as(logsumexp))
        for queries, runs in plan.tiles():
            block = query[:, :, queries].to(plan.dtype)
            made = _row_block(plan, block, key, value, queries, runs)
            if made is not None:
                output[:, :, queries], logsumexp[:, :, queries] = made
        ctx.plan = plan
        ctx.save_for_backward(query, key, value, output, logsumexp, *tensors)
        ctx.mark_non_differentiable(logsumexp)
        return output, logsumexp

    @staticmethod
    def backward(ctx, grad_output, _):  # type: ignore[no-untyped-def]
        if torch.is_grad_enabled():  # create_graph=True: what is computed here has no graph
            raise BackendError('blocked has no second derivative; use backend="explicit"')
        plan: Plan = ctx.plan
        plan.check_unchanged()
        query, key, value, output, logsumexp, *tensors = ctx.saved_tensors
        wide = plan.dtype
        grad_query = torch.zeros_like(query, dtype=wide)
        grad_key = torch.zeros_like(key, dtype=wide)
        grad_value = torch.zeros_like(value, dtype=wide)
        wanted = [index for index, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        grad_tensors = {index: torch.zeros_like(tensors[index]) for index in wanted}
        sink = plan.score.sink
        for queries, runs in plan.tiles():
            block = query[:, :, queries].to(wide)
            grad_block = grad_output[:, :, queries].to(wide)
            # the sum of p * dp over a row, sink included: it is output . grad_output
            row = (grad_block * output[:, :, queries].to(wide)).sum(-1, keepdim=True)
            total = logsumexp[:, :, queries, None]
            total = total.masked_fill(total == float("-inf"), float("inf"))  # empty rows: exp(-inf) is 0
            for run in runs:
                keys, forbidden, silent = plan.cells(queries, run)
                if keys.start == keys.stop:
                    continue
                near = _quiet(key[:, :, keys].to(wide), silent)
                values = _quiet(value[:, :, keys].to(wide), silent)
                with torch.enable_grad():
                    block_leaf, near_leaf = block.detach().requires_grad_(), near.detach().requires_grad_()
                    scores = plan.scores(block_leaf, near_leaf, queries, keys)
                exact = scores.detach()
                if forbidden is not None:
                    exact = exact.masked_fill(forbidden, float("-inf"))
                weights = torch.exp(exact - total)
                kept = plan.kept(weights.shape, queries, keys)
                dropped = weights if kept is None else weights * kept
                grad_value[:, :, keys] += grouped_outer(dropped, grad_block, value.shape[1])
                grad_weights = grouped_matmul(grad_block, values.transpose(-1, -2))
                if kept is not None:
                    grad_weights *= kept
                grad_scores = grad_weights.sub_(row).mul_(weights)
                leaves = [block_leaf, near_leaf, *(tensors[index] for index in wanted)]
                grads = torch.autograd.grad(scores, leaves, grad_scores, allow_unused=True)
                grad_query[:, :, queries] += grads[0]
                grad_key[:, :, keys] += grads[1]
                for index, grad in zip(wanted, grads[2:], strict=True):
                    if grad is not None:
                        grad_tensors[index] += grad
            if sink is not None:
                # d softmax / d sink: the sink's own weight, times (0 - row)
                taken = torch.exp(sink.detach().to(wide)[:, None, None] - total)
                for index in wanted:
                    if tensors[index] is sink or tensors[index].data_ptr() == sink.data_ptr():
                        grad_tensors[index] -= (taken * row).sum((0, 2, 3)).to(grad_tensors[index])
        answers = [grad_tensors.get(index) for index in range(len(tensors))]
        same = grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)
        return None, *same, *answers


def _row_block(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, queries: slice, runs: list[Run]
) -> tuple[Tensor, Tensor] | None:
    """Output and row log-sum-exp of one block of queries; None where it reads nothing."""
    if len(runs) == 1 and not (plan.totals or plan.dropout) and plan.score.sink is None:
        return _only_run(plan, query, key, value, queries, runs[0])
    largest: Tensor | None = None
    total = output = query.new_zeros(())
    for run in runs:
        keys, forbidden, silent = plan.cells(queries, run)
        if keys.start == keys.stop:
            continue
        near = _quiet(key[:, :, keys].to(plan.dtype), silent)
        scores = plan.scores(query, near, queries, keys)
        if forbidden is not None:
            scores.masked_fill_(forbidden, float("-inf"))
        highest = scores.amax(-1, keepdim=True)
        if largest is not None:
            highest = torch.maximum(highest, largest)
        base = highest.masked_fill(highest == float("-inf"), 0.0)  # a row with nothing yet: exp(-inf - 0) is 0
        weights = scores.sub_(base).exp_()
        added = weights.sum(-1, keepdim=True)
        kept = plan.kept(weights.shape, queries, keys)
        if kept is not None:
            weights *= kept
        part = grouped_matmul(weights, _quiet(value[:, :, keys].to(plan.dtype), silent))
        if largest is None:
            total, output = added, part
        else:
            shrink = torch.exp(largest - base)
            total, output = total * shrink + added, output * shrink + part
        largest = highest
    if largest is None:
        return None
    if plan.score.sink is not None:
        # the sink joins the sum of every row; a row with nothing to attend to keeps its output of 0
        sink = plan.score.sink.to(plan.dtype)[:, None, None]
        joined = torch.logaddexp(largest + total.log(), sink.expand_as(largest))
        base = largest.masked_fill(largest == float("-inf"), 0.0)
        return output * torch.exp(base - joined), joined.squeeze(-1)
    # an empty row has total 0 and output 0: 0 / 1, and a log-sum-exp of -inf
    return output / total.masked_fill(total == 0, 1.0), (largest + total.log()).squeeze(-1)


def _only_run(
    plan: Plan, query: Tensor, key: Tensor, value: Tensor, queries: slice, run: Run
) -> tuple[Tensor, Tensor] | None:
    """The same where all keys of a block stand together and nobody needs the log-sum-exp: one fused softmax."""
    keys, forbidden, silent = plan.cells(queries, run)
    if keys.start == keys.stop:
        return None
    scores = plan.scores(query, _quiet(key[:, :, keys].to(plan.dtype), silent), queries, keys)
    if forbidden is not None:
        scores.masked_fill_(forbidden, float("-inf"))
    weights = scores.softmax(-1)
    if forbidden is not None:
        empty = forbidden.all(-1, keepdim=True)
        if bool(empty.any()):
            weights = weights.masked_fill(empty, 0.0)
    nothing = query.new_full((), float("-inf"))
    return grouped_matmul(weights, _quiet(value[:, :, keys].to(plan.dtype), silent)), nothing
