"""A linear layer that is fast for a few rows, as in generating one token at a time.

For one row, the matrix product of PyTorch reads the weight matrix with one CPU core (bench/generate.py). Split
into chunks that are multiplied as a batch, all cores read it. The sums are the same.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

CHUNKS = 4
MAX_ROWS = 32  # with more rows, the plain product keeps all cores busy
MIN_WEIGHT_SIZE = 2**18  # entries of the weight matrix; a smaller product is done before the chunks are distributed


def linear(
    inputs: Float[Tensor, "*batch inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None
) -> Float[Tensor, "*batch outer"]:
    """Compute ``inputs @ weight.T + bias``."""
    if not _should_split(inputs, weight):
        return functional.linear(inputs, weight, bias)

    outer, inner = weight.shape
    rows = inputs.reshape(-1, inner)
    even = outer // CHUNKS * CHUNKS
    chunks = weight[:even].view(CHUNKS, even // CHUNKS, inner)
    products = torch.matmul(rows, chunks.transpose(1, 2))  # [chunk, row, outer / CHUNKS]
    output = products.transpose(0, 1).reshape(rows.shape[0], even)

    if even < outer:
        output = torch.cat([output, rows @ weight[even:].T], -1)
    if bias is not None:
        output = output + bias
    return output.view(*inputs.shape[:-1], outer)


def _should_split(inputs: Tensor, weight: Tensor) -> bool:
    return (
        weight.numel() >= MIN_WEIGHT_SIZE
        and inputs.numel() <= MAX_ROWS * weight.shape[1]
        and inputs.device.type == "cpu"
        and inputs.dtype == torch.float32
        and not torch.is_grad_enabled()
        and inputs.numel() > 0
        and weight.is_contiguous()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class Linear(nn.Linear):
    """``torch.nn.Linear``, computed by ``linear``."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute ``input @ weight.T + bias``."""
        return linear(input, self.weight, self.bias)
