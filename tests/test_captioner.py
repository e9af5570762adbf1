"""The captioner: torch's own decoder as the reference, and nothing seen of the caption to come."""

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


def made(name: str) -> tuple[Captioner, torch.Tensor, torch.Tensor]:
    model = perturb_parameters(Captioner(CONFIGS[name]))
    return model, torch.randn(2, *SOURCES[name]), torch.randint(50, (2, 9))


def copied(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(ours.projection.joined.weight)
    theirs.in_proj_bias.copy_(ours.projection.joined.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def reference(model: Captioner) -> tuple[nn.Module, nn.Module]:
    """torch's encoder and decoder with this model's parameters."""
    config = model.config
    settings = {"dim_feedforward": config.hidden, "activation": "gelu", "norm_first": True, "batch_first": True}
    encoder = nn.Sequential(
        *(nn.TransformerEncoderLayer(config.width, config.heads, dropout=0.0, **settings) for _ in model.encoder)
    )
    layer = nn.TransformerDecoderLayer(config.width, config.heads, dropout=0.0, **settings)
    decoder = nn.TransformerDecoder(layer, config.decoder_layers)
    for ours, theirs in [*zip(model.encoder, encoder, strict=True), *zip(model.decoder, decoder.layers, strict=True)]:
        copied(ours.attention, theirs.self_attn)
        theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
        theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feedforward.outer.state_dict())
        last = theirs.norm2
        if hasattr(ours, "cross"):
            copied(ours.cross, theirs.multihead_attn)
            theirs.norm2.load_state_dict(ours.cross_norm.state_dict())
            last = theirs.norm3
        last.load_state_dict(ours.feedforward_norm.state_dict())
    return encoder.eval(), decoder.eval()


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_logits_are_torchs(name: str) -> None:
    model, images, target = made(name)
    encoder, decoder = reference(model)
    if model.patches is None:
        source = model.regions(images)
    else:
        source = nn.functional.unfold(images, (3, 5), stride=(3, 5)).mT  # [batch, patch, channel x pixels]
        weight = model.patches.map.weight.flatten(1)
        source = nn.functional.linear(source, weight, model.patches.map.bias) + model.patch_positions
    source = model.encoder_norm(encoder(source))
    future = torch.ones(9, 9).triu(1).bool()  # torch's masks say what is forbidden
    hidden = decoder(model.embedding(target) + model.positions.table.weight[:9], source, tgt_mask=future)
    table = model.output or model.embedding
    wanted = model.decoder_norm(hidden) @ table.weight.T
    assert_parity(model(images, target).logits, wanted)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_nothing_moves_when_the_caption_to_come_changes(name: str) -> None:
    # B10: without a causal mask a captioner sees its own answer
    model, images, target = made(name)
    later = target.clone()
    later[:, 5:] = (later[:, 5:] + 7) % 50
    one, two = model(images, target).logits, model(images, later).logits
    assert torch.equal(one[:, :5], two[:, :5]) and not torch.allclose(one[:, 5:], two[:, 5:])
    other = model(images + 1, target).logits
    assert not torch.allclose(one[:, :1], other[:, :1])  # but the image is seen from the first token on


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_nothing_moves_when_padding_changes(name: str, side: str) -> None:
    model, images, target = made(name)
    real = torch.ones(2, 9).bool()
    real[1, slice(0, 3) if side == "left" else slice(6, 9)] = False
    other = torch.where(real, target, (target + 11) % 50)
    one = model(images, target, target_token_mask=real).logits
    assert torch.equal(one[real], model(images, other, target_token_mask=real).logits[real])
    alone = model(images[1:], target[1:, real[1]]).logits
    assert torch.allclose(one[1, real[1]], alone[0], atol=1e-5)


@torch.no_grad()
def test_regions_that_are_padding_are_not_seen() -> None:
    model, regions, target = made("regions")
    real = torch.ones(2, 7).bool()
    real[1, 4:] = False
    other = torch.where(real[..., None], regions, regions + 5)
    one = model(regions, target, source_token_mask=real).logits
    assert torch.equal(one, model(other, target, source_token_mask=real).logits)
    assert torch.allclose(one[1:], model(regions[1:, :4], target[1:]).logits, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_step_by_step_with_a_cache_is_the_whole(name: str) -> None:
    model, images, target = made(name)
    whole = model(images, target).logits
    encoded = model.encode(images)
    for capacity in (None, 9):
        cache = Cache(capacity)
        parts = [model.decode(part, encoded, cache=cache).logits for part in target.split([4, 1, 1, 3], 1)]
        assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    assert torch.allclose(model(images, target, last=2).logits, whole[:, -2:], atol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_every_layers_weights(name: str) -> None:
    model, images, target = made(name)
    weights, count = model(images, target, weights=True).weights, COUNT[name]
    assert [list(one.shape) for one in weights["encoder"]] == [[2, 4, count, count]] * model.config.layers
    assert [list(one.shape) for one in weights["decoder"]] == [[2, 4, 9, 9]] * 3
    assert [list(one.shape) for one in weights["cross"]] == [[2, 4, 9, count]] * 3
    assert torch.allclose(weights["cross"][2].sum(-1), torch.ones(2, 4, 9), atol=1e-6)
    assert not weights["decoder"][0].triu(1).any()
    assert model(images, target).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("name", ["regions", "patches"])
def test_backends_and_checkpointing_give_the_same_gradients(name: str, backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, images, target = made(name)
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(images, target).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for one, two in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert one is not None and torch.allclose(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path: Path) -> None:
    model, images, target = made(name)
    jumok.save(model, tmp_path / "own")
    assert torch.equal(jumok.load(tmp_path / "own").model(images, target).logits, model(images, target).logits)
    with pytest.raises(CheckpointError, match="no model like this captioner"):
        jumok.save(model, tmp_path / "theirs", format="huggingface")


@torch.no_grad()
def test_the_regions_of_the_document() -> None:
    # B10: 36 regions of 2,048 features
    config = regions_config(vocabulary=50, width=16, heads=2, hidden=20, layers=1, decoder_layers=1)
    assert (config.regions, config.features) == (36, 2048)
    logits = Captioner(config)(torch.randn(3, 36, 2048), torch.randint(50, (3, 5))).logits
    assert list(logits.shape) == [3, 5, 50]


def test_wrong_images_are_refused_in_a_sentence() -> None:
    target = torch.zeros(1, 2, dtype=torch.long)
    regions, patches = Captioner(CONFIGS["regions"]), Captioner(CONFIGS["patches"])
    for wrong in ((1, 8, 13), (1, 7, 12), (1, 0, 13), (1, 2, 6, 15)):
        with pytest.raises(ShapeError, match=re.escape("reads regions [batch, up to 7, 13], not")):
            regions(torch.zeros(wrong), target)
    with pytest.raises(ShapeError, match="images of 6 x 15 pixels, not 15 x 6; resize"):
        patches(torch.zeros(1, 2, 15, 6), target)
    with pytest.raises(ShapeError, match="floating-point numbers"):
        patches(torch.zeros(1, 6, 15), target)
    with pytest.raises(ShapeError, match="position 20 is outside the 20 positions"):
        regions(torch.zeros(1, 7, 13), torch.zeros(1, 21, dtype=torch.long))


def test_bad_configs_are_refused_in_a_sentence() -> None:
    for fields, sentence in (
        ({"heads": 5}, "width 24 does not divide into 5 heads"),
        ({"source": "patches", "image": (6, 16), "patch": (3, 5)}, "6 x 16 pixels does not divide"),
        ({"source": "sounds"}, "must be one of regions, patches"),
        ({"end": 50}, "end is token 50, but the vocabulary has 50 tokens"),
    ):
        with pytest.raises((ArgumentError, ShapeError), match=re.escape(sentence)):
            CaptionerConfig.from_json({**SMALL, **fields})
