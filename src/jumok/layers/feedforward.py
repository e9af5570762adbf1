"""The feed-forward half of a block: what happens to each token by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.errors import ArgumentError
from jumok.small_batch_linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,  # by the error function (BERT)
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),  # by the tanh formula (GPT-2)
    "silu": functional.silu,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ArgumentError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class FeedForward(nn.Module):
    """inner map, activation, outer map; each token by itself."""

    def __init__(
        self, width: int, hidden: int, activation: str = "relu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner = Linear(width, hidden, bias=bias)
        self.outer = Linear(hidden, width, bias=bias)
        self.activation = get_activation(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: axes.Hidden) -> axes.Hidden:
        hidden = self.activation(self.inner(inputs))
        output: Tensor = self.outer(self.dropout(hidden) if self.training else hidden)
        return output


class GatedFeedForward(nn.Module):
    """The inner map times an activated gate (Shazeer 2020): SwiGLU with "silu", GEGLU with "gelu"."""

    def __init__(
        self, width: int, hidden: int, activation: str = "silu", *, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner = Linear(width, 2 * hidden, bias=bias)  # the gate, then what it gates: one product for both
        self.outer = Linear(hidden, width, bias=bias)
        self.activation = get_activation(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: axes.Hidden) -> axes.Hidden:
        gate, gated = self.inner(inputs).chunk(2, -1)
        hidden = self.activation(gate) * gated
        output: Tensor = self.outer(self.dropout(hidden) if self.training else hidden)
        return output
