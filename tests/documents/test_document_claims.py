"""What the course says about its five source documents, stated with our own code: a claim that is false fails here."""

from __future__ import annotations

import os
import re

import pytest
import torch
from page_blocks import ROOT
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.layers import EncoderBlock, FeedForward, LayerNorm

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


@pytest.mark.skipif(int(os.environ.get("JUMOK_FAULTS", "0")) < 200, reason="500 steps of training: make faults")
def test_the_lectures_model_does_not_learn_the_rule() -> None:
    torch.manual_seed(1)
    model = LectureModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for _ in range(501):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(SOURCE, SHIFTED), SOURCE + 2).backward()
        optimizer.step()
    model.eval()
    predictions, moved = model(SOURCE, SHIFTED)[0], model(SOURCE + 7, SHIFTED)[0]
    assert predictions[1:].max() - predictions[1:].min() < 1
    assert 18 < predictions[1:].mean() < 24
    assert (moved - predictions).abs().max() < 1  # it does not even read the source


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
