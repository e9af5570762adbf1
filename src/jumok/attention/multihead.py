"""Attention layers: projections of the input, ``attend()``, and an output projection."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from jumok import axes
from jumok.errors import ArgumentError, ShapeError
from jumok.small_batch_linear import Linear
from jumok.tap import tap

from .argument_checks import check_settings
from .attend import attend, check_backend
from .bias import Bias
from .cache import Cache
from .grid import Positions
from .mask import Mask
from .projection import PROJECTIONS, Projection, Sizes
from .score import ScaledDot, Score
from .weights import AttentionModule

Rotation = Callable[[Tensor, Positions], Tensor]  # rotates queries and keys by position (layers.RotaryPositions)


class AttentionLayer(AttentionModule):
    """A layer that calls ``attend()``, with the settings that it passes; it refuses what ``attend()`` would refuse."""

    def __init__(self, score: Score | None, dropout: float, backend: str, site: str) -> None:
        super().__init__()
        self.score: Score = ScaledDot() if score is None else score
        check_settings(None, None, self.score, dropout)
        check_backend(backend)
        # Registered here, because the score that holds a learned sink is not a module.
        self.sink = self.score.sink if isinstance(self.score.sink, nn.Parameter) else None
        self.dropout, self.backend, self.site = dropout, backend, site

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        query_positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> Tensor:
        score = self.score
        if self.sink is not None and isinstance(score, ScaledDot):
            score = dataclasses.replace(score, sink=self.sink)
        output: Tensor = attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            score=score,
            query_positions=query_positions,
            key_positions=key_positions,
            dropout=self.dropout if self.training else 0.0,  # attend() has no training mode
            backend=self.backend,
            site=self.site,
        )
        return output


class Head(AttentionLayer):
    """One attention head: three maps from ``width`` to head_width, head_width and value_width.

    Args:
        width: Width of the inputs.
        head_width: Width of queries and keys.
        value_width: Width of values; ``head_width`` by default.
        bias: Whether the maps have biases.
        output_width: Width of the output map; None for no output map.
        score: The formula; the scaled dot product by default.
        dropout: Probability of dropping a weight in training.
        backend: Backend of ``attend()``.

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
        super().__init__(score, dropout, backend, "head")
        value_width = head_width if value_width is None else value_width
        self.query = Linear(width, head_width, bias=bias)
        self.key = Linear(width, head_width, bias=bias)
        self.value = Linear(width, value_width, bias=bias)
        self.output = None if output_width is None else Linear(value_width, output_width, bias=bias)

    def forward(
        self,
        inputs: axes.Hidden,
        source: axes.Source | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Tensor:
        """Return the output of the head; ``head(inputs, weights=True)`` returns the weights [batch, 1, query, key] too.

        Args:
            inputs: Vectors that queries are computed from, ``[batch, query, width]``.
            source: Vectors that keys and values are computed from, ``[batch, key, width]``; ``inputs`` by default.
            mask: Which keys each query may attend to; None allows all.
            bias: Numbers to add to the scores.
        """
        source = inputs if source is None else source
        query = self.query(inputs)[:, None]
        key = self.key(source)[:, None]
        value = self.value(source)[:, None]
        output = self._attend(query, key, value, mask, bias)[:, 0]
        if self.output is not None:
            output = self.output(output)
        return tap(f"{self.site}.block_output", output)


class MultiHead(AttentionLayer):
    """``heads`` heads in parallel, joined by one output map (Vaswani et al. 2017).

    Args:
        width: Width of inputs and outputs.
        heads: Number of query heads.
        groups: Number of key/value heads: ``heads`` by default, fewer for grouped-query attention, 1 for multi-query.
        head_width: Width of queries and keys; ``width / heads`` by default.
        value_width: Width of values; ``head_width`` by default.
        source_width: Width of the source of a cross-attention; ``width`` by default.
        bias: Whether the projections have biases.
        key_bias: Whether the projection of the keys has a bias; ``bias`` by default.
        output_bias: Whether the output map has a bias; ``bias`` by default.
        projection: "fused" (one map for query, key and value), "batched" (one each) or "single" (one per head). Equal
            parameters give equal outputs, and ``convert_projection`` converts them.
        score: The formula; the scaled dot product by default.
        query_key_norm: Makes the norms of each head's queries and keys, before the rotation; None for no norms.
        output_norm: A norm on the output (Gemma 3); None for no norm.
        rotation: Rotates queries and keys by position, such as ``layers.RotaryPositions``; None for no rotation.
        dropout: Probability of dropping a weight in training.
        backend: Backend of ``attend()``.

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
        key_bias: bool | None = None,
        output_bias: bool | None = None,
        projection: str = "fused",
        score: Score | None = None,
        query_key_norm: Callable[[int], nn.Module] | None = None,
        output_norm: nn.Module | None = None,
        rotation: Rotation | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(score, dropout, backend, "attention")
        groups = heads if groups is None else groups
        counts = {"width": width, "heads": heads, "groups": groups}
        for name, count in {**counts, "head_width": head_width, "value_width": value_width}.items():
            if count is not None and count < 1:
                raise ArgumentError(f"{name} must be at least 1, not {count}")
        if head_width is None:
            if width % heads:
                raise ArgumentError(
                    f"width {width} cannot be split evenly into {heads} heads; choose a width that is a "
                    "multiple of the number of heads"
                )
            head_width = width // heads
        if heads % groups:
            raise ArgumentError(f"{heads} heads cannot be split evenly into {groups} groups")

        value_width = head_width if value_width is None else value_width
        source_width = width if source_width is None else source_width
        key_bias = bias if key_bias is None else key_bias
        sizes = Sizes(width, source_width, heads, groups, head_width, value_width, bias, key_bias)
        self.projection = _build_projection(projection, sizes)
        self.output = Linear(heads * value_width, width, bias=bias if output_bias is None else output_bias)
        self.query_norm = query_key_norm(head_width) if query_key_norm else None
        self.key_norm = query_key_norm(head_width) if query_key_norm else None
        self.output_norm = output_norm
        self.rotation = rotation

    @property
    def sizes(self) -> Sizes:
        """The sizes of this attention."""
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
    ) -> Tensor:
        """Compute self-attention over ``inputs``, or cross-attention from ``inputs`` to ``source``. The call
        ``attention(inputs, weights=True)`` returns the weights ``[batch, head, query, key]`` too.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            source: Hidden vectors of another sequence, ``[batch, key, source_width]``; None for self-attention.
            mask: Which keys each query may attend to; None allows all.
            bias: Numbers to add to the scores.
            positions: Positions of the inputs for the rotation; by default they follow the cached tokens.
            cache: Keys and values of earlier tokens; new ones are appended. A source is projected once.

        Returns:
            The output, ``[batch, query, width]``.
        """
        self._check_inputs(inputs, source)
        if cache is None:
            return self._forward(inputs, source, mask, bias, positions, None)

        slot, source_slot = cache.get_or_create_slot(self), cache.get_or_create_source_slot(self)
        length, query_count = slot.length, source_slot.query_count
        try:
            return self._forward(inputs, source, mask, bias, positions, cache)
        except Exception:  # restore the cache, so that the caller may try again
            slot.length, source_slot.query_count = length, query_count
            raise

    def _forward(
        self,
        inputs: Tensor,
        source: Tensor | None,
        mask: Mask | None,
        bias: Bias | None,
        positions: Positions | None,
        cache: Cache | None,
    ) -> Tensor:
        if source is None:
            query, key, value, start = self._project_self(inputs, positions, cache)
        else:
            query, key, value, start = self._project_cross(inputs, source, cache)

        query_positions = range(start, start + inputs.shape[1])
        attended = self._attend(query, key, value, mask, bias, query_positions, range(key.shape[2]))
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        if self.output_norm is not None:
            output = self.output_norm(output)
        return tap(f"{self.site}.block_output", output)

    def _project_self(
        self, inputs: Tensor, positions: Positions | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """Return query, key, value and the position of the first query."""
        query, key, value = self.projection(inputs)
        query, key = _normalise(query, self.query_norm), _normalise(key, self.key_norm)
        start = 0 if cache is None else cache.get_or_create_slot(self).length
        if self.rotation is not None:
            if positions is None:
                positions = range(start, start + inputs.shape[1])
            query, key = self.rotation(query, positions), self.rotation(key, positions)
        if cache is not None:
            key, value = cache.get_or_create_slot(self).append(key, value)
        return query, key, value, start

    def _project_cross(self, inputs: Tensor, source: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor, Tensor, int]:
        """Return query, key, value and the position of the first query."""
        query = _normalise(self.projection.project_queries(inputs), self.query_norm)
        slot = None if cache is None else cache.get_or_create_source_slot(self)
        if slot is None or not slot.length:
            key, value = self.projection.project_keys_values(source)
            key = _normalise(key, self.key_norm)
            if slot is None:
                return query, key, value, 0
            slot.append(key, value)
        start = slot.query_count
        slot.query_count += inputs.shape[1]
        return query, slot.key, slot.value, start

    def _check_inputs(self, inputs: Tensor, source: Tensor | None) -> None:
        sizes = self.sizes
        if source is not None and not isinstance(source, Tensor):
            raise ArgumentError(f"source must be a tensor, not {type(source).__name__}; pass masks as mask=...")
        for name, tensor in (("inputs", inputs), ("source", source)):
            if tensor is not None and tensor.dim() != 3:
                raise ShapeError(f"{name} must be [batch, length, width], not {list(tensor.shape)}")
        if inputs.shape[-1] != sizes.width:
            raise ShapeError(f"this attention takes inputs of width {sizes.width}, not {list(inputs.shape)}")
        if source is not None and source.shape[-1] != sizes.source_width:
            raise ShapeError(f"this attention takes a source of width {sizes.source_width}, not {list(source.shape)}")
        if source is None and sizes.source_width != sizes.width:
            raise ArgumentError(f"this attention needs a source of width {sizes.source_width}; pass source=...")

    def convert_projection(self, projection: str) -> MultiHead:
        """Return the same attention with another parameter layout; the parameters are copied.

        Args:
            projection: "fused", "batched" or "single".
        """
        converted = copy.deepcopy(self)
        converted.rotation = self.rotation  # shared by all layers, with the cosines that it stores
        converted.projection = _build_projection(projection, self.sizes)
        converted.projection.copy_from(self.projection)
        return converted.to(self.output.weight).train(self.training)


def _normalise(vectors: Tensor, norm: nn.Module | None) -> Tensor:
    return vectors if norm is None else norm(vectors)


def _build_projection(layout: str, sizes: Sizes) -> Projection:
    if layout not in PROJECTIONS:
        raise ArgumentError(f"unknown projection {layout!r}; choose one of {', '.join(PROJECTIONS)}")
    return PROJECTIONS[layout](sizes)


class FourierMixing(AttentionModule):
    """The real part of the Fourier transform over tokens and width, in place of an attention (Lee-Thorp et al. 2021).

    Every token takes part, padding included. Masks and weights are refused.
    """

    def forward(self, inputs: axes.Hidden, *, mask: Mask | None = None) -> axes.Hidden:
        """Mix the tokens of each row.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            mask: Must be None; the argument exists so that errors are clear.

        Raises:
            ArgumentError: If there is a mask.
        """
        if mask is not None:
            raise ArgumentError(f"FNet mixes all tokens and cannot apply the mask {mask!r}; use MultiHead")

        # float32: not every device has a half-precision Fourier transform
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        mixed: Tensor = torch.fft.fft2(wide, dim=(-2, -1)).real
        return mixed.to(inputs.dtype)
