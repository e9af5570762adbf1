"""Feed-forward networks, applied to each token separately."""

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

    def __init__(
        self, width: int, hidden: int, activation: str = "relu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner = Linear(width, hidden, bias=bias)
        self.outer = Linear(hidden, width, bias=bias)
        self.activation = get_activation(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: axes.Hidden) -> axes.Hidden:
        """Apply the network to each token.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
        """
        hidden = self.activation(self.inner(inputs))
        output: Tensor = self.outer(self.dropout(hidden) if self.training else hidden)
        return output


class GatedFeedForward(nn.Module):
    """Inner map times an activated gate, then the outer map (Shazeer 2020): SwiGLU with "silu", GEGLU with "gelu".

    Args:
        width: Width of inputs and outputs.
        hidden: Width between the maps.
        activation: Name of the activation of the gate.
        bias: Whether the maps have biases.
        dropout: Probability of dropping a hidden number in training.
    """

    def __init__(
        self, width: int, hidden: int, activation: str = "silu", *, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner = Linear(width, 2 * hidden, bias=bias)  # one product for the gate and the gated half
        self.outer = Linear(hidden, width, bias=bias)
        self.activation = get_activation(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: axes.Hidden) -> axes.Hidden:
        """Apply the network to each token.

        Args:
            inputs: Hidden vectors, ``[batch, query, width]``.
        """
        gate, gated = self.inner(inputs).chunk(2, -1)
        hidden = self.activation(gate) * gated
        output: Tensor = self.outer(self.dropout(hidden) if self.training else hidden)
        return output
