"""The output layer of masked language models."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes

from .feedforward import get_activation
from .norm import LayerNorm


class MaskedOutput(nn.Module):
    """Inner map, activation and norm, then the logits of all tokens, with a bias per token (BERT).

    Args:
        width: Width of the hidden vectors.
        vocabulary: Number of tokens.
        activation: Name of the activation.
        epsilon: Epsilon of the norm.
        tied: Whether the output map is the embedding table, which is then passed to ``forward``.
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
        """Return the logits, ``[batch, query, vocab]``.

        Args:
            hidden: Hidden vectors, ``[batch, query, width]``.
            embedding: The embedding table, ``[vocab, width]``; used if the output map is tied.
        """
        table = embedding if self.output is None else self.output.weight
        transformed = self.norm(self.activation(self.inner(hidden)))
        return functional.linear(transformed, table, self.bias)
