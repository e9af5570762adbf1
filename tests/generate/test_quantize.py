"""8-bit linear layers, compared with a float64 product of the same rounded matrix; and quantized models."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import jumok
from jumok.errors import ArgumentError, CheckpointError
from jumok.generate import generate, quantize
from jumok.generate.quantize import (
    Int8Linear,
    IntegerLinear,
    ManyRowLinear,
    MixedLinear,
    has_int8_kernel,
    quantize_rows,
)
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig

# The error that rounding the input may cause, relative to the largest output: 14 bits, or bfloat16's 8, or 7 bits.
KERNELS = [pytest.param(MixedLinear, 1e-2, id="mixed")]
if has_int8_kernel():
    KERNELS.append(pytest.param(IntegerLinear, 5e-4, id="integer"))
    KERNELS.append(pytest.param(ManyRowLinear, 2e-2, id="many rows"))


def multiply_exactly(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    integers, scales = quantize_rows(weight)
    matrix = integers.double() * scales.double()[:, None]
    output = inputs.double() @ matrix.T
    return output if bias is None else output + bias.double()


@pytest.mark.parametrize(("kernel", "tolerance"), KERNELS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outer", "inner"), [(50, 77), (1, 2), (64, 48), (33, 256), (257, 5)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2,), (1, 40)])
def test_product_equals_that_of_the_rounded_matrix(
    kernel: type[Int8Linear], tolerance: float, bias: bool, outer: int, inner: int, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    weight, inputs = torch.randn(outer, inner), torch.randn(*shape, inner)
    inputs.view(-1, inner)[0] *= 1e4  # each row has its own range
    inputs.view(-1, inner)[-1, 0] = 300.0  # an outlier
    offset = torch.randn(outer) if bias else None
    expected = multiply_exactly(weight, offset, inputs)
    output = kernel(weight, offset)(inputs)
    assert output.dtype == inputs.dtype and output.shape == expected.shape
    largest = (inputs.double().abs().amax(-1, keepdim=True) * weight.abs().max()).clamp_min(1) * inner**0.5
    assert ((output - expected).abs() / largest).max() < tolerance


@pytest.mark.parametrize(("kernel", "tolerance"), KERNELS)
def test_empty_inputs_and_half_precision(kernel: type[Int8Linear], tolerance: float) -> None:
    torch.manual_seed(1)
    weight, bias = torch.randn(12, 20), torch.randn(12)
    layer = kernel(weight, bias)
    assert torch.equal(layer(torch.zeros(2, 20)), bias.expand(2, 12))
    assert layer(torch.zeros(0, 3, 20)).shape == (0, 3, 12)
    inputs = torch.randn(4, 20).bfloat16()
    output = layer(inputs)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), multiply_exactly(weight, bias, inputs), atol=0.1, rtol=0.02)


def test_rounding_error_is_at_most_half_a_step() -> None:
    weight = torch.randn(30, 40)
    integers, scales = quantize_rows(weight)
    assert integers.dtype == torch.int8 and int(integers.abs().max()) == 127
    assert ((integers * scales[:, None] - weight).abs() <= scales[:, None] * 0.5001).all()


def build_models() -> list[Model]:
    torch.manual_seed(2)
    return [
        GPT(GPTConfig(width=48, layers=2, heads=4, hidden=96, vocabulary=61, length=40)),
        T5(T5Config(width=48, layers=2, decoder_layers=2, heads=4, head_width=12, hidden=96, vocabulary=61)),
        Transformer(TransformerConfig(width=48, layers=2, decoder_layers=2, heads=4, hidden=96, vocabulary=61)),
        BERT(BERTConfig(width=48, layers=2, heads=4, hidden=96, vocabulary=61, length=40, head="mlm")),
    ]


@pytest.mark.parametrize("model", build_models(), ids=lambda model: model.family)
def test_quantized_model_gives_nearly_the_same_logits(model: Model, tmp_path: Path) -> None:
    model.eval()
    small = quantize(model)
    assert any(isinstance(module, Int8Linear) for module in small.modules())
    assert not any(isinstance(module, nn.Linear) for module in small.modules())
    assert not any(isinstance(module, Int8Linear) for module in model.modules())  # the model itself is unchanged
    tokens = torch.randint(3, 61, (2, 9))
    inputs = (tokens, tokens[:, :6]) if model.is_encoder_decoder else (tokens,)
    with torch.inference_mode():
        exact, rounded = model(*inputs).logits, small(*inputs).logits
    difference = (exact - rounded).abs().max() / exact.abs().max()
    assert 0 < difference < 0.05
    if model.family != "bert":
        assert len(generate(small, [[5, 6, 7], [8, 9]], limit=4)) == 2
    with pytest.raises(ArgumentError, match="quantized to 8 bits already"):
        quantize(small)
    with torch.inference_mode():
        assert torch.equal(copy.deepcopy(small)(*inputs).logits, rounded)
    for format in ("jumok", "huggingface"):
        with pytest.raises(CheckpointError, match=r"parameters of this \w+ model are missing, .* before quantize"):
            jumok.save(small, tmp_path / format, format)
    assert not list(tmp_path.iterdir())
