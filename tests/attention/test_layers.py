"""Blocks against torch.nn.Transformer*Layer, rotations against Hugging Face, sinusoids against the paper's formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from jumok.attention import Cache, FourierMixing, MultiHead, mask
from jumok.errors import ArgumentError, ShapeError
from jumok.layers import (
    BareBlock,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    RMSNorm,
    RotaryPositions,
    SinusoidalPositions,
)
from jumok.tap import listen, name_sites

WIDTH, HEADS, HIDDEN = 30, 5, 77


def copy_attention(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    ours.projection.joined.weight.data.copy_(theirs.in_proj_weight)
    ours.projection.joined.bias.data.copy_(theirs.in_proj_bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_feedforward(ours: FeedForward, theirs: nn.Module) -> None:
    ours.inner.load_state_dict(theirs.linear1.state_dict())
    ours.outer.load_state_dict(theirs.linear2.state_dict())


def randomize_vectors(module: Any) -> Any:
    """Draw norms and biases at random: they start as identity and 0, where a missing one would go unnoticed."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_block_equals_torch(order: str, activation: str) -> None:
    theirs = randomize_vectors(
        nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, 0.0, activation, batch_first=True, norm_first=order == "pre")
    )
    ours = EncoderBlock(
        MultiHead(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN, activation), norm=partial(LayerNorm, WIDTH), order=order
    )
    copy_attention(ours.attention, theirs.self_attn)
    copy_feedforward(ours.feedforward, theirs)
    ours.attention_norm.load_state_dict(theirs.norm1.state_dict())
    ours.feedforward_norm.load_state_dict(theirs.norm2.state_dict())
    inputs = torch.randn(2, 7, WIDTH)
    ignored = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    expected = theirs(inputs, src_mask=torch.ones(7, 7).triu(1).bool(), src_key_padding_mask=ignored)
    allowed = mask.causal & mask.padding(~ignored)
    assert torch.allclose(ours(inputs, mask=allowed), expected, atol=1e-6)
    output, weights = ours(inputs, mask=allowed, weights=True)
    assert torch.allclose(output, expected, atol=1e-6) and weights.shape == (2, HEADS, 7, 7)


def make_decoders(order: str) -> tuple[nn.TransformerDecoderLayer, DecoderBlock]:
    theirs = randomize_vectors(
        nn.TransformerDecoderLayer(WIDTH, HEADS, HIDDEN, 0.0, batch_first=True, norm_first=order == "pre")
    )
    ours = DecoderBlock(
        MultiHead(WIDTH, HEADS),
        MultiHead(WIDTH, HEADS),
        FeedForward(WIDTH, HIDDEN),
        norm=partial(LayerNorm, WIDTH),
        order=order,
    )
    copy_attention(ours.attention, theirs.self_attn)
    copy_attention(ours.cross, theirs.multihead_attn)
    copy_feedforward(ours.feedforward, theirs)
    norms = (ours.attention_norm, ours.cross_norm, ours.feedforward_norm)
    for index, norm in enumerate(norms, 1):
        norm.load_state_dict(getattr(theirs, f"norm{index}").state_dict())
    return theirs, ours


@pytest.mark.parametrize("order", ["post", "pre"])
def test_decoder_block_equals_torch_with_unequal_lengths(order: str) -> None:
    theirs, ours = make_decoders(order)
    inputs, source = torch.randn(2, 25, WIDTH), torch.randn(2, 20, WIDTH)
    ignored = torch.tensor([[False] * 20, [False] * 13 + [True] * 7])
    expected = theirs(inputs, source, tgt_mask=torch.ones(25, 25).triu(1).bool(), memory_key_padding_mask=ignored)
    settings = {"mask": mask.causal, "source_mask": mask.padding(~ignored)}
    assert torch.allclose(ours(inputs, source, **settings), expected, atol=1e-6)
    output, (self_weights, cross_weights) = ours(inputs, source, **settings, weights=True)
    assert torch.allclose(output, expected, atol=1e-6)
    assert self_weights.shape == (2, HEADS, 25, 25) and cross_weights.shape == (2, HEADS, 25, 20)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_decoder_block_with_cache_equals_the_full_pass(order: str) -> None:
    _, ours = make_decoders(order)
    inputs, source = torch.randn(2, 6, WIDTH), torch.randn(2, 4, WIDTH)
    with torch.no_grad():
        full = ours(inputs, source, mask=mask.causal)
        cache = Cache()
        steps = [ours(inputs[:, step : step + 1], source, mask=mask.causal, cache=cache) for step in range(6)]
    assert torch.allclose(torch.cat(steps, 1), full, atol=1e-5)


def test_bare_block_is_attention_then_feed_forward() -> None:
    block = BareBlock(MultiHead(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN))
    inputs = torch.randn(1, 3, WIDTH)
    assert torch.equal(block(inputs), block.feedforward(block.attention(inputs)))
    assert block(inputs, weights=True)[1].shape == (1, HEADS, 3, 3)


def test_fnet_mixing_replaces_attention_in_a_block() -> None:
    block = EncoderBlock(FourierMixing(), FeedForward(WIDTH, HIDDEN), norm=partial(LayerNorm, WIDTH))
    assert block(torch.randn(1, 3, WIDTH)).shape == (1, 3, WIDTH)
    with pytest.raises(ArgumentError, match="no weights"):
        block(torch.randn(1, 3, WIDTH), weights=True)


def test_dropout_of_a_block_is_off_in_evaluation() -> None:
    block = EncoderBlock(
        MultiHead(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN, dropout=0.5), norm=partial(LayerNorm, WIDTH), dropout=0.5
    )
    inputs = torch.randn(1, 3, WIDTH)
    assert not torch.equal(block(inputs), block(inputs))
    block.eval()
    assert torch.equal(block(inputs), block(inputs))


