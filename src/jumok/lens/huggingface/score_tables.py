"""Masks and biases of transformers models that are tables of numbers, at the positions of one attention call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.attention.bias import Bias
from jumok.attention.grid import Grid
from jumok.attention.mask import Mask

#: A score that is lower than the largest score of its row by this much has weight 0 in every dtype. Models mark
#: forbidden cells by adding -10,000, -1e9 or the smallest number.
FORBIDDEN_GAP = 1000.0
SMALLEST_BIAS = 2e-6  # differences below this share of the largest score are rounding errors, not a bias

#: what ``attend()`` needs of a table of numbers that are added to the scores; None allows all, or adds nothing
TableArguments = tuple[Mask | None, Bias | None]


@dataclass(frozen=True, eq=False)
class TableBias(Bias):
    """A table of numbers added to the scores of a rectangle of positions."""

    table: Tensor  # [batch or 1, head or 1, query or 1, key]
    first_query: int
    first_key: int

    def evaluate(self, grid: Grid) -> Tensor:
        return _read_cells(self.table, grid, self.first_query, self.first_key)

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


@dataclass(frozen=True, eq=False, repr=False)
class TableMask(Mask):
    """A table of allowed cells in a rectangle of positions."""

    table: Tensor  # [batch or 1, head or 1, query or 1, key]
    first_query: int
    first_key: int
    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        return _read_cells(self.table, grid, self.first_query, self.first_key)

    def __repr__(self) -> str:
        return f"given(bool{list(self.table.shape)})"


def _read_cells(table: Tensor, grid: Grid, first_query: int, first_key: int) -> Tensor:
    """Return the cells of a grid; an axis of size 1 holds the same numbers for all its indices."""
    indices = (grid.batch, grid.head, grid.query - first_query, grid.key - first_key)
    cells = tuple(
        index if size > 1 else torch.zeros_like(index) for index, size in zip(indices, table.shape, strict=True)
    )
    return table.to(grid.key.device)[cells]


def read_table(table: Tensor, queries: range, keys: range) -> TableArguments:
    """Convert a table ``[batch or 1, head or 1, query or 1, key or 1]``: booleans (True = may attend), or numbers that
    are added to the scores, of which very low ones forbid a cell and others are a bias."""
    table = table.expand(-1, -1, -1, len(keys))
    if table.dtype == torch.bool:
        return _build_mask(table, queries, keys), None
    highest = table.amax(-1, keepdim=True)
    # In a row without an allowed cell all numbers are equally low, and the model attends to all of them. A number that
    # is so low that it absorbs the scores must stay low: the weights of such a row are equal.
    allowed = (table >= highest - FORBIDDEN_GAP) & (table > -torch.inf)
    absorbing = torch.finfo(table.dtype).min / 2
    numbers = torch.where(allowed, table.clamp(min=absorbing), 0.0)
    mask = _build_mask(allowed, queries, keys)
    if not bool(numbers.any()):
        return mask, None
    return mask, TableBias(_merge_equal(numbers), queries.start, keys.start)


def _build_mask(allowed: Tensor, queries: range, keys: range) -> TableMask | None:
    """Return the mask of a table of allowed cells; None if all are."""
    return None if bool(allowed.all()) else TableMask(_merge_equal(allowed), queries.start, keys.start)


def split_scores(scores: Tensor, product: Tensor, queries: range, keys: range) -> TableArguments:
    """Find the mask and the bias that a model added to its scaled dot products, from its scores before the softmax."""
    added = scores - product
    largest = max(1.0, float(product.abs().max())) if product.numel() else 1.0
    return read_table(torch.where(added.abs() <= SMALLEST_BIAS * largest, 0.0, added), queries, keys)


def _merge_equal(table: Tensor) -> Tensor:
    """Keep one index of each of the first three axes along which the table does not change."""
    for axis in range(3):
        first = table.narrow(axis, 0, 1)
        if table.shape[axis] > 1 and bool((table == first).all()):
            table = first
    return table.clone() if table.untyped_storage().nbytes() > table.nbytes else table
