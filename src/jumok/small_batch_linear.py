"""A linear map that is fast for a few rows: what generation does, one token at a time.

For one row, torch's product on a CPU reads the matrix with one core (bench/generate.py, LOG.md): cut into parts that
are multiplied side by side, all cores read. The sums are the same; only who computes them changes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

PARTS = 4
MOST_ROWS = 32  # with more rows the plain product keeps all cores busy by itself
SMALLEST = 2**18  # numbers in the matrix; below that it is over before the parts are shared out


def linear(
    inputs: Float[Tensor, "*batch inner"], weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None
) -> Float[Tensor, "*batch outer"]:
    """``inputs @ weight^T + bias``."""
    if not _thin(inputs, weight):
        return functional.linear(inputs, weight, bias)
    outer, inner = weight.shape
    rows = inputs.reshape(-1, inner)
    even = outer // PARTS * PARTS
    parts = torch.matmul(rows, weight[:even].view(PARTS, even // PARTS, inner).transpose(1, 2))  # [part, row, outer]
    output = parts.transpose(0, 1).reshape(rows.shape[0], even)
    if even < outer:
        output = torch.cat([output, rows @ weight[even:].T], -1)
    if bias is not None:
        output = output + bias
    return output.view(*inputs.shape[:-1], outer)


def _thin(inputs: Tensor, weight: Tensor) -> bool:
    return (
        weight.numel() >= SMALLEST
        and inputs.numel() <= MOST_ROWS * weight.shape[1]
        and inputs.device.type == "cpu"
        and inputs.dtype == torch.float32
        and not torch.is_grad_enabled()
        and inputs.numel() > 0
        and weight.is_contiguous()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class Linear(nn.Linear):
    """torch's linear map, computed by ``linear``."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)
