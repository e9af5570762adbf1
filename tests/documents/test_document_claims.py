"""What the course says about its five source documents, stated with our own code: a claim that is false fails here."""

from __future__ import annotations

import math
import os
import re

import pytest
import torch
from page_blocks import ROOT
from torch import Tensor, nn

from jumok.attention import Head, MultiHead, attend, mask, score
from jumok.layers import BareBlock, EncoderBlock, FeedForward, LayerNorm, SinusoidalPositions
from jumok.models import BERT, simple_transformer_config

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
        self.embedding = nn.Linear(1, 16)
        self.transformer = nn.Transformer(16, 2, 2, 2, dim_feedforward=32, batch_first=True)
        self.output = nn.Linear(16, 1)  # in the lecture's order, so that a seed gives its parameters
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


def train_lecture_model(seed: int, epochs: int) -> LectureModel:
    """Train the lecture's model on its single example, as its script does."""
    torch.manual_seed(seed)
    model = LectureModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for _ in range(epochs + 1):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(SOURCE, SHIFTED), SOURCE + 2).backward()
        optimizer.step()
    return model.eval()


TRAINS_LONG = pytest.mark.skipif(int(os.environ.get("JUMOK_FAULTS", "0")) < 200, reason="minutes: make faults")


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=TRAINS_LONG) for seed in range(1, 13)])
def test_the_lectures_model_predicts_nearly_one_number_from_the_second_on(seed: int) -> None:
    first, *later = train_lecture_model(seed, 500)(SOURCE, SHIFTED)[0].tolist()
    assert 10 < first < 22.1 and 20 < min(later) <= max(later) < 23 and max(later) - min(later) < 0.5


@TRAINS_LONG
def test_the_lectures_model_learns_five_constants() -> None:
    model = train_lecture_model(1, 5000)
    predictions, moved = (model(source, SHIFTED)[0].tolist() for source in (SOURCE, SOURCE + 7))
    assert predictions == pytest.approx([12, 22, 32, 42, 52], abs=4)  # 11.3, 23.6, 34.2, 45.0, 52.9 on one computer
    assert moved == pytest.approx(predictions, abs=0.1)  # it does not even read the source


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


def test_the_old_attentions_fail_on_two_sentences_and_return_the_states_of_one() -> None:
    for sentences in (1, 2):
        states, scores = torch.randn(sentences, 5, 8), torch.randn(sentences, 5, 1)  # one score for each state
        weights = scores.softmax(1).unsqueeze(-1)  # the axis that is too many
        if sentences == 1:
            assert torch.allclose((weights * states).sum(1), states, atol=1e-6)  # no mixture
        else:
            with pytest.raises(RuntimeError, match="must match"):
                weights * states
    states, scores = torch.randn(5, 5, 8), torch.randn(5, 5, 1)  # as many sentences as states: no error
    # the one with an LSTM takes [states, sentences, width], and sums over the first axis
    assert torch.allclose((scores.softmax(0).unsqueeze(-1) * states).sum(0), states, atol=1e-6)
    weights = scores.softmax(1)  # the other takes [sentences, states, width], and mixes the sentences
    wrong = (weights.unsqueeze(-1) * states).sum(1)
    assert wrong.shape == states.shape and not torch.allclose(wrong, states, atol=0.1)
    assert torch.allclose(wrong[0], torch.einsum("s,snd->nd", weights[0, :, 0], states), atol=1e-6)


def test_a_score_by_one_linear_map_does_not_depend_on_the_query() -> None:
    layer, states = nn.Linear(16, 1), torch.randn(5, 8)
    rows = [layer(torch.cat([states, query.expand(5, -1)], dim=1)).softmax(0) for query in torch.randn(2, 8)]
    assert torch.allclose(*rows, atol=1e-6)


def test_layers_that_are_made_at_each_call_give_other_weights() -> None:
    decoder, encoder = torch.randn(1, 1, 3, 8), torch.randn(1, 1, 5, 8)

    def attend_with_new_layers() -> Tensor:
        additive = score.Additive(8, 8, hidden=8, bias=True)
        return attend(decoder, encoder, encoder, score=additive, weights=True)[1]

    assert not torch.allclose(attend_with_new_layers(), attend_with_new_layers())


def test_the_attention_of_2017_has_four_maps_with_biases() -> None:
    assert sum(parameter.numel() for parameter in MultiHead(512, 8).parameters()) == 1_050_624


def test_the_articles_six_relations_are_no_weights() -> None:
    relations = torch.tensor([0.1, 1.0, 0.8, 0.2, 0.1, 0.3])
    assert relations.sum().item() == pytest.approx(2.5) and relations.softmax(0).sum().item() == pytest.approx(1)


def test_the_articles_example_of_three_words_has_no_scale() -> None:
    words = torch.eye(3)
    assert (words @ words.T).softmax(-1).diagonal().tolist() == pytest.approx([0.5761] * 3, abs=5e-5)
    assert (words @ words.T / 3**0.5).softmax(-1).diagonal().tolist() == pytest.approx([0.471] * 3, abs=5e-4)


def test_the_articles_single_head_has_no_biases_and_an_output_map() -> None:
    head = Head(512, 512, output_width=512, bias=False)
    output, weights = head(torch.randn(2, 10, 512), weights=True)
    assert (output.shape, weights.shape) == ((2, 10, 512), (2, 1, 10, 10))
    assert sum(parameter.numel() for parameter in head.parameters()) == 4 * 512 * 512


