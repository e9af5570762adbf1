"""What the course says about its five source documents, stated with our own code: a claim that is false fails here."""

from __future__ import annotations

import math
import os
import re

import pytest
import torch
from page_blocks import ROOT
from torch import Tensor, nn

from jumok.attention import Head, MultiHead, attend, mask
from jumok.layers import BareBlock, EncoderBlock, FeedForward, LayerNorm, SinusoidalPositions

SOURCE = torch.tensor([[10.0, 20.0, 30.0, 40.0, 50.0]])
SHIFTED = torch.tensor([[0.0, 12.0, 22.0, 32.0, 42.0]])

NAMES = {
    "D0": "PositionalEncoding TransformerModel SelfAttentionHead MySimpleTransformerBlock MultiHeadAttention",
    "D1": "scaled_dot_product_attention MultiHeadAttention",
    "D2": "OldAttention SingleHeadCrossAttention_2015 bahdanau_attention_2015 MultiHeadSelfAttention_2017 "
    "SingleHeadAttention MultiHeadAttention TransformerBlock SimpleTransformer MultiHeadCrossAttention "
    "EncoderDecoderTransformer DecoderBlock SentimentAnalyzer ImageCaptioning optimized_attention",
    "D3": "CausalSelfAttention simple_attention SimpleMultiHeadAttention",
}


class LectureModel(nn.Module):
    """The lecture's model (D0) in our words: numbers to vectors, sinusoids, nn.Transformer with a causal target."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Linear(1, 16), nn.Linear(16, 1)
        self.transformer = nn.Transformer(16, 2, 2, 2, dim_feedforward=32, batch_first=True)
        angles = torch.arange(5.0)[:, None] / 10_000 ** (torch.arange(0, 16, 2) / 16)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the five predictions, [batch, 5]."""
        source, target = (4 * self.embedding(numbers[..., None]) + self.positions for numbers in (source, target))
        future = nn.Transformer.generate_square_subsequent_mask(5, dtype=source.dtype)
        return self.output(self.transformer(source, target, tgt_mask=future))[..., 0]


def test_the_lectures_decoder_does_not_read_the_number_that_it_predicts() -> None:
    torch.manual_seed(1)
    model, source = LectureModel().eval().double(), SOURCE.double().expand(5, -1)
    change = model(source, SHIFTED + 50 * torch.eye(5).double()) - model(source, SHIFTED.double().expand(5, -1))
    assert torch.equal(change.abs() > 1e-9, torch.ones(5, 5).triu().bool())  # row: changed input, column: prediction


def test_the_numbers_of_the_lecture_are_alike_to_its_first_layer_norm() -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        model = LectureModel()
        numbers = 4 * model.embedding(SHIFTED[0, 1:, None])
        positions = model.get_buffer("positions")[1:]
        assert 50 < numbers.norm() / positions.norm() < 150
        normed = nn.functional.layer_norm(numbers + positions, (16,))
        assert (nn.functional.cosine_similarity(normed[:1], normed, dim=1) > 0.99).all()


@pytest.mark.skipif(int(os.environ.get("JUMOK_FAULTS", "0")) < 200, reason="5,000 steps of training: make faults")
def test_the_lectures_model_learns_five_constants() -> None:
    torch.manual_seed(1)
    model = LectureModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(5001):
        if epoch in (501, 5000):
            predictions, moved = (model.eval()(source, SHIFTED)[0].detach() for source in (SOURCE, SOURCE + 7))
            assert (moved - predictions).abs().max() < 1  # it does not even read the source
            if epoch == 501:
                assert predictions[1:].max() - predictions[1:].min() < 1
                assert 18 < predictions[1:].mean() < 24
            else:
                assert predictions.diff().min() > 2
            model.train()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(SOURCE, SHIFTED), SOURCE + 2).backward()
        optimizer.step()


def test_the_lectures_positions_are_ours() -> None:
    assert torch.allclose(LectureModel().get_buffer("positions"), SinusoidalPositions(16)(range(5)), atol=1e-6)


def test_the_lectures_weights_do_not_come_from_its_scores() -> None:
    scores = torch.tensor([5.0, 95.0, 12.0])
    for divisor in (1, 8):
        assert (scores / divisor).softmax(0)[1] > 0.9999
    assert round(math.log(0.88 / 0.03), 2) == 3.38


