"""Heads: projections of the input, the door, and a map back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from jumok import axes
from jumok.errors import ArgumentError, BackendError, ShapeError
from jumok.small_batch_linear import Linear
from jumok.tap import tap

from .attend import BACKENDS, attend
from .bias import Bias
from .cache import Cache
from .grid import Positions
from .mask import Mask
from .projection import PROJECTIONS, Projection, Sizes
from .score import ScaledDot, Score

Rotation = Callable[[Tensor, Positions], Tensor]  # turns queries and keys by where they stand (layers.position.Rotary)


class Head(nn.Module):
    """One attention head: three maps from ``width`` to head_width, head_width and value_width.

    >>> import torch
    >>> Head(64, 16)(torch.randn(1, 3, 64)).shape
    torch.Size([1, 3, 16])
    """

    def __init__(
        self,
        width: int,
        head_width: int,
        value_width: int | None = None,
        *,
        bias: bool = True,
        output_width: int | None = None,
        score: Score | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        value_width = head_width if value_width is None else value_width
        self.query = Linear(width, head_width, bias=bias)
        self.key = Linear(width, head_width, bias=bias)
        self.value = Linear(width, value_width, bias=bias)
        self.output = None if output_width is None else Linear(value_width, output_width, bias=bias)
        self.score = ScaledDot() if score is None else score
        check_settings(self.score, dropout, backend)
        self.dropout, self.backend, self.site = dropout, backend, "head"

    def forward(
        self,
        inputs: axes.Hidden,
        source: axes.Source | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        source = inputs if source is None else source
        query, key, value = (one[:, None] for one in (self.query(inputs), self.key(source), self.value(source)))
        output, found = _attended(self, query, key, value, mask=mask, bias=bias, weights=weights)
        output = output[:, 0]
        if self.output is not None:
            output = self.output(output)
        output = tap(f"{self.site}.block_output", output)
        return output if found is None else (output, found)


class MultiHead(nn.Module):
    """``heads`` heads side by side, joined by one output map (Vaswani et al. 2017).

    projection: "fused" (one map for query, key and value), "batched" (one each) or "single" (one a head); equal
        parameters give equal results, and ``converted`` turns one into another.
    groups: key/value heads, fewer than ``heads`` for grouped-query attention; 1 for multi-query.
    source_width: how wide the source of a cross-attention is, where it differs.
    rotation: turns queries and keys by where they stand (layers.position.Rotary).

    >>> import torch
    >>> attention = MultiHead(512, 8)
    >>> output, weights = attention(torch.randn(2, 16, 512), weights=True)
    >>> output.shape, weights.shape, sum(p.numel() for p in attention.parameters())
    (torch.Size([2, 16, 512]), torch.Size([2, 8, 16, 16]), 1050624)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        head_width: int | None = None,
        value_width: int | None = None,
        source_width: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        projection: str = "fused",
        score: Score | None = None,
        rotation: Rotation | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        groups = heads if groups is None else groups
        numbers = {
            "width": width,
            "heads": heads,
            "groups": groups,
            "head_width": head_width,
            "value_width": value_width,
        }
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ArgumentError(f"{name} must be at least 1, not {number}")
        if head_width is None:
            if width % heads:
                raise ArgumentError(f"width {width} does not divide into {heads} heads; change one, or give head_width")
            head_width = width // heads
        if heads % groups:
            raise ArgumentError(f"{heads} heads do not divide into {groups} groups")
        if projection not in PROJECTIONS:
            raise ArgumentError(f"unknown projection {projection!r}; known are {', '.join(PROJECTIONS)}")
        value_width = head_width if value_width is None else value_width
        source_width = width if source_width is None else source_width
        sizes = Sizes(width, source_width, heads, groups, head_width, value_width, bias)
        self.projection: Projection = PROJECTIONS[projection](sizes)
        self.output = Linear(heads * value_width, width, bias=bias if output_bias is None else output_bias)
        self.score = ScaledDot() if score is None else score
        check_settings(self.score, dropout, backend)
        # a learned sink lives in a value, where no module would find it
        self.sink = self.score.sink if isinstance(self.score.sink, nn.Parameter) else None
        self.rotation = rotation
        self.dropout, self.backend, self.site = dropout, backend, "attention"

    @property
    def sizes(self) -> Sizes:
        return self.projection.sizes

    def forward(
        self,
        inputs: axes.Hidden,
        source: axes.Source | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        positions: Positions | None = None,
        cache: Cache | None = None,
        weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Self-attention over ``inputs``, or cross-attention from ``inputs`` to ``source``.

        positions: where the inputs stand, for the rotation; by default behind what the cache has seen.
        cache: what was seen before; new keys and values are put into it. A source is mapped once.
        """
        self._check(inputs, source, mask)
        if cache is None:
            return self._forward(inputs, source, mask, bias, positions, None, weights)
        before = cache.slot(self).length, cache.source(self).asked
        try:
            return self._forward(inputs, source, mask, bias, positions, cache, weights)
        except Exception:  # what was refused was not seen: the caller may try again
            cache.slot(self).length, cache.source(self).asked = before
            raise

    def _forward(
        self,
        inputs: Tensor,
        source: Tensor | None,
        mask: Mask | None,
        bias: Bias | None,
        positions: Positions | None,
        cache: Cache | None,
        weights: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        length = inputs.shape[1]
        seen = 0
        if source is None:
            query, key, value = self.projection(inputs)
            if cache is not None:
                seen = cache.slot(self).length
            places = range(seen, seen + length)
            if self.rotation is not None:
                stand = places if positions is None else positions
                query, key = self.rotation(query, stand), self.rotation(key, stand)
            if cache is not None:
                key, value = cache.slot(self).append(key, value)
        else:
            query = self.projection.project_queries(inputs)
            key, value = self._source(source, cache)
            if cache is not None:
                slot = cache.source(self)
                seen, slot.asked = slot.asked, slot.asked + length
            places = range(seen, seen + length)
        output, found = _attended(
            self,
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            query_positions=places,
            key_positions=range(key.shape[2]),
            weights=weights,
        )
        output = self.output(output.transpose(1, 2).flatten(2))
        output = tap(f"{self.site}.block_output", output)
        return output if found is None else (output, found)

    def _source(self, source: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor]:
        if cache is None:
            return self.projection.project_keys_values(source)
        slot = cache.source(self)
        if not slot.length:
            slot.append(*self.projection.project_keys_values(source))
        return slot.key, slot.value

    def _check(self, inputs: Tensor, source: Any, mask: Any) -> None:
        if source is not None and not isinstance(source, Tensor):
            raise ArgumentError(f"the source must be a tensor, not {type(source).__name__}; masks go to mask=...")
        for name, tensor in (("inputs", inputs), ("the source", source)):
            if tensor is not None and tensor.dim() != 3:
                raise ShapeError(f"{name} must be [batch, length, width], not {list(tensor.shape)}")
        if inputs.shape[-1] != self.sizes.width:
            raise ShapeError(f"this attention takes inputs {self.sizes.width} wide, not {list(inputs.shape)}")
        if source is not None and source.shape[-1] != self.sizes.source_width:
            raise ShapeError(f"this attention takes a source {self.sizes.source_width} wide, not {list(source.shape)}")
        if source is None and self.sizes.source_width != self.sizes.width:
            raise ArgumentError(f"this attention reads a source {self.sizes.source_width} wide: give one")

    def convert_projection(self, projection: str) -> MultiHead:
        """The same attention with its maps cut another way; parameters are copied."""
        sizes = self.sizes
        twin = MultiHead(
            sizes.width,
            sizes.head,
            groups=sizes.group,
            head_width=sizes.head_width,
            value_width=sizes.value_width,
            source_width=sizes.source_width,
            bias=sizes.bias,
            output_bias=self.output.bias is not None,
            projection=projection,
            score=copy.deepcopy(self.score),
            rotation=self.rotation,
            dropout=self.dropout,
            backend=self.backend,
        )
        twin.projection.load(self.projection.parts())
        twin.output.load_state_dict(self.output.state_dict())
        twin.site = self.site
        return twin.to(self.output.weight).train(self.training)


def check_settings(score: Any, dropout: float, backend: str) -> None:
    """What would otherwise be refused only when the model first runs."""
    if not isinstance(score, Score):
        raise ArgumentError(f"score must be one of jumok.attention.score, made with its (), not {score!r}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be at least 0 and below 1, not {dropout}")
    if backend != "auto" and backend not in BACKENDS:
        raise BackendError(f"unknown backend {backend!r}; known are auto, {', '.join(BACKENDS)}")


def _attended(
    module: Head | MultiHead,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Mask | None,
    bias: Bias | None,
    weights: bool,
    query_positions: Positions | None = None,
    key_positions: Positions | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Through the door with a module's own settings; weights None where they were not asked for."""
    dropout = module.dropout if module.training else 0.0  # the door has no training mode
    score, sink = module.score, getattr(module, "sink", None)
    if sink is not None and isinstance(score, ScaledDot):
        score = dataclasses.replace(score, sink=sink)
    answer = attend(  # type: ignore[call-overload,misc]  # weights is not known here
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        score=score,
        query_positions=query_positions,
        key_positions=key_positions,
        dropout=dropout,
        backend=module.backend,
        site=module.site,
        weights=weights,
    )
    return answer if weights else (answer, None)
