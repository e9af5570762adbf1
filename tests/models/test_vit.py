"""Compare ViT and DeiT with transformers, and patch embeddings with a linear layer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    DeiTModel,
    ViTForImageClassification,
    ViTForMaskedImageModeling,
    ViTModel,
)
from transformers import ViTConfig as TheirConfig

import jumok
from jumok.errors import ArgumentError, CheckpointError, JumokError, ShapeError
from jumok.layers import PatchEmbedding
from jumok.layers.patches import check_images, compute_patch_grid
from jumok.models import Model
from jumok.models.vit import ViT, ViTConfig
from parity import assert_parity, check_round_trip

SMALL = {
    "image_size": 30, "patch_size": 5, "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5,
    "intermediate_size": 41, "num_labels": 7,
}  # fmt: skip

CASES: dict[str, Any] = {
    "vit classes": lambda: ViTForImageClassification(TheirConfig(**SMALL)),
    "vit bare": lambda: ViTModel(TheirConfig(**SMALL)),
    "vit grey, no biases, relu": lambda: ViTForImageClassification(
        TheirConfig(**{**SMALL, "num_channels": 1, "qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 1e-3})
    ),
    "vit not square": lambda: ViTForImageClassification(
        TheirConfig(**{**SMALL, "image_size": [20, 42], "patch_size": [5, 7], "num_hidden_layers": 1})
    ),
    "vit two classes": lambda: ViTForImageClassification(TheirConfig(**{**SMALL, "num_labels": 2, "patch_size": 15})),
    "deit classes": lambda: DeiTForImageClassification(DeiTConfig(**SMALL)),
    "deit teacher": lambda: DeiTForImageClassificationWithTeacher(
        DeiTConfig(**{**SMALL, "num_hidden_layers": 2, "hidden_act": "gelu_new"})
    ),
    "deit bare": lambda: DeiTModel(DeiTConfig(**SMALL)),
}


def fill_zeros(reference: Any) -> Any:
    """Draw parameters that start at zero: zeros would hide a wrong order."""
    with torch.no_grad():
        for parameter in reference.parameters():
            if not parameter.any():
                parameter.normal_(std=0.3)
    return reference


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    reference = fill_zeros(CASES[name]())
    size = reference.config.image_size
    rows, columns = (size, size) if isinstance(size, int) else size
    images = torch.randn(2, reference.config.num_channels, rows, columns)

    def check(ours: Model, reference: Any) -> None:
        actual, expected = ours(images), reference(images)
        if "bare" in name:
            assert actual.logits is None
            assert_parity(actual.hidden, expected.last_hidden_state)
        else:
            assert_parity(actual.logits, expected.logits)

    check_round_trip(reference, tmp_path, check)


def test_weights_equal_transformers(tmp_path: Path) -> None:
    reference = ViTModel(TheirConfig(**SMALL, attn_implementation="eager")).eval()
    reference.save_pretrained(tmp_path / "vit")
    images = torch.randn(2, 3, 30, 30)
    with torch.no_grad():
        ours = jumok.load(tmp_path / "vit").model
        actual = ours(images, weights=True).weights
        expected = reference(images, output_attentions=True).attentions
        assert ours(images).weights is None
    assert [list(layer.shape) for layer in actual] == [[2, 5, 37, 37]] * 3
    for first, second in zip(actual, expected, strict=True):
        assert_parity(first, second)


def test_mask_token_is_ignored(tmp_path: Path) -> None:
    reference = ViTModel(TheirConfig(**SMALL), use_mask_token=True).eval()
    reference.save_pretrained(tmp_path / "vit")
    images = torch.randn(1, 3, 30, 30)
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "vit").model(images).hidden, reference(images).last_hidden_state)


def test_unsupported_configs_are_refused(tmp_path: Path) -> None:
    ViTForMaskedImageModeling(TheirConfig(**SMALL)).save_pretrained(tmp_path / "masked")
    with pytest.raises(CheckpointError, match="ViTForMaskedImageModeling"):
        jumok.load(tmp_path / "masked")
    ViTModel(TheirConfig(**SMALL)).save_pretrained(tmp_path / "vit")
    config_json = json.loads((tmp_path / "vit" / "config.json").read_text())
    for change, message in {
        ("head_dim", 9): "head_dim = '9'",
        ("hidden_act", "quick_gelu"): "activation of the vit config must be one of",
        ("image_size", 31): "31 x 31 pixels cannot be split evenly into patches of 5 x 5",
        ("image_size", 1.5): "image_size in config.json must be one or two integers",
        ("patch_size", "5"): "patch_size in config.json must be one or two integers",
        ("num_attention_heads", 4): "cannot be split evenly into 4 heads",
        ("num_attention_heads", 0): "heads of the vit config must be from 1",
        ("architectures", "text"): None,
    }.items():
        (tmp_path / "vit" / "config.json").write_text(json.dumps({**config_json, change[0]: change[1]}))
        if message is None:
            assert jumok.load(tmp_path / "vit").model.config.head == "none"
        else:
            with pytest.raises(JumokError, match=re.escape(message)):
                jumok.load(tmp_path / "vit")


TINY = {"image": (6, 8), "patch": (3, 2), "width": 12, "layers": 2, "heads": 3, "hidden": 17, "classes": 5}


@pytest.mark.parametrize("size", [(8, 6), (6, 10), (12, 8)])
def test_images_of_another_size_are_refused(size: tuple[int, int]) -> None:
    model = ViT(ViTConfig(**TINY))
    with pytest.raises(ShapeError, match=f"images of 6 x 8 pixels, not {size[0]} x {size[1]}; resize"):
        model(torch.zeros(2, 3, *size))
    with pytest.raises(ShapeError, match="reads images of 3 channels, not 1"):
        model(torch.zeros(2, 1, 6, 8))


def test_invalid_configs_are_refused() -> None:
    for fields, message in (
        ({"image": (7, 8)}, "7 x 8 pixels cannot be split evenly into patches of 3 x 2"),
        ({"image": (8,)}, "an image must be (rows, columns)"),
        ({"heads": 5}, "width 12 cannot be split evenly into 5 heads"),
        ({"head": "teacher"}, "it needs distilled=True"),
    ):
        with pytest.raises((ArgumentError, ShapeError), match=re.escape(message)):
            ViTConfig.from_json({**TINY, **fields})


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = ViT(ViTConfig(**TINY, distilled=True, head="teacher"))
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(torch.linspace(-1, 1, 288).view(2, 3, 6, 8)).logits.square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert first is not None and torch.allclose(first, second, atol=1e-6)


def test_patch_embedding_is_linear_in_the_pixels() -> None:
    patches = PatchEmbedding(2, (3, 5), 7)
    images = torch.randn(2, 2, 6, 20)
    actual = patches(images)
    assert list(actual.shape) == [2, 2 * 4, 7]
    for row in range(2):
        for column in range(4):
            pixels = images[:, :, 3 * row : 3 * row + 3, 5 * column : 5 * column + 5].flatten(1)
            expected = torch.nn.functional.linear(pixels, patches.map.weight.flatten(1), patches.map.bias)
            assert torch.allclose(actual[:, 4 * row + column], expected, atol=1e-6)


def test_invalid_patches_are_refused() -> None:
    with pytest.raises(
        ShapeError, match="an image of 6 x 19 pixels cannot be split evenly into patches of 3 x 5; resize"
    ):
        PatchEmbedding(2, (3, 5), 7)(torch.zeros(1, 2, 6, 19))
    with pytest.raises(ShapeError, match="reads images of 2 channels, not 3"):
        PatchEmbedding(2, 3, 7)(torch.zeros(1, 3, 6, 6))
    with pytest.raises(ShapeError, match=r"an image must be \(rows, columns\)"):
        compute_patch_grid((0, 6), (3, 3))
    with pytest.raises(ArgumentError, match="must be at least 1"):
        PatchEmbedding(2, (3, 0), 7)
    for images in (torch.zeros(3, 6, 6), torch.zeros(1, 3, 6, 6, dtype=torch.uint8)):
        with pytest.raises(ShapeError, match="floating-point numbers"):
            check_images(images, 3)


def test_parameter_counts_are_the_published_ones() -> None:
    with torch.device("meta"):
        assert ViT(ViTConfig()).parameter_count == 86_567_656  # ViT-B/16
        tiny = ViTConfig(width=192, heads=3, hidden=768, distilled=True, head="teacher")
        assert ViT(tiny).parameter_count == 5_910_800  # DeiT-Ti, distilled