def test_the_lectures_layers_have_our_parameters_and_the_shape_of_their_input() -> None:
    def count(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    inputs = torch.randn(1, 3, 8)
    joined = MultiHead(8, 2, projection="single")
    assert count(Head(4, 4)) == 3 * (4 * 4 + 4)
    assert count(joined) == 2 * 3 * (8 * 4 + 4) + 8 * 8 + 8
    for layer in (joined, BareBlock(joined, FeedForward(8, 16)), nn.Sequential(joined, joined)):
        assert layer(inputs).shape == inputs.shape


def test_the_chapters_layers_have_our_shapes_and_parameters() -> None:
    _, weights = attend(*torch.randn(3, 1, 1, 4, 64), weights=True)
    assert weights.shape == (1, 1, 4, 4) and torch.allclose(weights.sum(-1), torch.ones(()))
    layer = MultiHead(512, 8)
    output, weights = layer(torch.randn(2, 16, 512), weights=True)
    assert (output.shape, weights.shape) == ((2, 16, 512), (2, 8, 16, 16))
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (512 * 512 + 512) == 1_050_624


def test_the_chapters_mask_gives_nan_where_nothing_may_be_attended_to() -> None:
    inputs = torch.randn(1, 1, 3, 8)
    nothing_for_the_first = torch.tensor([[False] * 3, [True] * 3, [True] * 3])
    theirs = (inputs @ inputs.mT / 8**0.5).masked_fill(~nothing_for_the_first, -math.inf).softmax(-1) @ inputs
    ours = attend(inputs, inputs, inputs, mask=mask.given(nothing_for_the_first))
    assert theirs[0, 0, 0].isnan().all() and (ours[0, 0, 0] == 0).all()
    assert torch.allclose(theirs[0, 0, 1:], ours[0, 0, 1:], atol=1e-6)


def test_the_notes_sum_and_its_heads() -> None:
    values = torch.tensor([[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]])
    assert torch.allclose(torch.tensor([0.1, 0.8, 0.1]) @ values, torch.tensor([81.5, 81.5]))
    inputs, projection = torch.randn(1, 3, 64), nn.Linear(64, 64)
    joined = torch.cat([Head(64, 16, bias=False)(inputs) for _ in range(4)], dim=-1)
    assert joined.shape == inputs.shape
    without_the_last = torch.cat([joined[..., :48], torch.zeros(1, 3, 16)], dim=-1)
    assert (joined != without_the_last).sum(-1).max() == 16  # joined, not mixed
    assert (projection(joined) != projection(without_the_last)).all()


def test_a_mask_of_zeros_and_ones_that_is_added_shows_the_future() -> None:
    query, key = torch.randn(2, 1, 1, 4, 8)
    value = torch.eye(4)[None, None]
    future_mask = torch.ones(4, 4).tril()
    added = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=future_mask)
    boolean = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=future_mask.bool())
    assert added[0, 0].triu(1).sum() > 0.1 and boolean[0, 0].triu(1).sum() == 0


def test_weights_after_dropout_do_not_sum_to_one() -> None:
    sums = nn.functional.dropout(torch.randn(50, 20).softmax(-1), 0.1).sum(-1)
    assert (sums - 1).abs().max() > 0.05


def test_a_score_for_each_state_with_one_axis_too_many_fails_on_shapes() -> None:
    scores = torch.stack([torch.randn(2, 1) for _ in range(5)], dim=1).softmax(1)
    with pytest.raises(RuntimeError, match="must match"):
        scores.unsqueeze(-1) * torch.randn(2, 5, 8)


def test_the_articles_block_has_no_biases_in_its_attention() -> None:
    attention = MultiHead(512, 8, bias=False, output_bias=False)
    block = EncoderBlock(attention, FeedForward(512, 2048), norm=lambda: LayerNorm(512))
    assert sum(parameter.numel() for parameter in block.parameters()) == 3_150_336


def test_the_glossary_has_the_documents_names() -> None:
    text = (ROOT / "docs" / "en" / "course" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d) \| `(\w+)` \|", text, flags=re.MULTILINE)
    assert rows == [(document, name) for document, names in NAMES.items() for name in names.split()]
