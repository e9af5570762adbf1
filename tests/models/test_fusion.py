"""Fusion-in-Decoder: passages are encoded apart, the decoder reads all of them, and the lens can cut one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import jumok
from jumok.attention import Cache
from jumok.attention.backends.block_plan import compute_coverage
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, ShapeError
from jumok.generate import generate
from jumok.lens import KnockOut, Lens
from jumok.models import Fusion, FusionConfig, Transformer, TransformerConfig, fusion
from jumok.models.fusion import find_passages
from jumok.tap import listen
from parity import perturb_parameters

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 12, "layers": 2, "heads": 3, "hidden": 17}
SEPARATOR, PAD = 5, 0
PASSAGES = [[5, 8, 9, 10, 11], [5, 8, 9, 12], [5, 8, 9, 13, 14, 15, 16]]


def keep(site: str, tensor: Any) -> Any:
    """A listener that changes nothing."""
    return tensor


def build_fusion(**fields: Any) -> Fusion:
    torch.manual_seed(3)
    model = Fusion(FusionConfig(**{**SIZES, "length": 32, "separator": SEPARATOR, **fields})).eval()
    perturb_parameters(model)
    return model


def join(passages: list[list[int]]) -> Tensor:
    return torch.tensor([[token for passage in passages for token in passage]])


def encode_as_one_sequence(model: Fusion, source: Tensor, token_mask: Tensor | None = None) -> Tensor:
    """An open listener makes the encoder read one sequence with a mask."""
    with listen(keep):
        return model.encode(source, source_token_mask=token_mask)


def encode_with_torch(model: Fusion, passage: list[int]) -> Tensor:
    """The encoder for one passage, written with torch alone: no mask, and positions from 0."""
    config, length = model.config, len(passage)
    hidden = model.embedding.weight[passage] * config.width**0.5
    if config.positions == "sinusoidal":
        angles = compute_angles(length, config.width)
        hidden = hidden + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    for block in model.encoder:
        normed = normalise(hidden, block.attention_norm)
        joined = functional.linear(normed, *block.attention.projection.joined.parameters())
        q, k, v = (part.view(length, config.heads, -1).transpose(0, 1) for part in joined.chunk(3, -1))
        if config.positions == "rotary":
            q, k = rotate(q), rotate(k)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        hidden = hidden + functional.linear(mixed, *block.attention.output.parameters())
        inner = functional.linear(normalise(hidden, block.feedforward_norm), *block.feedforward.inner.parameters())
        hidden = hidden + functional.linear(torch.relu(inner), *block.feedforward.outer.parameters())
    return normalise(hidden, model.encoder_norm)


def compute_angles(length: int, width: int) -> Tensor:
    return torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * -math.log(10000) / width)


def rotate(vectors: Tensor) -> Tensor:
    """Rotate the pairs (i, i + width / 2) as complex numbers."""
    half = vectors.shape[-1] // 2
    angles = compute_angles(vectors.shape[-2], 2 * half)
    turned = torch.complex(vectors[..., :half], vectors[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1)


def normalise(hidden: Tensor, norm: Any) -> Tensor:
    return functional.layer_norm(hidden, (SIZES["width"],), norm.weight, norm.bias, 1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_passages_are_encoded_apart(positions: str) -> None:
    model = build_fusion(positions=positions)
    expected = torch.cat([encode_with_torch(model, passage) for passage in PASSAGES])[None]
    with torch.no_grad():
        batched = model.encode(join(PASSAGES))
        masked = encode_as_one_sequence(model, join(PASSAGES))
    torch.testing.assert_close(batched, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(masked, expected, atol=1e-5, rtol=1e-5)
    # a Transformer with the same parameters lets the passages see each other
    plain = Transformer(TransformerConfig(**SIZES, length=32, order="pre", positions=positions)).eval()
    plain.load_state_dict(model.state_dict())
    assert (plain.encode(join(PASSAGES)) - expected).abs().max() > 1e-2


def test_tokens_before_the_first_separator_are_a_passage() -> None:
    model, before = build_fusion(), [8, 9, 7]
    expected = torch.cat([encode_with_torch(model, passage) for passage in (before, *PASSAGES)])[None]
    with torch.no_grad():
        torch.testing.assert_close(model.encode(join([before, *PASSAGES])), expected, atol=1e-5, rtol=1e-5)
    assert find_passages(join([before, *PASSAGES[:2]]), SEPARATOR).tolist() == [[0] * 3 + [1] * 5 + [2] * 4]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_order_of_passages_does_not_change_the_answer(positions: str) -> None:
    model, target = build_fusion(positions=positions), torch.tensor([[1, 7, 3, 11]])
    order = [2, 0, 1]
    with torch.no_grad():
        output = model(join(PASSAGES), target, weights=True)
        permuted = model(join([PASSAGES[index] for index in order]), target, weights=True)
    torch.testing.assert_close(permuted.logits, output.logits, atol=1e-5, rtol=1e-5)
    # the keys of the cross-attention move with their passages
    lengths = [len(passage) for passage in PASSAGES]
    for before, after in zip(output.weights["cross"], permuted.weights["cross"], strict=True):
        parts = before.split(lengths, -1)
        torch.testing.assert_close(after, torch.cat([parts[index] for index in order], -1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side: str, positions: str) -> None:
    model, target = build_fusion(positions=positions), torch.tensor([[1, 7, 3]])
    rows = [join(passages)[0].tolist() for passages in (PASSAGES, PASSAGES[1:2], [[8, 9, 7], *PASSAGES[:2]])]
    longest = max(map(len, rows))
    padding = [[PAD] * (longest - len(row)) for row in rows]
    padded = [extra + row if side == "left" else row + extra for row, extra in zip(rows, padding, strict=True)]
    source = torch.tensor(padded)
    token_mask = source != PAD
    with torch.no_grad():
        logits = model(source, target.expand(3, -1), source_token_mask=token_mask).logits
        with listen(keep):
            observed = model(source, target.expand(3, -1), source_token_mask=token_mask).logits
        for row, batch_row, observed_row in zip(rows, logits, observed, strict=True):
            alone = model(torch.tensor([row]), target).logits[0]
            torch.testing.assert_close(batch_row, alone, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(observed_row, alone, atol=1e-5, rtol=1e-5)


def test_a_source_of_padding_only_is_read_without_nan() -> None:
    model, source = build_fusion(), join(PASSAGES).repeat(2, 1)
    token_mask = torch.ones_like(source, dtype=torch.bool)
    token_mask[1] = False
    with torch.no_grad():
        logits = model(source, torch.tensor([[1, 7]] * 2), source_token_mask=token_mask).logits
        none = model.encode(source, source_token_mask=torch.zeros_like(token_mask))
    assert logits.isfinite().all() and none.isfinite().all()


def test_passages_of_very_different_lengths_are_read_as_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, long_passage = build_fusion(), [SEPARATOR, *range(6, 37)]
    source = join([long_passage, *PASSAGES])
    shapes: list[torch.Size] = []
    monkeypatch.setattr(fusion, "check_tokens", lambda tokens, vocabulary: shapes.append(tokens.shape))
    monkeypatch.setattr("jumok.models.transformer.check_tokens", lambda tokens, vocabulary: shapes.append(tokens.shape))
    model.encode(source)
    model.encode(join(PASSAGES))
    assert [tuple(shape) for shape in shapes] == [(1, 48), (1, 48), (1, 16), (3, 7)]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_cache_and_generation(positions: str) -> None:
    model, target = build_fusion(positions=positions), torch.tensor([[1, 7, 3, 11, 20]])
    with torch.no_grad():
        logits = model(join(PASSAGES), target).logits
        encoded, cache = model.encode(join(PASSAGES)), Cache()
        steps = [model.decode(token, encoded, cache=cache).logits for token in target.split(1, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), logits, atol=1e-5, rtol=1e-5)
    # prompts of different lengths are padded
    prompts = [join(PASSAGES)[0].tolist(), join(PASSAGES[:2])[0].tolist()]
    assert generate(model, prompts, limit=6) == [generate(model, [prompt], limit=6)[0] for prompt in prompts]


def test_save_and_load(tmp_path: Path) -> None:
    model, target = build_fusion(), torch.tensor([[1, 7]])
    jumok.save(model, tmp_path / "reader")
    loaded = jumok.load(tmp_path / "reader")
    assert loaded.config.separator == SEPARATOR and loaded.family == "fusion"
    with torch.no_grad():
        assert torch.equal(loaded.model(join(PASSAGES), target).logits, model(join(PASSAGES), target).logits)


def test_gradients_are_those_of_the_passages_apart() -> None:
    model, direction = build_fusion(), torch.randn(16, SIZES["width"])

    def collect(encoded: Tensor) -> dict[str, Tensor]:
        model.zero_grad()
        (encoded * direction).sum().backward()
        return {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}

    expected = collect(torch.cat([encode_with_torch(model, passage) for passage in PASSAGES]))
    batched = collect(model.encode(join(PASSAGES))[0])
    masked = collect(encode_as_one_sequence(model, join(PASSAGES))[0])
    assert "embedding.weight" in expected and expected.keys() == batched.keys() == masked.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(batched[name], gradient, atol=1e-4, rtol=1e-4, msg=name)
        torch.testing.assert_close(masked[name], gradient, atol=1e-4, rtol=1e-4, msg=name)


def test_lens_shows_one_sequence_with_passages_apart() -> None:
    model, target = build_fusion(), torch.tensor([[1, 7, 3]])
    with Lens(model) as lens, torch.no_grad():
        capture = lens.run(join(PASSAGES), target, logits=True)
        expected = model(join(PASSAGES), target, weights=True)
    assert list(capture.attentions) == [
        "encoder.0.attention", "encoder.1.attention",
        "decoder.0.attention", "decoder.0.cross", "decoder.1.attention", "decoder.1.cross",
    ]  # fmt: skip
    ids = find_passages(join(PASSAGES), SEPARATOR)[0]
    weights = capture.weights("encoder.1.attention", 2)
    assert weights.shape == (16, 16) and (weights[ids[:, None] != ids] == 0).all()
    torch.testing.assert_close(weights, expected.weights["encoder"][1][0, 2], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(capture.output.logits, expected.logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("removed", range(3))
def test_knocking_out_a_passage_is_removing_it_from_the_source(removed: int) -> None:
    model, target = build_fusion(), torch.tensor([[1, 7, 3]])
    keys = (find_passages(join(PASSAGES), SEPARATOR)[0] == removed + 1).nonzero()[:, 0].tolist()
    edits = [KnockOut(layer=f"decoder.{layer}.cross", key=keys) for layer in range(2)]
    with Lens(model) as lens:
        edited = lens.run(join(PASSAGES), target, edits=edits, logits=True).output.logits
    remaining = [passage for index, passage in enumerate(PASSAGES) if index != removed]
    with torch.no_grad():
        torch.testing.assert_close(edited, model(join(remaining), target).logits, atol=1e-5, rtol=1e-5)
        assert (edited - model(join(PASSAGES), target).logits).abs().max() > 1e-2


def test_observed_encoder_computes_few_blocks_of_many_passages() -> None:
    model = build_fusion(length=100)
    source = torch.full((1, 64 * 100), 7)
    source[:, ::100] = SEPARATOR
    mask = model._embed_source(source, None)[1]["mask"]
    assert compute_coverage(mask, Grid(range(1), range(1), range(6400), range(6400))) < 0.06


def test_rotations_start_anew_in_every_passage() -> None:
    # in float32, the angles of a passage far behind would be less exact than those of the first one
    model = build_fusion(positions="rotary")
    source = torch.tensor([[SEPARATOR, *range(6, 37)]]).repeat(1, 600)
    with torch.no_grad():
        encoded = encode_as_one_sequence(model, source)[0].view(600, 32, 12)
    torch.testing.assert_close(encoded[-1], encoded[0], atol=1e-6, rtol=1e-6)


def test_length_limits_each_passage_and_not_the_source() -> None:
    model = build_fusion()
    source = join([[SEPARATOR, *range(6, 37)]] * 3)
    assert source.shape == (1, 96) and model.encode(source).shape == (1, 96, 12)
    too_long = join([[SEPARATOR, *range(6, 37), 6], *PASSAGES[:1]])
    for encode in (Fusion.encode, encode_as_one_sequence):
        with pytest.raises(ShapeError, match="33 tokens exceed the context length of 32"):
            encode(model, too_long)


def test_separator_is_a_token_of_its_own() -> None:
    with pytest.raises(ArgumentError, match="separator is token 37, but the vocabulary has 37 tokens"):
        FusionConfig(**SIZES, separator=37)
    for name, token in (("pad", 0), ("start", 1), ("end", 2)):
        with pytest.raises(ArgumentError, match=f"separator and {name} must be different tokens"):
            FusionConfig(**SIZES, separator=token)
