"""Decoding with 8-bit parameters: one byte a number and one scale a row (Dettmers et al. 2022, by absolute maximum).

Generation of one text reads every parameter once a token, so bytes are time. Norms, embeddings and attention itself
stay as they are. Two kernels of torch's can multiply 8-bit matrices on a CPU (bench/generate.py, LOG.md):

    Whole   fbgemm's product of whole numbers, the fastest where there is one (x86). It takes inputs of 8 bits too,
            which alone would cost several per cent of perplexity; so an input goes in as two rows, a coarse and a
            fine one, 14 bits together. The matrix is read once for both, and reading it is all that costs.
    Mixed   bfloat16 inputs against an 8-bit matrix; everywhere.
"""

from __future__ import annotations

import copy
import functools
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.errors import ArgumentError
from jumok.layers import DecoderBlock
from jumok.models import Model

# fbgemm adds products in pairs into 16 bits: inputs of 7 bits never overflow, inputs of 8 would
COARSE = 63.0  # what the largest number of an input becomes in the coarse row
FINE = 128.0  # how many fine steps make a coarse one
# The kernel chooses its inputs' zero and step by their least and greatest number. A row of these two lets it choose
# 64 and 1, so that whole numbers from -64 to 64 go in as they are, in 7 bits.
RANGE = (-64.0, 191.0)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as 8-bit numbers and a scale for each row: ``numbers * scales[:, None]`` is nearly the matrix."""
    scales = weight.abs().amax(-1).float().clamp_min(1e-12) / 127
    return (weight.float() / scales[:, None]).round().to(torch.int8), scales


class Int8Linear(nn.Module):
    """A map with its matrix in 8 bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    bias: Tensor | None

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None) -> Int8Linear:
        """By the fastest kernel there is for where the matrix lies."""
        whole = weight.device.type == "cpu" and weight.shape[1] >= 2 and has_int8_kernel()
        return IntegerLinear(weight, bias) if whole else MixedLinear(weight, bias)

    def product(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, self.in_features)
        if rows.shape[0] == 0:
            return inputs.new_empty(*inputs.shape[:-1], self.out_features)
        output = self.product(rows)
        if output.dtype is not inputs.dtype:
            output = output.to(inputs.dtype)
        return output.view(*inputs.shape[:-1], self.out_features)


class IntegerLinear(Int8Linear):
    """Whole numbers times whole numbers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        numbers, self.scales = quantize_rows(weight)
        self.packed = torch.fbgemm_pack_quantized_matrix(numbers)
        self.sums = numbers.sum(-1, dtype=torch.int32)
        self.nothing = torch.zeros(self.out_features)
        self.range = torch.zeros(1, self.in_features)
        self.range[0, :2] = torch.tensor(RANGE)
        # the kernel asks for the matrix as it was, but reads its shape alone: one number, seen everywhere
        self.shape = torch.zeros(1, 1, dtype=torch.int8).expand(self.out_features, self.in_features)
        # numbers of Python's would be made into tensors at every call, which is felt
        self.coarse, self.fine = torch.tensor(COARSE), torch.tensor(FINE)
        self.joining = torch.tensor([[1 / COARSE, 1 / COARSE / FINE, 0.0]])

    def product(self, rows: Tensor) -> Tensor:
        # as few and as cheap steps as can be: at one row they cost as much as the product
        count = rows.shape[0]
        largest = rows.abs().amax(-1, True).float().clamp_min_(1e-30)
        fine = rows * torch.div(self.coarse, largest)
        coarse = fine.round()
        parts = torch.fbgemm_linear_int8_weight_fp32_activation(
            torch.cat([coarse, fine.sub_(coarse).mul_(self.fine), self.range]),
            self.shape,
            self.packed,
            self.sums,
            1.0,
            0,
            self.nothing,
        )
        if count == 1:
            output = torch.mm(self.joining * largest, parts)
        else:
            output = (parts[:count] * FINE).add_(parts[count : 2 * count]).mul_(largest / (COARSE * FINE))
        return output.mul_(self.scales) if self.bias is None else torch.addcmul(self.bias, output, self.scales)


class MixedLinear(Int8Linear):
    """bfloat16 times 8 bits: that is what the kernel takes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        numbers, scales = quantize_rows(weight)
        self.room = -self.in_features % 16  # the kernel reads past the end of rows that it cannot cut into eights
        self.register_buffer("numbers", functional.pad(numbers, (0, self.room)))
        self.register_buffer("scales", scales.to(torch.bfloat16))

    numbers: Tensor
    scales: Tensor

    def product(self, rows: Tensor) -> Tensor:
        narrow = rows.to(torch.bfloat16)
        if self.room:
            narrow = functional.pad(narrow, (0, self.room))
        output = torch._weight_int8pack_mm(narrow, self.numbers, self.scales)
        return output if self.bias is None else output + self.bias


@functools.cache
def has_int8_kernel() -> bool:
    """Does this torch on this machine multiply whole numbers, and rightly? Tried out, because torch says (once, here)
    that the kernel will go one day."""
    weight = torch.arange(-127.0, 128.0).view(5, 51)
    inputs = torch.stack([torch.linspace(-1, 1, 51), torch.linspace(0, 3, 51)])
    exact = inputs.double() @ weight.double().T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = IntegerLinear(weight, None)(inputs)
        except (AttributeError, RuntimeError):
            return False
    return bool((found - exact).abs().max() < 0.01 * exact.abs().max())


def quantize(model: Model) -> Model:
    """A copy of ``model`` whose maps are 8 bits wide; for generation, not for training."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ArgumentError("this model has 8-bit maps already")
    small = copy.deepcopy(model).eval().requires_grad_(False)
    for module in list(small.modules()):
        if isinstance(module, DecoderBlock):  # its queries and its keys come from two texts: no one map for both
            module.cross = module.cross.convert_projection("batched").requires_grad_(False)
    for module in list(small.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear.of(child.weight.detach(), child.bias))
    # a tied output map is the embedding's table: read as a whole at every token, so it too is worth 8 bits
    table = getattr(small, "embedding", None)
    if isinstance(table, nn.Embedding) and getattr(small, "output", ...) is None:
        small.output = Int8Linear.of(table.weight.detach(), None)
    return small
