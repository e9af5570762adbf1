"""Norms. LayerNorm is torch's: biased variance, epsilon inside the root; anything else cannot match a checkpoint."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["LayerNorm", "RMSNorm"]


class LayerNorm(nn.LayerNorm):
    """torch's, called without the detours: a small model is felt to have fifty of them."""

    def forward(self, input: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divides by the root of the mean square (Zhang and Sennrich 2019). No mean taken away, no bias."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        # float32: squares of half-precision numbers overflow
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(inputs.dtype)
