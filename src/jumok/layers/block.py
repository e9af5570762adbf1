"""Transformer blocks: attention and feed-forward network, each with a norm and a residual connection.

``order`` says where the norm is: "post" normalises the sum (Vaswani et al. 2017: ``norm(x + layer(x))``), "pre"
normalises the input of the layer (GPT-2: ``x + layer(norm(x))``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

from torch import Tensor, nn

from jumok import axes
from jumok.attention.bias import Bias
from jumok.attention.cache import Cache
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.attention.multihead import MultiHead
from jumok.errors import ArgumentError
from jumok.tap import tap


class AttentionSettings(TypedDict, total=False):
    """Keyword arguments that a block passes to its attention."""

    source: Tensor
    mask: Mask | None
    bias: Bias | None
    positions: Positions | None
    cache: Cache | None
    grid: tuple[int, int]  # rows and columns of an image, for attention in windows


class _ResidualBlock(nn.Module):
    """Residual connections with a norm before or after each layer, and dropout on the output of each layer."""

    def __init__(self, feedforward: nn.Module, order: str, dropout: float) -> None:
        super().__init__()
        if order not in ("post", "pre"):
            raise ArgumentError(f'order must be "post" or "pre", not {order!r}')
        self.order = order
        self.feedforward = feedforward
        self.dropout = nn.Dropout(dropout)
        self.site = "block"

    def _normalize_input(self, hidden: Tensor, norm: nn.Module) -> Tensor:
        return norm(hidden) if self.order == "pre" else hidden

    def _add_residual(self, hidden: Tensor, layer_output: Tensor, norm: nn.Module) -> Tensor:
        if self.training:  # in generation, even the call of a dropout layer that drops nothing is measurable
            layer_output = self.dropout(layer_output)
        output = hidden + layer_output
        return output if self.order == "pre" else norm(output)

    def _apply_attention(
        self, hidden: Tensor, attention: nn.Module, norm: nn.Module, weights: bool, settings: AttentionSettings
    ) -> tuple[Tensor, Tensor | None]:
        attended, layer_weights = _call_attention(attention, self._normalize_input(hidden, norm), weights, settings)
        return self._add_residual(hidden, attended, norm), layer_weights

    def _apply_feedforward(self, hidden: Tensor, norm: nn.Module) -> Tensor:
        output = self.feedforward(self._normalize_input(hidden, norm))
        output = tap(f"{self.site}.feedforward_output", output)
        return self._add_residual(hidden, output, norm)


class EncoderBlock(_ResidualBlock):
    """Self-attention, then a feed-forward network. With a causal mask it is the block of GPT.

    Args:
        attention: The attention, such as a ``MultiHead``.
        feedforward: The feed-forward network.
        norm: Function that makes a norm; called once per layer.
        order: "post" or "pre": whether the norm follows or precedes each layer.
        dropout: Probability of dropping an output of a layer in training.

    >>> import torch
    >>> from jumok.layers import FeedForward, LayerNorm
    >>> block = EncoderBlock(MultiHead(64, 4), FeedForward(64, 256), norm=lambda: LayerNorm(64))
    >>> block(torch.randn(2, 7, 64)).shape
    torch.Size([2, 7, 64])
    """

    def __init__(
        self,
        attention: nn.Module,
        feedforward: nn.Module,
        *,
        norm: Callable[[], nn.Module],
        order: str = "post",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(feedforward, order, dropout)
        self.attention = attention
        self.attention_norm, self.feedforward_norm = norm(), norm()

    def forward(
        self, inputs: axes.Hidden, *, weights: bool = False, **settings: Unpack[AttentionSettings]
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output of the block, and the weights of its attention if requested.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            weights: Whether to return the weights ``[batch, head, query, key]`` too.
            settings: Arguments of the attention: mask, bias, positions, cache.
        """
        hidden = tap(f"{self.site}.input", inputs)
        hidden, layer_weights = self._apply_attention(hidden, self.attention, self.attention_norm, weights, settings)
        hidden = self._apply_feedforward(hidden, self.feedforward_norm)
        return hidden if layer_weights is None else (hidden, layer_weights)


class DecoderBlock(_ResidualBlock):
    """Masked self-attention, cross-attention to a source, and a feed-forward network, with three norms.

    Args:
        attention: The self-attention.
        cross: The cross-attention.
        feedforward: The feed-forward network.
        norm: Function that makes a norm; called once per layer.
        order: "post" or "pre": whether the norm follows or precedes each layer.
        dropout: Probability of dropping an output of a layer in training.
    """

    def __init__(
        self,
        attention: MultiHead,
        cross: MultiHead,
        feedforward: nn.Module,
        *,
        norm: Callable[[], nn.Module],
        order: str = "post",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(feedforward, order, dropout)
        self.attention, self.cross = attention, cross
        self.attention_norm, self.cross_norm, self.feedforward_norm = norm(), norm(), norm()

    def forward(
        self,
        inputs: axes.Hidden,
        source: axes.Source,
        *,
        mask: Mask | None = None,
        source_mask: Mask | None = None,
        bias: Bias | None = None,
        positions: Positions | None = None,
        cache: Cache | None = None,
        weights: bool = False,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the output of the block; with ``weights=True`` also (self-attention weights, cross-attention weights).

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            source: Hidden vectors of the source, ``[batch, key, source_width]``.
            mask: Mask of the self-attention.
            source_mask: Mask of the cross-attention.
            bias: Bias of the self-attention.
            positions: Positions of the inputs, for the rotation.
            cache: Keys and values of earlier tokens.
            weights: Whether to return the weights too.
        """
        self_settings: AttentionSettings = {"mask": mask, "bias": bias, "positions": positions, "cache": cache}
        cross_settings: AttentionSettings = {"source": source, "mask": source_mask, "cache": cache}

        hidden = tap(f"{self.site}.input", inputs)
        hidden, self_weights = self._apply_attention(
            hidden, self.attention, self.attention_norm, weights, self_settings
        )
        hidden, cross_weights = self._apply_attention(hidden, self.cross, self.cross_norm, weights, cross_settings)
        hidden = self._apply_feedforward(hidden, self.feedforward_norm)

        if self_weights is None or cross_weights is None:
            return hidden
        return hidden, (self_weights, cross_weights)


class BareBlock(nn.Module):
    """Attention, then a feed-forward network, without norms and residual connections: to show what those are for.

    Args:
        attention: The attention.
        feedforward: The feed-forward network.
    """

    def __init__(self, attention: MultiHead, feedforward: nn.Module) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(
        self, inputs: axes.Hidden, *, weights: bool = False, **settings: Unpack[AttentionSettings]
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output of the block, and the weights of its attention if requested.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            weights: Whether to return the weights ``[batch, head, query, key]`` too.
            settings: Arguments of the attention: mask, bias, positions, cache.
        """
        attended, layer_weights = _call_attention(self.attention, inputs, weights, settings)
        output: Tensor = self.feedforward(attended)
        return output if layer_weights is None else (output, layer_weights)


def _call_attention(
    attention: nn.Module, inputs: Tensor, weights: bool, settings: AttentionSettings
) -> tuple[Tensor, Tensor | None]:
    """Return the output of an attention and its weights, None unless requested."""
    if not weights:
        return attention(inputs, **settings), None
    output, layer_weights = attention(inputs, weights=True, **settings)
    return output, layer_weights
