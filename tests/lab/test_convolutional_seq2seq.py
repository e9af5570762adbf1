"""The convolutional encoder-decoder: causal, equal to plain loops, seen by the lens."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from jumok.lab.experiments.setups.convolutional_seq2seq import (
    ConvolutionalConfig,
    ConvolutionalSeq2Seq,
    GatedConvolution,
)
from jumok.lens import Lens

BATCH, SOURCE, TARGET, VOCABULARY = 2, 7, 5, 11


@pytest.fixture
def model() -> ConvolutionalSeq2Seq:
    torch.manual_seed(0)
    return ConvolutionalSeq2Seq(ConvolutionalConfig(vocabulary=VOCABULARY, width=13, layers=2)).double().eval()


def draw_tokens(length: int) -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, length), generator=torch.Generator().manual_seed(length))


def test_later_target_tokens_do_not_change_earlier_logits(model: ConvolutionalSeq2Seq) -> None:
    source, target = draw_tokens(SOURCE), draw_tokens(TARGET)
    logits = model(source, target).logits
    for position in range(TARGET):
        changed = target.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        difference = (model(source, changed).logits - logits).abs().amax((0, 2))
        assert (difference[:position] == 0).all() and (difference[position:] > 0).all()


def test_every_source_token_changes_the_logits(model: ConvolutionalSeq2Seq) -> None:
    source, target = draw_tokens(SOURCE), draw_tokens(TARGET)
    for position in range(SOURCE):
        changed = source.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        assert (model(changed, target).logits - model(source, target).logits).abs().amax((1, 2)).min() > 0


@pytest.mark.parametrize("causal", [False, True])
def test_convolution_equals_plain_loops(causal: bool) -> None:
    torch.manual_seed(1)
    layer = GatedConvolution(3, 5, causal=causal).double()
    inputs = torch.randn(1, SOURCE, 3, dtype=torch.float64)
    output = layer(inputs)[0]
    weight, bias = layer.convolution.weight.tolist(), layer.convolution.bias.tolist()
    for position in range(SOURCE):
        sums = list(bias)
        for tap in range(5):
            neighbour = position + tap - (4 if causal else 2)
            if 0 <= neighbour < SOURCE:
                for channel in range(6):
                    sums[channel] += sum(weight[channel][i][tap] * float(inputs[0, neighbour, i]) for i in range(3))
        expected = [sums[i] / (1 + math.exp(-sums[i + 3])) for i in range(3)]
        torch.testing.assert_close(output[position].tolist(), expected, rtol=0, atol=1e-12)


def test_lens_records_the_attention_of_every_decoder_block(model: ConvolutionalSeq2Seq) -> None:
    with Lens(model.float()) as lens:
        capture = lens.run(draw_tokens(SOURCE), draw_tokens(TARGET))
    assert list(capture.attentions) == ["decoder.0.cross", "decoder.1.cross"]
    weights = capture.weights("decoder.1.cross", 0)
    assert weights.shape == (TARGET, SOURCE)
    torch.testing.assert_close(weights.sum(-1), torch.ones(TARGET))
