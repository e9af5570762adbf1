"""Quantize a model's linear layers to 8 bits for generation (Dettmers et al. 2022, by absolute maximum).

A weight matrix becomes one byte per number and one scale per row. Generating one text reads every parameter once per
token, so fewer bytes mean less time. Norms, embeddings and attention stay as they are. torch has two CPU kernels for
8-bit matrices (measured in bench/generate.py, bench/results):

    IntegerLinear   fbgemm's integer product, the fastest where it exists (x86). It takes 8-bit inputs, which alone
                    would cost several per cent of perplexity, so each input is passed as two rows, a coarse and a
                    fine one, with 14 bits together. Both rows share one read of the matrix, which dominates the time.
    ManyRowLinear   8-bit inputs, each row with its own scale: for the encoder of a speech model, which always reads
                    1,500 rows, so that the arithmetic dominates and not the read of the matrix (bench/audio/speech.py).
    MixedLinear     bfloat16 inputs times an 8-bit matrix; runs everywhere.
"""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.errors import ArgumentError
from jumok.layers import DecoderBlock
from jumok.models import Model

# fbgemm adds pairs of products in 16 bits: 7-bit inputs never overflow, 8-bit inputs could.
COARSE = 63.0  # the coarse row maps the largest number of an input to this
FINE = 128.0  # fine steps per coarse step
# The kernel derives zero point and step of its inputs from their minimum and maximum. A row with these two numbers
# makes it choose 64 and 1, so that integers from -64 to 64 pass unchanged in 7 bits.
RANGE = (-64.0, 191.0)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix as 8-bit integers and one scale per row; ``integers * scales[:, None]`` approximates it."""
    scales = weight.abs().amax(-1).float().clamp_min(1e-12) / 127
    integers = (weight.float() / scales[:, None]).round().to(torch.int8)
    return integers, scales


class Int8Linear(nn.Module):
    """Base class of the linear layers with an 8-bit matrix."""

    bias: Tensor | None
    integers: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def multiply(self, rows: Tensor) -> Tensor:
        """Return ``rows @ weight.T + bias``."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's output in the dtype of the inputs."""
        rows = inputs.reshape(-1, self.in_features)
        if rows.shape[0] == 0:
            return inputs.new_empty(*inputs.shape[:-1], self.out_features)
        output = self.multiply(rows)
        if output.dtype is not inputs.dtype:
            output = output.to(inputs.dtype)
        return output.view(*inputs.shape[:-1], self.out_features)


class IntegerLinear(Int8Linear):
    """Integer inputs times an integer matrix, by fbgemm."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        integers, self.scales = quantize_rows(weight)
        self.packed = torch.fbgemm_pack_quantized_matrix(integers)
        self.row_sums = integers.sum(-1, dtype=torch.int32)
        self.zero_bias = torch.zeros(self.out_features)
        self.range_row = torch.zeros(1, self.in_features)
        self.range_row[0, :2] = torch.tensor(RANGE)
        # The kernel takes the unpacked matrix but reads only its shape: one number, expanded.
        self.unpacked = torch.zeros(1, 1, dtype=torch.int8).expand(self.out_features, self.in_features)
        # Tensors, because Python numbers would be converted at every call, which costs measurable time.
        self.coarse_scale, self.fine_scale = torch.tensor(COARSE), torch.tensor(FINE)
        self.join = torch.tensor([[1 / COARSE, 1 / COARSE / FINE, 0.0]])

    def __deepcopy__(self, memo: dict[int, Any]) -> IntegerLinear:
        memo[id(self.packed)] = self.packed  # fbgemm's own object, which has no copy and never changes
        copied = memo[id(self)] = type(self).__new__(type(self))
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    def multiply(self, rows: Tensor) -> Tensor:
        # Few and cheap operations: for one row they cost as much as the product itself.
        count = rows.shape[0]
        largest = rows.abs().amax(-1, True).float().clamp_min_(1e-30)
        fine = rows * torch.div(self.coarse_scale, largest)
        coarse = fine.round()
        parts = torch.fbgemm_linear_int8_weight_fp32_activation(
            torch.cat([coarse, fine.sub_(coarse).mul_(self.fine_scale), self.range_row]),
            self.unpacked,
            self.packed,
            self.row_sums,
            1.0,
            0,
            self.zero_bias,
        )
        if count == 1:
            output = torch.mm(self.join * largest, parts)
        else:
            output = (parts[:count] * FINE).add_(parts[count : 2 * count]).mul_(largest / (COARSE * FINE))
        return output.mul_(self.scales) if self.bias is None else torch.addcmul(self.bias, output, self.scales)


class ManyRowLinear(Int8Linear):
    """8-bit inputs times an 8-bit matrix; each row of the inputs has its own scale."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        integers, scales = quantize_rows(weight)
        self.register_buffer("integers", integers)
        self.register_buffer("scales", scales)
        self.steps = 63.0 if products_overflow() else 127.0

    def multiply(self, rows: Tensor) -> Tensor:
        step = rows.abs().amax(-1, True).float().clamp_min_(1e-30).div_(self.steps)
        rounded = rows.float().div(step).round_().to(torch.int8)
        output = torch._int_mm(rounded, self.integers.T).float().mul_(step).mul_(self.scales)
        return output if self.bias is None else output.add_(self.bias)


