"""Compare the captioner with torch's decoder, and check that later caption tokens are not visible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import jumok
from jumok.attention import Cache, MultiHead
from jumok.errors import ArgumentError, CheckpointError, ShapeError
from jumok.models.captioner import Captioner, CaptionerConfig, regions_config
from parity import assert_parity, perturb_parameters

SMALL = {"vocabulary": 50, "length": 20, "width": 24, "heads": 4, "hidden": 40, "layers": 2, "decoder_layers": 3}
CONFIGS = {
    "regions": CaptionerConfig(**SMALL, regions=7, features=13),
    "regions, no encoder": CaptionerConfig.from_json({**SMALL, "layers": 0, "regions": 7, "features": 13}),
    "patches": CaptionerConfig(**SMALL, source="patches", image=(6, 15), patch=(3, 5), channels=2, tied=False),
}
SOURCES = {"regions": (7, 13), "regions, no encoder": (7, 13), "patches": (2, 6, 15)}
COUNT = {"regions": 7, "regions, no encoder": 7, "patches": 6}  # regions or patches of an image


def build_model(name: str) -> tuple[Captioner, torch.Tensor, torch.Tensor]:
    model = perturb_parameters(Captioner(CONFIGS[name]))
    return model, torch.randn(2, *SOURCES[name]), torch.randint(50, (2, 9))


def copy_attention(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(ours.projection.joined.weight)
    theirs.in_proj_bias.copy_(ours.projection.joined.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def build_torch_reference(model: Captioner) -> tuple[nn.Module, nn.Module]:
    """Return torch's encoder and decoder with this model's parameters."""
    config = model.config
    settings = {"dim_feedforward": config.hidden, "activation": "gelu", "norm_first": True, "batch_first": True}
    encoder = nn.Sequential(
        *(nn.TransformerEncoderLayer(config.width, config.heads, dropout=0.0, **settings) for _ in model.encoder)
    )
    layer = nn.TransformerDecoderLayer(config.width, config.heads, dropout=0.0, **settings)
    decoder = nn.TransformerDecoder(layer, config.decoder_layers)
    for ours, theirs in [*zip(model.encoder, encoder, strict=True), *zip(model.decoder, decoder.layers, strict=True)]:
        copy_attention(ours.attention, theirs.self_attn)
        theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
        theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feedforward.outer.state_dict())
        last = theirs.norm2
        if hasattr(ours, "cross"):
            copy_attention(ours.cross, theirs.multihead_attn)
            theirs.norm2.load_state_dict(ours.cross_norm.state_dict())
            last = theirs.norm3
        last.load_state_dict(ours.feedforward_norm.state_dict())
    return encoder.eval(), decoder.eval()


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_logits_equal_torch(name: str) -> None:
    model, images, target = build_model(name)
    encoder, decoder = build_torch_reference(model)
    if model.patches is None:
        source = model.regions(images)
    else:
        source = nn.functional.unfold(images, (3, 5), stride=(3, 5)).mT  # [batch, patch, channel x pixels]
        weight = model.patches.map.weight.flatten(1)
        source = nn.functional.linear(source, weight, model.patches.map.bias) + model.patch_positions
    source = model.encoder_norm(encoder(source))
    future = torch.ones(9, 9).triu(1).bool()  # True = forbidden in torch's masks
    hidden = decoder(model.embedding(target) + model.positions.table.weight[:9], source, tgt_mask=future)
    table = model.output or model.embedding
    expected = model.decoder_norm(hidden) @ table.weight.T
    assert_parity(model(images, target).logits, expected)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_later_caption_tokens_do_not_change_earlier_logits(name: str) -> None:
    # without a causal mask a captioner sees its own answer
    model, images, target = build_model(name)
    changed_target = target.clone()
    changed_target[:, 5:] = (changed_target[:, 5:] + 7) % 50
    first, second = model(images, target).logits, model(images, changed_target).logits
    assert torch.equal(first[:, :5], second[:, :5]) and not torch.allclose(first[:, 5:], second[:, 5:])
    changed = model(images + 1, target).logits
    assert not torch.allclose(first[:, :1], changed[:, :1])  # the image is visible from the first token on


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_target_padding_does_not_change_the_logits(name: str, side: str) -> None:
    model, images, target = build_model(name)
    token_mask = torch.ones(2, 9).bool()
    token_mask[1, slice(0, 3) if side == "left" else slice(6, 9)] = False
    changed = torch.where(token_mask, target, (target + 11) % 50)
    first = model(images, target, target_token_mask=token_mask).logits
    assert torch.equal(first[token_mask], model(images, changed, target_token_mask=token_mask).logits[token_mask])
    unpadded = model(images[1:], target[1:, token_mask[1]]).logits
    assert torch.allclose(first[1, token_mask[1]], unpadded[0], atol=1e-5)


@torch.no_grad()
def test_padding_regions_are_ignored() -> None:
    model, regions, target = build_model("regions")
    token_mask = torch.ones(2, 7).bool()
    token_mask[1, 4:] = False
    changed = torch.where(token_mask[..., None], regions, regions + 5)
    first = model(regions, target, source_token_mask=token_mask).logits
    assert torch.equal(first, model(changed, target, source_token_mask=token_mask).logits)
    assert torch.allclose(first[1:], model(regions[1:, :4], target[1:]).logits, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_one_pass(name: str) -> None:
    model, images, target = build_model(name)
    full_logits = model(images, target).logits
    encoded = model.encode(images)
    for capacity in (None, 9):
        cache = Cache(capacity)
        parts = [model.decode(part, encoded, cache=cache).logits for part in target.split([4, 1, 1, 3], 1)]
        assert torch.allclose(torch.cat(parts, 1), full_logits, atol=1e-5)
    assert torch.allclose(model(images, target, last=2).logits, full_logits[:, -2:], atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_weights_of_every_layer_are_returned(name: str) -> None:
    model, images, target = build_model(name)
    weights, count = model(images, target, weights=True).weights, COUNT[name]
    assert [list(layer.shape) for layer in weights["encoder"]] == [[2, 4, count, count]] * model.config.layers
    assert [list(layer.shape) for layer in weights["decoder"]] == [[2, 4, 9, 9]] * 3
    assert [list(layer.shape) for layer in weights["cross"]] == [[2, 4, 9, count]] * 3
    assert torch.allclose(weights["cross"][2].sum(-1), torch.ones(2, 4, 9), atol=1e-6)
    assert not weights["decoder"][0].triu(1).any()
    assert model(images, target).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("name", ["regions", "patches"])
def test_backends_and_checkpointing_give_the_same_gradients(name: str, backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, images, target = build_model(name)
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(images, target).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert first is not None and torch.allclose(first, second, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_saved_model_loads_with_equal_outputs(name: str, tmp_path: Path) -> None:
    model, images, target = build_model(name)
    jumok.save(model, tmp_path / "own")
    assert torch.equal(jumok.load(tmp_path / "own").model(images, target).logits, model(images, target).logits)
    with pytest.raises(CheckpointError, match="no model like this captioner"):
        jumok.save(model, tmp_path / "theirs", format="huggingface")


@torch.no_grad()
def test_regions_config_reads_36_regions_of_2048_features() -> None:
    config = regions_config(vocabulary=50, width=16, heads=2, hidden=20, layers=1, decoder_layers=1)
    assert (config.regions, config.features) == (36, 2048)
    logits = Captioner(config)(torch.randn(3, 36, 2048), torch.randint(50, (3, 5))).logits
    assert list(logits.shape) == [3, 5, 50]


def test_invalid_images_are_refused() -> None:
    target = torch.zeros(1, 2, dtype=torch.long)
    regions, patches = Captioner(CONFIGS["regions"]), Captioner(CONFIGS["patches"])
    for wrong in ((1, 8, 13), (1, 7, 12), (1, 0, 13), (1, 2, 6, 15)):
        with pytest.raises(ShapeError, match=re.escape("reads regions [batch, up to 7, 13], not")):
            regions(torch.zeros(wrong), target)
    with pytest.raises(ShapeError, match="images of 6 x 15 pixels, not 15 x 6; resize"):
        patches(torch.zeros(1, 2, 15, 6), target)
    with pytest.raises(ShapeError, match="floating-point numbers"):
        patches(torch.zeros(1, 6, 15), target)
    with pytest.raises(ShapeError, match="position 20 is outside the"):
        regions(torch.zeros(1, 7, 13), torch.zeros(1, 21, dtype=torch.long))


def test_invalid_configs_are_refused() -> None:
    for fields, message in (
        ({"heads": 5}, "width 24 cannot be split evenly into 5 heads"),
        ({"source": "patches", "image": (6, 16), "patch": (3, 5)}, "6 x 16 pixels cannot be split evenly"),
        ({"source": "sounds"}, "must be one of regions, patches"),
        ({"end": 50}, "end is token 50, but the vocabulary has 50 tokens"),
    ):
        with pytest.raises((ArgumentError, ShapeError), match=re.escape(message)):
            CaptionerConfig.from_json({**SMALL, **fields})
