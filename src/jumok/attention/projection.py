"""Query, key and value projections with three parameter layouts: one map for all, one map each, or one map per head.

The layouts compute the same function, and ``copy_from`` converts the parameters of any of them into another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.errors import ArgumentError
from jumok.small_batch_linear import Linear


@dataclass(frozen=True)
class Sizes:
    """The sizes of a multi-head attention."""

    width: int
    source_width: int
    heads: int
    groups: int
    head_width: int
    value_width: int
    bias: bool
    key_bias: bool  # it adds the same number to all scores of a query, which changes no weights, so Whisper has none


def split_heads(
    joined: Float[Tensor, "batch length joined_width"], heads: int
) -> Float[Tensor, "batch {heads} length head_width"]:
    """Return a view in the layout of ``attend()``."""
    batch, length, width = joined.shape
    return joined.view(batch, length, heads, width // heads).transpose(1, 2)


class Projection(nn.Module):
    """Base class of the projections."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, inputs: axes.Hidden) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value of one sequence."""
        return self.project_queries(inputs), *self.project_keys_values(inputs)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        """Return the queries, ``[batch, head, query, head_width]``."""
        raise NotImplementedError

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        """Return keys ``[batch, group, key, head_width]`` and values ``[batch, group, key, value_width]``."""
        raise NotImplementedError

    def list_parts(self, name: str) -> list[list[Tensor | None]]:
        """Return the weights or the biases (``name``) of queries, keys and values, as views of the parameters. Their
        rows, joined, are the same in every layout."""
        raise NotImplementedError

    @torch.no_grad()
    def copy_from(self, other: Projection) -> None:
        """Copy the parameters of a projection of the same sizes and any layout."""
        for name in ("weight", "bias"):
            for copies, originals in zip(self.list_parts(name), other.list_parts(name), strict=True):
                targets = [part for part in copies if part is not None]
                if targets:
                    rows = torch.cat([part for part in originals if part is not None])
                    for target, part in zip(targets, rows.split([len(target) for target in targets]), strict=True):
                        target.copy_(part)


class Fused(Projection):
    """One map to query, key and value together (GPT-2): one large product instead of three."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        if sizes.source_width != sizes.width:
            raise ArgumentError(
                f'projection="fused" needs equal widths, but inputs have width {sizes.width} and the source '
                f'{sizes.source_width}; use projection="batched"'
            )
        if sizes.key_bias != sizes.bias:
            raise ArgumentError('projection="fused" has one bias for query, key and value; use projection="batched"')
        self.widths = (
            sizes.heads * sizes.head_width,
            sizes.groups * sizes.head_width,
            sizes.groups * sizes.value_width,
        )
        self.has_equal_widths = self.widths == (self.widths[0],) * 3
        self.joined = Linear(sizes.width, sum(self.widths), bias=sizes.bias)

    def forward(self, inputs: axes.Hidden) -> tuple[Tensor, Tensor, Tensor]:
        joined = self.joined(inputs)
        if self.has_equal_widths:  # three tensors of one shape need three views, not seven
            batch, length, _ = joined.shape
            split = joined.view(batch, length, 3, self.sizes.heads, self.sizes.head_width)
            query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
            return query, key, value

        query, key, value = joined.split(self.widths, -1)
        groups = self.sizes.groups
        return split_heads(query, self.sizes.heads), split_heads(key, groups), split_heads(value, groups)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return split_heads(self._project(inputs, slice(0, self.widths[0])), self.sizes.heads)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        joined = self._project(source, slice(self.widths[0], None))
        key, value = joined.split(self.widths[1:], -1)
        return split_heads(key, self.sizes.groups), split_heads(value, self.sizes.groups)

    def _project(self, inputs: Tensor, rows: slice) -> Tensor:
        """Apply these rows of the map."""
        bias = self.joined.bias
        return functional.linear(inputs, self.joined.weight[rows], None if bias is None else bias[rows])

    def list_parts(self, name: str) -> list[list[Tensor | None]]:
        joined = getattr(self.joined, name)
        return [[None]] * 3 if joined is None else [[part] for part in joined.split(self.widths)]


class Batched(Projection):
    """One map each for query, key and value, split into heads by reshaping."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.query = Linear(sizes.width, sizes.heads * sizes.head_width, bias=sizes.bias)
        self.key = Linear(sizes.source_width, sizes.groups * sizes.head_width, bias=sizes.key_bias)
        self.value = Linear(sizes.source_width, sizes.groups * sizes.value_width, bias=sizes.bias)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return split_heads(self.query(inputs), self.sizes.heads)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        key = split_heads(self.key(source), self.sizes.groups)
        value = split_heads(self.value(source), self.sizes.groups)
        return key, value

    def list_parts(self, name: str) -> list[list[Tensor | None]]:
        return [[getattr(linear, name)] for linear in (self.query, self.key, self.value)]


class Single(Projection):
    """A separate map for every head, as attention is usually introduced."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)

        def make_maps(count: int, inner: int, outer: int, bias: bool) -> nn.ModuleList:
            return nn.ModuleList(Linear(inner, outer, bias=bias) for _ in range(count))

        self.query = make_maps(sizes.heads, sizes.width, sizes.head_width, sizes.bias)
        self.key = make_maps(sizes.groups, sizes.source_width, sizes.head_width, sizes.key_bias)
        self.value = make_maps(sizes.groups, sizes.source_width, sizes.value_width, sizes.bias)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return torch.stack([linear(inputs) for linear in self.query], 1)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        key = torch.stack([linear(source) for linear in self.key], 1)
        value = torch.stack([linear(source) for linear in self.value], 1)
        return key, value

    def list_parts(self, name: str) -> list[list[Tensor | None]]:
        return [[getattr(linear, name) for linear in maps] for maps in (self.query, self.key, self.value)]


PROJECTIONS: dict[str, Callable[[Sizes], Projection]] = {"fused": Fused, "batched": Batched, "single": Single}
