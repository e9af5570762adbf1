"""The plan of the blocked backend: which tiles it computes, and the mask, bias and dropout of each tile."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention.bias import Bias
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask.base import EMPTY, FULL, Mask
from jumok.attention.score import Score

from .protocol import AttentionRequest, get_table_versions

# Measured (bench/attend.py): smaller query blocks waste less at the edges of a window, larger ones make better use of
# the matrix product; key blocks are smaller because skipping them costs nothing.
QUERY_BLOCK = 128
KEY_BLOCK = 64
MAX_RUN = 1024  # keys in one tile: bounds the memory of a row that reads all keys


class KeyRun(NamedTuple):
    """The keys start to stop - 1, read in one tile; ``partial`` if the mask must be evaluated for every cell."""

    start: int
    stop: int
    partial: bool


Layout = list[list[KeyRun]]  # for each block of queries, the runs of keys to read


class TileMask(NamedTuple):
    """The mask of one tile: the keys to read, and the forbidden cells and unused keys among them."""

    keys: slice
    forbidden: Tensor | None
    unused: Tensor | None  # [batch or 1, head or 1, key]; None if every key is read


def compute_layout(mask: Mask | None, grid: Grid) -> Layout:
    """Return the runs of keys that each block of queries reads."""
    queries, keys = grid.query_positions, grid.key_positions
    if mask is not None and isinstance(queries, range) and isinstance(keys, range):
        with contextlib.suppress(TypeError):  # a mask that holds a tensor has no hash
            hash(mask)
            return _compute_cached_layout(mask, grid.batches, grid.heads, queries, keys)
    return _compute_layout(mask, grid)


@lru_cache(maxsize=64)
def _compute_cached_layout(mask: Mask, batches: range, heads: range, queries: range, keys: range) -> Layout:
    return _compute_layout(mask, Grid(batches, heads, queries, keys))


def _compute_layout(mask: Mask | None, grid: Grid) -> Layout:
    queries, keys = grid.shape[2:]
    rows = -(-queries // QUERY_BLOCK)
    if mask is None or 0 in grid.shape:
        return [list(_split_run(0, keys)) for _ in range(rows)]

    # A block is skipped if it is empty in every batch row and head; its mask is not evaluated if it is full in all.
    classes = mask.classify_blocks(BlockGrid(grid, QUERY_BLOCK, KEY_BLOCK))
    size = (rows, -(-keys // KEY_BLOCK))
    largest = classes.amax((0, 1)).expand(size).tolist()
    smallest = classes.amin((0, 1)).expand(size).tolist()
    return [list(_join_blocks(high, low, keys)) for high, low in zip(largest, smallest, strict=True)]


def _join_blocks(largest: list[int], smallest: list[int], keys: int) -> Iterator[KeyRun]:
    """Join neighbouring blocks that are not empty into runs; the lists hold block classes over batch rows and heads."""
    start: int | None = None
    for block, block_class in enumerate([*largest, EMPTY]):
        if block_class != EMPTY and start is None:
            start = block
        elif block_class == EMPTY and start is not None:
            for run in _split_run(start * KEY_BLOCK, min(block * KEY_BLOCK, keys)):
                inside = smallest[run.start // KEY_BLOCK : -(-run.stop // KEY_BLOCK)]
                yield run._replace(partial=min(inside) != FULL)
            start = None


def _split_run(start: int, stop: int) -> Iterator[KeyRun]:
    for begin in range(start, stop, MAX_RUN):
        yield KeyRun(begin, min(begin + MAX_RUN, stop), False)


def compute_coverage(mask: Mask | None, grid: Grid) -> float:
    """Return the share of cells that the blocked backend would compute, by which ``backend="auto"`` decides."""
    queries, keys = grid.shape[2:]
    if not queries or not keys:
        return 0.0

    cells = 0
    for index, runs in enumerate(compute_layout(mask, grid)):
        height = min((index + 1) * QUERY_BLOCK, queries) - index * QUERY_BLOCK
        cells += height * sum(run.stop - run.start for run in runs)
    return cells / (queries * keys)


def collect_gradient_tensors(request: AttentionRequest) -> tuple[Tensor, ...]:
    """Return query, key, value and every other tensor that may require a gradient, each once."""
    bias_tensors = () if request.bias is None else request.bias.gradient_tensors
    parameters = {id(tensor): tensor for tensor in (*request.score.gradient_tensors, *bias_tensors)}
    return request.query, request.key, request.value, *parameters.values()


def _copy_score(score: Score) -> Score:
    """Return the score with its present parameters: functional_call replaces them before the backward pass."""
    if not isinstance(score, nn.Module):
        return score
    copied = copy.copy(score)
    copied._parameters = dict(score._parameters)
    return copied


@dataclass(eq=False)
class Plan:
    """The tiles of one call and how to compute each; made in the forward pass and used again in the backward pass."""

    layout: Layout
    grid: Grid
    mask: Mask | None
    bias: Bias | None
    score: Score
    dropout: float
    seed: int
    dtype: torch.dtype
    table_versions: list[int]  # of the mask's tables, which the backward pass reads again
    needs_logsumexp: bool  # by a listener or the backward pass
    _tile_masks: dict[tuple[int, int, int], TileMask] = field(default_factory=dict)

    @staticmethod
    def make(request: AttentionRequest) -> Plan:
        """Plan a request."""
        needs_gradient = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in collect_gradient_tensors(request)
        )
        return Plan(
            layout=compute_layout(request.mask, request.grid),
            grid=request.grid,
            mask=request.mask,
            bias=request.bias,
            score=_copy_score(request.score),
            dropout=request.dropout,
            # drawn from torch's generator, so that a seeded program is reproducible
            seed=int(torch.randint(2**62, ()).item()) if request.dropout else 0,
            dtype=torch.promote_types(request.query.dtype, torch.float32),
            table_versions=get_table_versions(request.mask) if needs_gradient else [],
            needs_logsumexp=request.logsumexp or needs_gradient,
        )

    def iterate_rows(self) -> Iterator[tuple[slice, list[KeyRun]]]:
        """Yield each block of queries with the runs of keys that it reads."""
        queries = self.grid.shape[2]
        for index, runs in enumerate(self.layout):
            yield slice(index * QUERY_BLOCK, min((index + 1) * QUERY_BLOCK, queries)), runs

    def get_tile_mask(self, queries: slice, run: KeyRun) -> TileMask:
        """Return the mask of one tile."""
        keys = slice(run.start, run.stop)
        if self.mask is None or not run.partial:
            return TileMask(keys, None, None)

        if self.mask.relative and self.grid.contiguous:
            return self._get_relative_tile_mask(self.mask, queries, run)

        if not self.needs_logsumexp:  # there is no backward pass, so each tile is used once
            return self._evaluate_tile(self.mask, queries, keys)
        tile = (queries.start, run.start, -1)
        if tile not in self._tile_masks:
            self._tile_masks[tile] = self._evaluate_tile(self.mask, queries, keys)
        return self._tile_masks[tile]

    def _get_relative_tile_mask(self, mask: Mask, queries: slice, run: KeyRun) -> TileMask:
        """Evaluate tiles of one shape and distance from the diagonal once; keys are stored relative to the run."""
        tile = (queries.start - run.start, queries.stop - queries.start, run.stop - run.start)
        if tile not in self._tile_masks:
            evaluated = self._evaluate_tile(mask, queries, slice(run.start, run.stop))
            relative_keys = slice(evaluated.keys.start - run.start, evaluated.keys.stop - run.start)
            self._tile_masks[tile] = evaluated._replace(keys=relative_keys)

        cached = self._tile_masks[tile]
        return cached._replace(keys=slice(run.start + cached.keys.start, run.start + cached.keys.stop))

    def _evaluate_tile(self, mask: Mask, queries: slice, keys: slice) -> TileMask:
        tile = self.grid.tile(queries, keys)
        allowed = mask.evaluate(tile)
        allowed = allowed.expand(*allowed.shape[:2], *tile.shape[2:])
        used = allowed.any(-2)  # [batch or 1, head or 1, key]
        used_keys = used.any(0).any(0).nonzero()
        if not len(used_keys):
            return TileMask(slice(keys.start, keys.start), None, None)

        first, end = int(used_keys[0]), int(used_keys[-1]) + 1
        used = used[..., first:end]
        unused = None if bool(used.all()) else ~used
        return TileMask(slice(keys.start + first, keys.start + end), ~allowed[..., first:end], unused)

    def compute_unmasked_scores(
        self, tile_query: Tensor, tile_key: Tensor, query_indices: slice, key_indices: slice
    ) -> Tensor:
        """Return the scores of one tile with the bias added; the mask is not applied."""
        scores = self.score.evaluate(tile_query, tile_key)
        if self.bias is not None:
            scores = scores + self.bias.evaluate(self.grid.tile(query_indices, key_indices)).to(scores.dtype)
        return scores

    def make_dropout_factor(self, shape: torch.Size, queries: slice, keys: slice) -> Tensor | None:
        """Return the factor 0 or 1 / (1 - dropout) of every weight of one tile, the same in both passes."""
        if not self.dropout:
            return None
        cell = queries.start * self.grid.shape[3] + keys.start
        generator = torch.Generator(self.grid.device).manual_seed((self.seed + cell) % 2**63)
        is_retained = torch.rand(shape, generator=generator, device=self.grid.device) >= self.dropout
        return is_retained.to(self.dtype) / (1 - self.dropout)
