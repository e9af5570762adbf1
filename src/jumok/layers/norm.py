"""Norms: LayerNorm as in PyTorch (biased variance, epsilon inside the root), and RMSNorm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """``torch.nn.LayerNorm`` with less call overhead."""

    def forward(self, input: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise each vector."""
        # torch.layer_norm directly: nn.LayerNorm's call overhead is measurable in small models
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divides by the root mean square (Zhang and Sennrich 2019), without subtracting the mean and without bias.

    Args:
        width: Width of the vectors.
        eps: Number added to the mean square.
    """

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalise each vector.

        Args:
            inputs: Vectors, ``[..., width]``.
        """
        # float32: squares of half-precision numbers overflow
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(inputs.dtype)
