"""Query, key and value maps, three ways: heads one by one, all heads in one map each, and all in one map.

They differ in how the parameters are cut, not in what they compute: ``parts`` takes any of them apart by head, and
``load`` puts parts together again, so each can become another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.errors import ArgumentError
from jumok.small_batch_linear import Linear


@dataclass(frozen=True)
class Sizes:
    """How wide everything is. ``group``: key/value heads; ``source_width``: what keys and values are made from."""

    width: int
    source_width: int
    head: int
    group: int
    head_width: int
    value_width: int
    bias: bool


class Part(NamedTuple):
    """One of query, key, value: a matrix [head or group, out, in] and a bias [head or group, out] or None."""

    matrix: Tensor
    bias: Tensor | None


def split(joined: Float[Tensor, "batch length wide"], heads: int) -> Float[Tensor, "batch {heads} length each"]:
    """[batch, length, heads x each] -> the layout of the door, as a view."""
    batch, length, wide = joined.shape
    return joined.view(batch, length, heads, wide // heads).transpose(1, 2)


class Projection(nn.Module):
    """What MultiHead asks of its maps."""

    sizes: Sizes

    def forward(self, inputs: axes.Hidden) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of one sequence."""
        return self.project_queries(inputs), *self.project_keys_values(inputs)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        raise NotImplementedError

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        raise NotImplementedError

    def parts(self) -> tuple[Part, Part, Part]:
        raise NotImplementedError

    def load(self, parts: tuple[Part, Part, Part]) -> None:
        raise NotImplementedError


class Fused(Projection):
    """One map to query, key and value together (GPT-2): one large product instead of three."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        if sizes.source_width != sizes.width:
            raise ArgumentError(
                f'projection="fused" needs one width; inputs are {sizes.width}, the source {sizes.source_width} wide. '
                'Use projection="batched"'
            )
        self.sizes = sizes
        self.widths = (
            sizes.head * sizes.head_width,
            sizes.group * sizes.head_width,
            sizes.group * sizes.value_width,
        )
        self.alike = self.widths == (self.widths[0],) * 3
        self.joined = Linear(sizes.width, sum(self.widths), bias=sizes.bias)

    def forward(self, inputs: axes.Hidden) -> tuple[Tensor, Tensor, Tensor]:
        joined = self.joined(inputs)
        if self.alike:  # three of a kind are cut in three views, not in seven
            batch, length, _ = joined.shape
            cut = joined.view(batch, length, 3, self.sizes.head, self.sizes.head_width)
            query, key, value = cut.permute(2, 0, 3, 1, 4).unbind(0)
            return query, key, value
        query, key, value = joined.split(self.widths, -1)
        return split(query, self.sizes.head), split(key, self.sizes.group), split(value, self.sizes.group)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return split(self._some(inputs, slice(0, self.widths[0])), self.sizes.head)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        both = self._some(source, slice(self.widths[0], None))
        key, value = both.split(self.widths[1:], -1)
        return split(key, self.sizes.group), split(value, self.sizes.group)

    def _some(self, inputs: Tensor, rows: slice) -> Tensor:
        bias = self.joined.bias
        return functional.linear(inputs, self.joined.weight[rows], None if bias is None else bias[rows])

    def parts(self) -> tuple[Part, Part, Part]:
        matrices = self.joined.weight.split(self.widths)
        biases = [None] * 3 if self.joined.bias is None else self.joined.bias.split(self.widths)
        counts = (self.sizes.head, self.sizes.group, self.sizes.group)
        made = [_cut(*one) for one in zip(matrices, biases, counts, strict=True)]
        return made[0], made[1], made[2]

    def load(self, parts: tuple[Part, Part, Part]) -> None:
        _copy(self.joined, torch.cat([part.matrix.flatten(0, 1) for part in parts]), _biases(parts))


class Batched(Projection):
    """One map for each of query, key and value, then split into heads by reshaping."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.query = Linear(sizes.width, sizes.head * sizes.head_width, bias=sizes.bias)
        self.key = Linear(sizes.source_width, sizes.group * sizes.head_width, bias=sizes.bias)
        self.value = Linear(sizes.source_width, sizes.group * sizes.value_width, bias=sizes.bias)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return split(self.query(inputs), self.sizes.head)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        return split(self.key(source), self.sizes.group), split(self.value(source), self.sizes.group)

    def parts(self) -> tuple[Part, Part, Part]:
        group = self.sizes.group
        return (
            _cut(self.query.weight, self.query.bias, self.sizes.head),
            _cut(self.key.weight, self.key.bias, group),
            _cut(self.value.weight, self.value.bias, group),
        )

    def load(self, parts: tuple[Part, Part, Part]) -> None:
        for linear, part in zip((self.query, self.key, self.value), parts, strict=True):
            _copy(linear, part.matrix.flatten(0, 1), None if part.bias is None else part.bias.flatten())


class Single(Projection):
    """A map of its own for every head, side by side: how the idea is first told."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

        def maps(count: int, inner: int, outer: int) -> nn.ModuleList:
            return nn.ModuleList(Linear(inner, outer, bias=sizes.bias) for _ in range(count))

        self.query = maps(sizes.head, sizes.width, sizes.head_width)
        self.key = maps(sizes.group, sizes.source_width, sizes.head_width)
        self.value = maps(sizes.group, sizes.source_width, sizes.value_width)

    def project_queries(self, inputs: axes.Hidden) -> axes.Query:
        return torch.stack([one(inputs) for one in self.query], 1)

    def project_keys_values(self, source: axes.Source) -> tuple[axes.Key, axes.Value]:
        return torch.stack([one(source) for one in self.key], 1), torch.stack([one(source) for one in self.value], 1)

    def parts(self) -> tuple[Part, Part, Part]:
        def part(maps: nn.ModuleList) -> Part:
            biases = torch.stack([_linear(one).bias for one in maps]) if self.sizes.bias else None
            return Part(torch.stack([_linear(one).weight for one in maps]), biases)

        return part(self.query), part(self.key), part(self.value)

    def load(self, parts: tuple[Part, Part, Part]) -> None:
        for maps, part in zip((self.query, self.key, self.value), parts, strict=True):
            for index, one in enumerate(maps):
                _copy(one, part.matrix[index], None if part.bias is None else part.bias[index])


PROJECTIONS: dict[str, type[Fused] | type[Batched] | type[Single]] = {
    "fused": Fused,
    "batched": Batched,
    "single": Single,
}


def _cut(matrix: Tensor, bias: Tensor | None, count: int) -> Part:
    return Part(matrix.unflatten(0, (count, -1)), None if bias is None else bias.unflatten(0, (count, -1)))


def _biases(parts: tuple[Part, Part, Part]) -> Tensor | None:
    biases = [part.bias.flatten() for part in parts if part.bias is not None]
    return torch.cat(biases) if biases else None


@torch.no_grad()
def _copy(linear: nn.Module, matrix: Tensor, bias: Tensor | None) -> None:
    _linear(linear).weight.copy_(matrix)
    if bias is not None:
        _linear(linear).bias.copy_(bias)


def _linear(module: nn.Module) -> nn.Linear:
    assert isinstance(module, nn.Linear)  # what a ModuleList forgets
    return module