@functools.cache
def products_overflow() -> bool:
    """Return True if this processor adds pairs of 8-bit products in 16 bits, where large ones overflow (old x86)."""
    largest = torch.full((32, 64), 127, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.T) != 127 * 127 * 64).any())


class MixedLinear(Int8Linear):
    """bfloat16 inputs times an 8-bit matrix."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        integers, scales = quantize_rows(weight)
        self.padding = -self.in_features % 16  # the kernel reads past the end of rows that are no multiple of 16
        self.register_buffer("integers", functional.pad(integers, (0, self.padding)))
        self.register_buffer("scales", scales.to(torch.bfloat16))

    def multiply(self, rows: Tensor) -> Tensor:
        half = rows.to(torch.bfloat16)
        if self.padding:
            half = functional.pad(half, (0, self.padding))
        output = torch._weight_int8pack_mm(half, self.integers, self.scales)
        return output if self.bias is None else output + self.bias


@functools.cache
def has_int8_kernel() -> bool:
    """Return True if torch on this machine has a correct integer kernel.

    A trial product decides, because torch announces (in a warning, hidden here) that the kernel will be removed.
    """
    weight = torch.arange(-127.0, 128.0).view(5, 51)
    inputs = torch.stack([torch.linspace(-1, 1, 51), torch.linspace(0, 3, 51)])
    exact = inputs.double() @ weight.double().T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            output = IntegerLinear(weight, None)(inputs)
        except (AttributeError, RuntimeError):
            return False
    return bool((output - exact).abs().max() < 0.01 * exact.abs().max())


def quantize_linear(weight: Tensor, bias: Tensor | None) -> Int8Linear:
    """Return an 8-bit linear layer that uses the fastest kernel for the matrix's device."""
    if weight.device.type == "cpu" and weight.shape[1] >= 2 and has_int8_kernel():
        return IntegerLinear(weight, bias)
    return MixedLinear(weight, bias)


def quantize(model: Model) -> Model:
    """Return a copy of a model with 8-bit linear layers, for generation only (not for training)."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ArgumentError("this model is quantized to 8 bits already")
    quantized = copy.deepcopy(model).eval().requires_grad_(False)

    for module in list(quantized.modules()):
        if isinstance(module, DecoderBlock):  # its queries and keys have different inputs: one fused layer cannot serve
            module.cross = module.cross.convert_projection("batched").requires_grad_(False)

    many_rows: set[nn.Module] = set()
    if has_int8_kernel() and quantized.device.type == "cpu":
        many_rows = {layer for module in quantized.list_many_row_modules() for layer in module.modules()}
    for module in list(quantized.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                kernel = ManyRowLinear if child in many_rows else quantize_linear
                setattr(module, name, kernel(child.weight.detach(), child.bias))

    # A tied output layer reads the whole embedding table at every token, so it is quantized too.
    table = getattr(quantized, "embedding", None)
    if isinstance(table, nn.Embedding) and getattr(quantized, "output", ...) is None:
        quantized.output = quantize_linear(table.weight.detach(), None)
    return quantized
