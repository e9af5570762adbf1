"""Networks that are applied to each token separately: feed-forward networks, and the output layer of masked models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.errors import ArgumentError
from jumok.small_batch_linear import Linear

from .norm import LayerNorm

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,  # by the error function (BERT)
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # by the tanh formula (GPT-2)
    "silu": functional.silu,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return an activation function."""
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}; choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class FeedForward(nn.Module):
    """Inner map, activation, outer map.

    Args:
        width: Width of inputs and outputs.
        hidden: Width between the maps.
        activation: Name of the activation.
        bias: Whether the maps have biases.
        dropout: Probability of dropping a hidden number in training.
    """

    inner_maps = 1

    def __init__(
        self, width: int, hidden: int, activation: str = "relu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner = Linear(width, self.inner_maps * hidden, bias=bias)
        self.outer = Linear(hidden, width, bias=bias)
        self.activation = get_activation(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: axes.Hidden) -> axes.Hidden:
        """Apply the network to each token.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
        """
        hidden = self._activate(self.inner(inputs))
        output: Tensor = self.outer(self.dropout(hidden) if self.training else hidden)
        return output

    def _activate(self, hidden: Tensor) -> Tensor:
        return self.activation(hidden)


class GatedFeedForward(FeedForward):
    """Inner map times an activated gate, then the outer map (Shazeer 2020): SwiGLU with "silu", GEGLU with "gelu".

    Args:
        width: Width of inputs and outputs.
        hidden: Width between the maps.
        activation: Name of the activation of the gate.
        bias: Whether the maps have biases.
        dropout: Probability of dropping a hidden number in training.
    """

    inner_maps = 2  # one product for the gate and the gated half

    def __init__(
        self, width: int, hidden: int, activation: str = "silu", *, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__(width, hidden, activation, bias=bias, dropout=dropout)

    def _activate(self, hidden: Tensor) -> Tensor:
        gate, gated = hidden.chunk(2, -1)
        return self.activation(gate) * gated


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
