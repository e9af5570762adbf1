"""Transformer blocks: attention and feed-forward network, each with a norm and a residual connection.

``order`` says where the norm is: "post" normalises the sum (Vaswani et al. 2017: ``norm(x + layer(x))``), "pre"
normalises the input of the layer (GPT-2: ``x + layer(norm(x))``). A block with the order "pre" can have norms of the
outputs too (Gemma 3: ``x + norm(layer(norm(x)))``); what the taps see is what is added.
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
from jumok.attention.weights import AttentionModule
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


class _ResidualBlock(AttentionModule):
    """Residual connections with a norm before or after each layer, and dropout on the output of each layer."""

    def __init__(self, feedforward: nn.Module, order: str, dropout: float) -> None:
        super().__init__()
        if order not in ("post", "pre"):
            raise ArgumentError(f'order must be "post" or "pre", not {order!r}')
        self.order = order
        self.feedforward = feedforward
        self.feedforward_output_norm: nn.Module | None = None
        self.dropout = nn.Dropout(dropout)
        self.site = "block"

    def add_residual(self, hidden: Tensor, layer_output: Tensor, norm: nn.Module) -> Tensor:
        """Return the residual stream behind a layer.

        Args:
            hidden: The residual stream before the layer.
            layer_output: What the layer adds.
            norm: The norm of the layer; with order="post" it normalises the sum.
        """
        if self.training:  # in generation, even the call of a dropout layer that drops nothing is measurable
            layer_output = self.dropout(layer_output)
        output = hidden + layer_output
        return output if self.order == "pre" else norm(output)

    def _apply_attention(
        self, hidden: Tensor, attention: nn.Module, norm: nn.Module, settings: AttentionSettings
    ) -> Tensor:
        inputs = norm(hidden) if self.order == "pre" else hidden
        return self.add_residual(hidden, attention(inputs, **settings), norm)

    def _apply_feedforward(self, hidden: Tensor, norm: nn.Module) -> Tensor:
        inputs = norm(hidden) if self.order == "pre" else hidden
        output = self.feedforward(inputs)
        if self.feedforward_output_norm is not None:
            output = self.feedforward_output_norm(output)
        return self.add_residual(hidden, tap(f"{self.site}.feedforward_output", output), norm)


class EncoderBlock(_ResidualBlock):
    """Self-attention, then a feed-forward network. With a causal mask it is the block of GPT.

    Args:
        attention: The attention, such as a ``MultiHead``.
        feedforward: The feed-forward network.
        norm: Function that makes a norm; called once per layer.
        order: "post" or "pre": whether the norm follows or precedes each layer.
        dropout: Probability of dropping an output of a layer in training.
        feedforward_output_norm: A norm on the output of the feed-forward network; None for no norm. That of the
            attention belongs to ``MultiHead``.

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
        feedforward_output_norm: nn.Module | None = None,
    ) -> None:
        super().__init__(feedforward, order, dropout)
        self.attention = attention
        self.feedforward_output_norm = feedforward_output_norm
        self.attention_norm, self.feedforward_norm = norm(), norm()

    def forward(self, inputs: axes.Hidden, **settings: Unpack[AttentionSettings]) -> Tensor:
        """Return the output of the block; ``block(inputs, weights=True)`` returns the weights of its attention too.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            settings: Arguments of the attention: mask, bias, positions, cache.
        """
        hidden = tap(f"{self.site}.input", inputs)
        hidden = self._apply_attention(hidden, self.attention, self.attention_norm, settings)
        return self._apply_feedforward(hidden, self.feedforward_norm)


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
    ) -> Tensor:
        """Return the output of the block; ``block(inputs, source, weights=True)`` returns (self-attention weights,
        cross-attention weights) too.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            source: Hidden vectors of the source, ``[batch, key, source_width]``.
            mask: Mask of the self-attention.
            source_mask: Mask of the cross-attention.
            bias: Bias of the self-attention.
            positions: Positions of the inputs, for the rotation.
            cache: Keys and values of earlier tokens.
        """
        self_settings: AttentionSettings = {"mask": mask, "bias": bias, "positions": positions, "cache": cache}
        cross_settings: AttentionSettings = {"source": source, "mask": source_mask, "cache": cache}

        hidden = tap(f"{self.site}.input", inputs)
        hidden = self._apply_attention(hidden, self.attention, self.attention_norm, self_settings)
        hidden = self._apply_attention(hidden, self.cross, self.cross_norm, cross_settings)
        return self._apply_feedforward(hidden, self.feedforward_norm)


class BareBlock(AttentionModule):
    """Attention, then a feed-forward network, without norms and residual connections: to show what those are for.

    Args:
        attention: The attention.
        feedforward: The feed-forward network.
    """

    def __init__(self, attention: MultiHead, feedforward: nn.Module) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(self, inputs: axes.Hidden, **settings: Unpack[AttentionSettings]) -> Tensor:
        """Return the output of the block; ``block(inputs, weights=True)`` returns the weights of its attention too.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
            settings: Arguments of the attention: mask, bias, positions, cache.
        """
        output: Tensor = self.feedforward(self.attention(inputs, **settings))
        return output
