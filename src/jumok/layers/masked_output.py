"""From hidden vectors to tokens, as encoders that fill in masked tokens do it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes

from .feedforward import get_activation
from .norm import LayerNorm


class MaskedOutput(nn.Module):
    """inner map, activation, norm, then every token's score, with a bias for each token (BERT).

    tied: the embedding is the output map too; it stays where it is and is passed as ``embedding``.
    """

    def __init__(
        self, width: int, vocabulary: int, activation: str = "gelu", *, epsilon: float = 1e-12, tied: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.activation = get_activation(activation)
        self.norm = LayerNorm(width, eps=epsilon)
        self.output = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(
        self, hidden: axes.Hidden, embedding: Float[Tensor, "vocab width"]
    ) -> Float[Tensor, "batch query vocab"]:
        table = embedding if self.output is None else self.output.weight
        return functional.linear(self.norm(self.activation(self.inner(hidden))), table, self.bias)
