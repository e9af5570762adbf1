"""8-bit maps, against a product in float64 of the same rounded matrix; and every family with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.generate import generate, quantize
from jumok.generate.quantize import Int8Linear, IntegerLinear, MixedLinear, has_int8_kernel, quantize_rows
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig

# what an input's own rounding may cost, as a share of the largest output: 14 bits, and bfloat16's 8
KERNELS = [pytest.param(MixedLinear, 1e-2, id="mixed")]
if has_int8_kernel():
    KERNELS.append(pytest.param(IntegerLinear, 5e-4, id="whole"))


def exact(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> Tensor:
    numbers, scales = quantize_rows(weight)
    matrix = numbers.double() * scales.double()[:, None]
    output = inputs.double() @ matrix.T
    return output if bias is None else output + bias.double()


@pytest.mark.parametrize(("kernel", "share"), KERNELS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outer", "inner"), [(50, 77), (1, 2), (64, 48), (33, 256), (257, 5)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2,), (1, 40)])
def test_the_product_is_the_rounded_matrix_s(
    kernel: type[Int8Linear], share: float, bias: bool, outer: int, inner: int, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    weight, inputs = torch.randn(outer, inner), torch.randn(*shape, inner)
    inputs.view(-1, inner)[0] *= 1e4  # rows have their own range
    inputs.view(-1, inner)[-1, 0] = 300.0  # one number far above the others
    offset = torch.randn(outer) if bias else None
    wanted = exact(weight, offset, inputs)
    found = kernel(weight, offset)(inputs)
    assert found.dtype == inputs.dtype and found.shape == wanted.shape
    largest = (inputs.double().abs().amax(-1, keepdim=True) * weight.abs().max()).clamp_min(1) * inner**0.5
    assert ((found - wanted).abs() / largest).max() < share


@pytest.mark.parametrize(("kernel", "share"), KERNELS)
def test_nothing_and_half_precision(kernel: type[Int8Linear], share: float) -> None:
    torch.manual_seed(1)
    weight, bias = torch.randn(12, 20), torch.randn(12)
    made = kernel(weight, bias)
    assert torch.equal(made(torch.zeros(2, 20)), bias.expand(2, 12))
    assert made(torch.zeros(0, 3, 20)).shape == (0, 3, 12)
    inputs = torch.randn(4, 20).bfloat16()
    found = made(inputs)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact(weight, bias, inputs), atol=0.1, rtol=0.02)


def test_a_rounded_matrix_is_within_half_a_step() -> None:
    weight = torch.randn(30, 40)
    numbers, scales = quantize_rows(weight)
    assert numbers.dtype == torch.int8 and int(numbers.abs().max()) == 127
    assert ((numbers * scales[:, None] - weight).abs() <= scales[:, None] * 0.5001).all()


def models() -> list[Model]:
    torch.manual_seed(2)
    return [
        GPT(GPTConfig(width=48, layers=2, heads=4, hidden=96, vocabulary=61, length=40)),
        T5(T5Config(width=48, layers=2, decoder_layers=2, heads=4, head_width=12, hidden=96, vocabulary=61)),
        Transformer(TransformerConfig(width=48, layers=2, decoder_layers=2, heads=4, hidden=96, vocabulary=61)),
        BERT(BERTConfig(width=48, layers=2, heads=4, hidden=96, vocabulary=61, length=40, head="mlm")),
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.family)
def test_a_model_of_8_bits_says_nearly_the_same(model: Model) -> None:
    model.eval()
    small = quantize(model)
    assert any(isinstance(module, Int8Linear) for module in small.modules())
    assert not any(isinstance(module, nn.Linear) for module in small.modules())
    assert not any(isinstance(module, Int8Linear) for module in model.modules())  # the model itself stays
    tokens = torch.randint(3, 61, (2, 9))
    given = (tokens, tokens[:, :6]) if model.is_encoder_decoder else (tokens,)
    with torch.inference_mode():
        whole, close = model(*given).logits, small(*given).logits
    difference = (whole - close).abs().max() / whole.abs().max()
    assert 0 < difference < 0.05
    if model.family != "bert":
        assert len(generate(small, [[5, 6, 7], [8, 9]], limit=4)) == 2
    with pytest.raises(ArgumentError, match="quantized to 8 bits already"):
        quantize(small)