def test_weights_after_dropout_do_not_sum_to_one() -> None:
    torch.manual_seed(0)
    sums = nn.functional.dropout(torch.randn(320, 20).softmax(-1), 0.1).sum(-1)
    assert sums.min() < 0.9 and 1.05 < sums.max() <= 1 / 0.9 + 1e-6


def test_the_articles_block_and_encoder_have_these_parameters() -> None:
    attention = MultiHead(512, 8, bias=False, output_bias=False)
    block = EncoderBlock(attention, FeedForward(512, 2048), norm=lambda: LayerNorm(512))
    assert sum(parameter.numel() for parameter in block.parameters()) == 3_150_336
    together = 10_000 * 512 + 5_000 * 512 + 6 * 3_150_336 + 2 * 512
    assert BERT(simple_transformer_config()).parameter_count == together == 26_583_040


@pytest.mark.parametrize(("batch", "query", "key"), [(2, 25, 20), (16, 20, 36)])
def test_keys_with_the_length_of_the_queries_fail_on_the_articles_examples(batch: int, query: int, key: int) -> None:
    source = torch.randn(batch, key, 512)
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        source.view(batch, query, 8, 64)
    assert MultiHead(512, 8)(torch.randn(batch, query, 512), source).shape == (batch, query, 512)


def test_a_mean_over_padding_depends_on_the_length_of_the_batch() -> None:
    vectors = torch.randn(6, 8)
    assert not torch.allclose(vectors.mean(0), torch.cat([vectors, torch.randn(4, 8)]).mean(0))


def test_a_mask_of_zeros_and_ones_that_is_added_shows_the_future() -> None:
    query, key = torch.randn(2, 1, 1, 4, 8)
    value = torch.eye(4)[None, None]
    future_mask = torch.ones(4, 4).tril()
    added = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=future_mask)
    boolean = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=future_mask.bool())
    fallback = (query @ key.mT / 8**0.5).masked_fill(future_mask == 0, -1e9).softmax(-1)  # the article's other branch
    assert added[0, 0].triu(1).sum() > 0.1 and boolean[0, 0].triu(1).sum() == 0
    assert torch.allclose(fallback, boolean, atol=1e-6)


def test_the_numbers_of_the_gpt_article() -> None:
    scores = torch.tensor([[2.1, 1.5, 0.8, 1.2], [1.3, 2.5, 1.1, 0.9], [0.7, 1.8, 2.2, 1.4], [1.0, 1.6, 1.9, 2.3]])
    weights = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf).softmax(-1)
    rows = [[1.0, 0.0, 0.0, 0.0], [0.2, 0.8, 0.0, 0.0], [0.1, 0.3, 0.6, 0.0], [0.1, 0.2, 0.3, 0.4]]
    wrong = [
        row for row, printed in enumerate(rows) if [round(weight, 1) for weight in weights[row].tolist()] != printed
    ]
    assert wrong == [2] and weights[2].tolist() == pytest.approx([0.118, 0.354, 0.528, 0], abs=5e-4)
    assert pytest.approx(4.65) == 37.2 / 64**0.5
    assert pytest.approx(0.19) == 0.1 * 0.2 + 0.5 * 0.3 + 0.2 * 0.1
    assert [length**2 * 4 / 2**20 for length in (1024, 4096, 16384)] == [4, 64, 1024]
    assert [512**2, 1024**2] == [262_144, 1_048_576]


def test_the_gpt_articles_layers_have_our_parameters() -> None:
    for layer, width in ((MultiHead(768, 12, projection="fused"), 768), (MultiHead(128, 8), 128)):
        assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (width * width + width)


def test_every_printed_line_of_the_gpt_article_looks_ahead() -> None:
    words = ["ROMEO", "But", "soft", "what", "light", "through"]
    lines = "ROMEO But soft", "ROMEO But soft", "But soft what", "soft what light", "what light through"
    for position, line in enumerate(lines):
        assert max(words.index(word) for word in line.split()) > position, words[position]


def test_a_hook_that_is_not_registered_records_nothing() -> None:
    recorded: list[Tensor] = []

    def hook(module: nn.Module, inputs: Tensor, output: Tensor) -> None:
        recorded.append(output)

    layer = nn.Linear(4, 4)
    layer(torch.randn(1, 4))
    assert recorded == []
    layer.register_forward_hook(hook)
    layer(torch.randn(1, 4))
    assert len(recorded) == 1


def test_filling_with_a_large_number_differs_only_where_nothing_may_be_attended_to() -> None:
    scores, allowed = torch.randn(3, 4), torch.tensor([[True, False, False, True], [False] * 4, [True] * 4])
    filled, excluded = (scores.masked_fill(~allowed, value).softmax(-1) for value in (-1e9, -math.inf))
    assert torch.equal(filled[[0, 2]], excluded[[0, 2]])
    assert filled[1].tolist() == [0.25] * 4 and excluded[1].isnan().all()


def test_the_glossary_has_the_documents_names() -> None:
    text = (ROOT / "docs" / "en" / "course" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d) \| `(\w+)` \|", text, flags=re.MULTILINE)
    assert rows == [(document, name) for document, names in NAMES.items() for name in names.split()]
