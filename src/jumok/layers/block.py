"""Blocks: attention and feed-forward, joined by residual paths and norms. The parts come from outside.

order: "post" norms what the residual path gives (2017: norm(x + part(x))); "pre" norms what the part takes
(GPT-2: x + part(norm(x))).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from jumok import axes
from jumok.attention.bias import Bias
from jumok.attention.cache import Cache
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.attention.multihead import MultiHead
from jumok.errors import ArgumentError
from jumok.tap import tap


class _Residual(nn.Module):
    """The path around each part: a norm before or after, dropout on what the part gives."""

    def __init__(self, feedforward: nn.Module, order: str, dropout: float) -> None:
        super().__init__()
        if order not in ("post", "pre"):
            raise ArgumentError(f'order must be "post" or "pre", not {order!r}')
        self.order = order
        self.feedforward = feedforward
        self.dropout = nn.Dropout(dropout)
        self.site = "block"

    def around(self, inputs: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        given = part(norm(inputs) if self.order == "pre" else inputs)
        if self.training:  # asked here: in generation even a dropout that drops nothing is felt
            given = self.dropout(given)
        output = inputs + given
        return output if self.order == "pre" else norm(output)

    def apart(self, inputs: Tensor) -> Tensor:
        """The feed-forward part: each token by itself."""
        return tap(f"{self.site}.feedforward_output", self.feedforward(inputs))


class EncoderBlock(_Residual):
    """Self-attention, then feed-forward. Under a causal mask it is the block of GPT.

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

    def forward(self, inputs: axes.Hidden, *, weights: bool = False, **settings: Any) -> Any:
        """The block's output, and its weights where asked for. ``settings`` (mask, bias, positions, cache) are the
        attention's."""
        kept: list[Tensor] = []
        hidden = tap(f"{self.site}.input", inputs)
        hidden = self.around(hidden, self.attention_norm, _watched(self.attention, kept, weights, settings))
        hidden = self.around(hidden, self.feedforward_norm, self.apart)
        return (hidden, kept[0]) if weights else hidden


class DecoderBlock(_Residual):
    """Masked self-attention, cross-attention to a source, feed-forward; three norms."""

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
    ) -> Any:
        """The block's output; with ``weights=True`` also (own weights, weights on the source)."""
        own: list[Tensor] = []
        across: list[Tensor] = []
        hidden = tap(f"{self.site}.input", inputs)
        settings = {"mask": mask, "bias": bias, "positions": positions, "cache": cache}
        hidden = self.around(hidden, self.attention_norm, _watched(self.attention, own, weights, settings))
        settings = {"source": source, "mask": source_mask, "cache": cache}
        hidden = self.around(hidden, self.cross_norm, _watched(self.cross, across, weights, settings))
        hidden = self.around(hidden, self.feedforward_norm, self.apart)
        return (hidden, (own[0], across[0])) if weights else hidden


class BareBlock(nn.Module):
    """Attention, then feed-forward, and nothing else: no norm, no residual path. For seeing what those are for."""

    def __init__(self, attention: MultiHead, feedforward: nn.Module) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(self, inputs: axes.Hidden, *, weights: bool = False, **settings: Any) -> Any:
        kept: list[Tensor] = []
        hidden = self.feedforward(_watched(self.attention, kept, weights, settings)(inputs))
        return (hidden, kept[0]) if weights else hidden


def _watched(
    attention: nn.Module, kept: list[Tensor], weights: bool, settings: dict[str, Any]
) -> Callable[[Tensor], Tensor]:
    """The attention as a function of its input alone; its weights, where asked for, are put into ``kept``."""

    def part(inputs: Tensor) -> Tensor:
        if not weights:
            output: Tensor = attention(inputs, **settings)
            return output
        output, found = attention(inputs, weights=True, **settings)
        kept.append(found)
        return output

    return part
