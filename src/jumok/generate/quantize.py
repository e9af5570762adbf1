"""Decoding with 8-bit parameters: one byte a number and one scale a row (Dettmers et al. 2022, by absolute maximum).

Generation of one text reads every parameter once a token, so bytes are time. Norms, embeddings and attention itself
stay as they are.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.models import Model


class Int8Linear(nn.Module):
    """A map with its matrix in 8 bits. bfloat16 inside the product: that is what the kernel takes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        largest = weight.abs().amax(-1, keepdim=True).float().clamp_min(1e-12)
        self.register_buffer("numbers", (weight.float() / largest * 127).round().to(torch.int8))
        self.register_buffer("scales", (largest[:, 0] / 127).to(torch.bfloat16))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.out_features, self.in_features = weight.shape

    numbers: Tensor
    scales: Tensor
    bias: Tensor | None

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(-1, self.in_features).to(torch.bfloat16)
        product = torch._weight_int8pack_mm(flat, self.numbers, self.scales)
        output = product.to(inputs.dtype).view(*inputs.shape[:-1], self.out_features)
        return output if self.bias is None else output + self.bias


def quantize(model: Model) -> Model:
    """A copy of ``model`` whose maps are 8 bits wide; for generation, not for training."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ArgumentError("this model has 8-bit maps already")
    small = copy.deepcopy(model).eval().requires_grad_(False)
    for module in list(small.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child.weight.detach(), child.bias))
    # a tied output map is the embedding's table: read as a whole at every token, so it too is worth 8 bits
    table = getattr(small, "embedding", None)
    if isinstance(table, nn.Embedding) and getattr(small, "output", ...) is None:
        small.output = Int8Linear(table.weight.detach(), None)
    return small