def test_listener_receives_the_values_of_a_block() -> None:
    model = nn.Sequential(EncoderBlock(MultiHead(8, 2), FeedForward(8, 9), norm=partial(LayerNorm, 8)))
    name_sites(model)
    received: dict[str, Any] = {}
    with listen(lambda site, value: received.setdefault(site, value)):
        model(torch.randn(1, 3, 8))
    assert {"0.input", "0.attention.query", "0.attention.block_output", "0.feedforward_output"} <= received.keys()


@pytest.mark.parametrize("width", [1, 2, 7, 16])
def test_sinusoids_equal_the_paper(width: int) -> None:
    table = SinusoidalPositions(width)(range(40))
    for position in (0, 1, 39):
        for index in range(width):
            angle = position / 10_000 ** (2 * (index // 2) / width)
            expected = math.sin(angle) if index % 2 == 0 else math.cos(angle)
            assert abs(table[position, index] - expected) < 2e-6
    assert not SinusoidalPositions(width).state_dict()
    assert torch.equal(
        SinusoidalPositions(width)(torch.tensor([[3, 0], [5, 39]])), table[torch.tensor([[3, 0], [5, 39]])]
    )


def test_learned_positions_refuse_other_positions() -> None:
    learned = LearnedPositions(10, 4)
    assert torch.equal(learned(range(3, 6)), learned.table.weight[3:6])
    with pytest.raises(ShapeError, match="position 10 is outside the 10 positions"):
        learned(range(11))
    with pytest.raises(ShapeError, match="position 12"):
        learned(torch.tensor([[0, 12]]))
    with pytest.raises(ShapeError, match="position -1"):
        learned(range(-1, 2))


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_rotary_positions_equal_hugging_face(base: float) -> None:
    config = LlamaConfig(
        hidden_size=48, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    query, key = torch.randn(2, 4, 9, 12), torch.randn(2, 2, 9, 12)
    positions = torch.tensor([list(range(9)), list(range(500, 509))])
    cosine, sine = LlamaRotaryEmbedding(config)(query, positions)
    ours = RotaryPositions(12, base=base)
    for actual, expected in zip(
        (ours(query, positions), ours(key, positions)), apply_rotary_pos_emb(query, key, cosine, sine), strict=True
    ):
        assert torch.allclose(actual, expected, atol=1e-6)
    assert torch.equal(ours(query[:1], range(9)), ours(query[:1], torch.arange(9)))
    assert not ours.state_dict()


def test_rotated_scores_depend_on_distance_alone_in_either_pairing() -> None:
    query, key = torch.randn(2, 1, 1, 1, 12).double()
    for pairing in ("halves", "neighbours"):
        rotation = RotaryPositions(12, pairing=pairing).double()
        scores = [
            rotation(query, range(start, start + 1)) @ rotation(key, range(start + 3, start + 4)).mT
            for start in (0, 5, 900)
        ]
        assert torch.allclose(scores[0], scores[1], atol=1e-5) and torch.allclose(scores[0], scores[2], atol=1e-3)
        assert torch.allclose(rotation(query, range(4, 5)).norm(), query.norm())
    # the two pairings are one rotation of differently ordered numbers (Su et al. 2021, equation 34)
    order = torch.arange(12).view(6, 2).T.flatten()
    halves, neighbours = RotaryPositions(12), RotaryPositions(12, pairing="neighbours")
    assert torch.allclose(halves(query[..., order], range(7, 8)), neighbours(query, range(7, 8))[..., order])


def test_rms_norm_equals_torch_and_hugging_face() -> None:
    ours, theirs, llama = RMSNorm(9, eps=1e-5), nn.RMSNorm(9, eps=1e-5), LlamaRMSNorm(9, eps=1e-5)
    nn.init.normal_(ours.weight)
    for other in (theirs, llama):
        other.load_state_dict(ours.state_dict())
    inputs = torch.randn(2, 5, 9)
    assert torch.allclose(ours(inputs), theirs(inputs), atol=1e-6)
    half = inputs.half()
    assert torch.equal(ours.half()(half), llama.half()(half))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: x.clamp_min(0)),
        ("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x / (1 + torch.exp(-x))),
    ],
)
def test_feed_forward_equals_its_formula(name: str, formula: Callable[[torch.Tensor], torch.Tensor]) -> None:
    plain, gated = FeedForward(6, 11, name).double(), GatedFeedForward(6, 11, name).double()
    inputs = torch.randn(2, 3, 6).double()
    expected = formula(inputs @ plain.inner.weight.T + plain.inner.bias) @ plain.outer.weight.T + plain.outer.bias
    assert torch.allclose(plain(inputs), expected, atol=1e-12)
    first, second = gated.inner.weight.chunk(2)
    gate = formula(inputs @ first.T) * (inputs @ second.T)
    assert torch.allclose(gated(inputs), gate @ gated.outer.weight.T, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FeedForward(4, 4, "magic"), "'magic'; choose one of relu"),
        (lambda: EncoderBlock(MultiHead(4, 1), FeedForward(4, 4), norm=nn.Identity, order="both"), '"post" or "pre"'),
        (lambda: RotaryPositions(7), "even, not 7"),
        (lambda: RotaryPositions(8, pairing="thirds"), "'thirds'"),
        (lambda: RotaryPositions(8)(torch.randn(1, 1, 2, 6), range(2)), r"width 8, not \[1, 1, 2, 6\]"),
        (lambda: SinusoidalPositions(0), "at least 1"),
    ],
)
def test_wrong_arguments_raise(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=message):
        make()
