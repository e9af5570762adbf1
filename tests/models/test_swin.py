"""Compare Swin with transformers, and its windows with the equivalent mask on the whole grid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import SwinConfig as TheirConfig
from transformers import SwinForImageClassification, SwinForMaskedImageModeling, SwinModel

import jumok
from jumok.attention import attend, mask
from jumok.attention.grid import Grid
from jumok.errors import ArgumentError, CheckpointError, JumokError, ShapeError
from jumok.layers.window_attention import WindowAttention, WindowDistance, build_neighbour_mask, list_window_patches
from jumok.models import Model
from jumok.models.swin import Swin, SwinConfig
from parity import assert_parity, check_round_trip

SMALL = {
    "image_size": 30, "patch_size": 2, "embed_dim": 12, "depths": [2, 1, 2], "num_heads": [2, 3, 4], "window_size": 3,
    "num_labels": 5,
}  # fmt: skip

# name -> (changes, rows, columns): grids of 15 x 15, 8 x 8, 4 x 4 patches and others, few a multiple of the window
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "window 3": ({}, 30, 30),
    "window 4": ({"window_size": 4}, 30, 30),
    "not square": ({"window_size": 4}, 26, 46),
    "padded pixels": ({}, 29, 41),
    "patches not square": ({"patch_size": [3, 2], "window_size": 4}, 45, 30),
    "one side as large as a window": ({"window_size": 4, "depths": [1, 2], "num_heads": [3, 2]}, 16, 26),
    "grey, no biases, relu": (
        {"num_channels": 1, "qkv_bias": False, "hidden_act": "relu", "mlp_ratio": 2.4, "layer_norm_eps": 1e-3},
        30,
        30,
    ),
    "one stage": ({"depths": [3], "num_heads": [4], "window_size": 5}, 30, 30),
    "learned positions": ({"use_absolute_embeddings": True}, 30, 30),
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
    changes, rows, columns = CASES[name]
    reference = fill_zeros(SwinForImageClassification(TheirConfig(**{**SMALL, **changes})))
    images = torch.randn(2, reference.config.num_channels, rows, columns)

    def check(ours: Model, reference: Any) -> None:
        actual, expected = ours(images, weights=True), reference(images)
        assert_parity(actual.logits, expected.logits)
        assert_parity(ours(images).logits, expected.logits)

    check_round_trip(reference, tmp_path, check)


def test_folder_without_a_head_equals_transformers(tmp_path: Path) -> None:
    images = torch.randn(2, 3, 28, 34)

    def check(ours: Model, reference: Any) -> None:
        actual = ours(images)
        assert actual.logits is None
        assert_parity(actual.hidden, reference(images).last_hidden_state)

    check_round_trip(fill_zeros(SwinModel(TheirConfig(**SMALL), use_mask_token=True)), tmp_path, check)


def test_weights_equal_transformers(tmp_path: Path) -> None:
    reference = fill_zeros(SwinModel(TheirConfig(**{**SMALL, "window_size": 4}, attn_implementation="eager")).eval())
    reference.save_pretrained(tmp_path / "swin")
    images = torch.randn(2, 3, 30, 30)
    with torch.no_grad():
        ours = jumok.load(tmp_path / "swin").model
        actual = ours(images, weights=True).weights
        expected = reference(images, output_attentions=True).attentions  # of the last block of each stage
    shapes = [[2 * 16, 2, 16, 16]] * 2 + [[2 * 4, 3, 16, 16]] + [[2, 4, 16, 16]] * 2
    assert [list(layer.shape) for layer in actual] == shapes
    for first, second in zip((actual[1], actual[2], actual[4]), expected, strict=True):
        assert_parity(first, second)
    assert all(torch.allclose(layer.sum(-1), torch.ones(layer.shape[:-1]), atol=1e-6) for layer in actual)
    assert ours(images).weights is None


@pytest.mark.parametrize("shift", [0, 1])
def test_windows_of_a_rolled_grid_equal_blocks_of_the_grid(shift: int) -> None:
    # the published method (roll, split, mask) equals attention over the whole grid with mask.blocks
    batch, heads, window, grid = 2, 3, 3, (6, 9)
    query, key, value = torch.randn(3, batch, heads, 54, 5)
    full_output = attend(query, key, value, mask=mask.blocks((window, window), grid=grid, shift=(shift, shift)))
    patches = list_window_patches(grid, window, shift)
    assert sorted(patches.flatten().tolist()) == list(range(54))

    def split_windows(tensor: torch.Tensor) -> torch.Tensor:  # [batch, head, patch, width] -> one row per window
        return tensor[:, :, patches].transpose(1, 2).flatten(0, 1)

    neighbours = build_neighbour_mask(grid, window, shift, batch) if shift else None
    actual = attend(split_windows(query), split_windows(key), split_windows(value), mask=neighbours)
    assert torch.allclose(actual, split_windows(full_output), atol=1e-6)


@pytest.mark.parametrize("side", [3, 2])
def test_each_distance_has_its_own_bias(side: int) -> None:
    # expected: the entry (rows + window - 1, columns + window - 1) of a head's square table
    window, heads = 3, 2
    table = torch.randn(25, heads)
    distance = WindowDistance(table, window, side)
    values = distance.evaluate(Grid(range(1), range(heads), range(side**2), range(side**2)))
    square = table.T.view(heads, 5, 5)
    for query in range(side**2):
        for key in range(side**2):
            rows, columns = query // side - key // side, query % side - key % side
            assert torch.equal(values[0, :, query, key], square[:, rows + 2, columns + 2])
    with pytest.raises(ShapeError, match="has 2 heads, but the query has 3"):
        distance.check(Grid(range(1), range(3), range(4), range(4)))
    with pytest.raises(ShapeError, match="a window of"):
        distance.check(Grid(range(1), range(2), range(side**2 + 1), range(4)))


def test_grid_smaller_than_a_window_is_one_window() -> None:
    attention = WindowAttention(6, 2, 5, True, bias=True, dropout=0.0)
    torch.nn.init.normal_(attention.table)
    inputs = torch.randn(2, 9, 6)
    output, weights = attention(inputs, grid=(3, 3), weights=True)
    assert list(output.shape) == [2, 9, 6] and list(weights.shape) == [2, 2, 9, 9]
    inside = attention.table.detach().view(9, 9, 2)[2:7, 2:7].reshape(25, 2)  # distances up to 2
    smaller = WindowAttention(6, 2, 3, False, bias=True, dropout=0.0)
    smaller.load_state_dict({**attention.state_dict(), "table": inside})
    assert torch.allclose(output, smaller(inputs, grid=(3, 3)), atol=1e-6)
    with pytest.raises(ArgumentError, match="cannot be converted"):
        attention.convert_projection("batched")


TINY = {
    "image": (12, 12), "patch": (2, 2), "width": 8, "depths": (2, 2), "heads": (2, 4), "window": 4, "classes": 3,
}  # fmt: skip


def test_pixel_affects_only_its_window() -> None:
    # one block, not shifted: patches outside the window of the changed pixel do not change
    model = Swin(SwinConfig.from_json({**TINY, "image": (16, 16), "depths": (1,), "heads": (2,), "head": "none"}))
    images = torch.randn(1, 3, 16, 16)
    changed = images.clone()
    changed[..., 0, 0] += 1
    with torch.no_grad():
        changed_patches = (model(images).hidden != model(changed).hidden).any(-1).view(8, 8)
    inside = torch.zeros(8, 8, dtype=torch.bool)
    inside[:4, :4] = True
    assert torch.equal(changed_patches, inside)


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Swin(SwinConfig(**TINY, positions="learned"))
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(torch.linspace(-1, 1, 864).view(2, 3, 12, 12).sin()).logits.square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert first is not None and torch.allclose(first, second, atol=1e-6)


def test_invalid_images_are_refused() -> None:
    with pytest.raises(ShapeError, match="reads images of 3 channels, not 4"):
        Swin(SwinConfig(**TINY))(torch.zeros(1, 4, 12, 12))
    with pytest.raises(ShapeError, match="have no pixels"):
        Swin(SwinConfig(**TINY))(torch.zeros(1, 3, 0, 12))
    with pytest.raises(ShapeError, match="images of 12 x 12 pixels, not 12 x 14; resize"):
        Swin(SwinConfig(**TINY, positions="learned"))(torch.zeros(1, 3, 12, 14))


def test_invalid_configs_are_refused(tmp_path: Path) -> None:
    for fields, message in (
        ({"heads": (2,)}, "need one number for each stage"),
        ({"depths": (), "heads": ()}, "need one number for each stage"),
        ({"heads": (2, 3)}, "stage 1 is 16 wide, which cannot be split evenly into 3 heads"),
        ({"image": (12,)}, "must be (rows, columns) each"),
        ({"image": (13, 12), "positions": "learned"}, "13 x 12 pixels cannot be split evenly into patches of 2 x 2"),
    ):
        with pytest.raises((ArgumentError, ShapeError), match=re.escape(message)):
            SwinConfig.from_json({**TINY, **fields})
    SwinForMaskedImageModeling(TheirConfig(**SMALL)).save_pretrained(tmp_path / "masked")
    with pytest.raises(CheckpointError, match="SwinForMaskedImageModeling"):
        jumok.load(tmp_path / "masked")
    SwinModel(TheirConfig(**SMALL)).save_pretrained(tmp_path / "swin")
    config_json = json.loads((tmp_path / "swin" / "config.json").read_text())
    for name, value, message in (
        ("depths", ["2", 1, 2], "depths in config.json must be a list of integers"),
        ("num_heads", 3, "num_heads in config.json must be a list of integers"),
        ("window_size", 4, "relative_position_bias_table give [25, 2], but by its config"),
        ("depths", [2, 1, 1], "match no parameter of this model: swin.encoder.layers.2.blocks.1."),
    ):
        (tmp_path / "swin" / "config.json").write_text(json.dumps({**config_json, name: value}))
        with pytest.raises(JumokError, match=re.escape(message)):
            jumok.load(tmp_path / "swin")


def test_old_files_with_a_stored_index_load(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    reference = SwinModel(TheirConfig(**SMALL)).eval()
    reference.save_pretrained(tmp_path / "swin")
    tensors = load_file(tmp_path / "swin" / "model.safetensors")
    index = {"encoder.layers.2.blocks.1.attention.self.relative_position_index": torch.zeros(9, 9, dtype=torch.long)}
    save_file({**tensors, **index}, tmp_path / "swin" / "model.safetensors")
    images = torch.randn(1, 3, 30, 30)
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "swin").model(images).hidden, reference(images).last_hidden_state)


def test_swin_tiny_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        assert Swin(SwinConfig()).parameter_count == 28_288_354
