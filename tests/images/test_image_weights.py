"""Attention drawn over an image: the weight of a patch is at the pixels of this patch.

The models are made by hand: the keys of white pixels score high for every query, so a white square attracts weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor

import jumok
from jumok.cli import cli
from jumok.data.images.preparation import Preparation, stretch_pixels
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.layers.patches import PatchLayout
from jumok.lens import save_image_weights
from jumok.lens.describe.image_weights import PatchMaps, choose_image_site, compute_patch_maps
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.models.swin import Swin, SwinConfig
from jumok.models.vit import ViT, ViTConfig

ROWS, COLUMNS, PATCH_ROWS, PATCH_COLUMNS = 15, 28, 5, 4  # 3 x 7 patches
SIZES: dict[str, Any] = {"image": (ROWS, COLUMNS), "patch": (PATCH_ROWS, PATCH_COLUMNS), "channels": 1, "width": 8}
PREPARATION = Preparation((ROWS, 2 * COLUMNS), (ROWS, COLUMNS), mean=(0.5,), std=(0.5,))


@torch.no_grad()
def attend_to_white(model: Model) -> Model:
    """Set the parameters so that white patches have the vector d and black ones -d, and every query prefers d."""
    direction = torch.tensor([1.0, -1.0] * (8 // 2))
    for name, parameter in model.named_parameters():
        if not name.endswith("norm.weight"):
            parameter.zero_()
    patches: Any = model.patches  # type: ignore[union-attr]
    patches.map.weight.copy_(direction.view(8, 1, 1, 1).expand_as(patches.map.weight) / patches.map.weight[0].numel())
    for name, parameter in model.named_parameters():
        if name.endswith("projection.joined.weight") and parameter.shape == (24, 8):
            parameter[8:16] = torch.eye(8) * 9
        if name.endswith("projection.joined.bias") and parameter.shape == (24,):
            parameter[:8] = direction
    return model.eval()


def draw_square(row: int, column: int, rows: int = 1, columns: int = 1) -> Tensor:
    """Draw a black image with a white patch, normalized, [1, 1, row, column]."""
    pixels = -torch.ones(1, 1, ROWS, COLUMNS)
    top, left = row * PATCH_ROWS, column * PATCH_COLUMNS
    pixels[:, :, top : top + rows * PATCH_ROWS, left : left + columns * PATCH_COLUMNS] = 1
    return pixels


def read_maps(model: Model, pixels: Tensor, layer: int | None = None, query: int | None = None) -> PatchMaps:
    with jumok.Lens(model) as lens:
        capture = lens.run(pixels)
    site = choose_image_site(capture, layer)
    size = (pixels.shape[2], pixels.shape[3])
    layout, first = model.locate_patches(site, size), model.locate_patches(capture.sites.names[0], size)
    assert layout is not None and first is not None
    return compute_patch_maps(capture, site, layout, first, query=query)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (2, 6), (1, 4)])
def test_class_token_of_a_vit_looks_at_the_white_patch(row: int, column: int) -> None:
    vit = attend_to_white(ViT(ViTConfig(**SIZES, heads=2, layers=2, hidden=3, classes=3)))
    maps = read_maps(vit, draw_square(row, column))
    assert maps.weights.shape == (2, 3, 7) and maps.query is None and maps.caption == "where [class] looks"
    assert (maps.weights[:, row, column] > 0.9).all()
    assert maps.titles[1] == f"head 1: {float(maps.weights[1].sum()):.2f} on patches"


def test_the_picture_of_the_command_is_red_at_the_white_square(tmp_path: Path) -> None:
    """The file has other proportions than the model: it is resized to twice the columns, and the middle is read."""
    vit = attend_to_white(ViT(ViTConfig(**SIZES, heads=1, layers=1, hidden=3, classes=3)))
    jumok.save(vit, tmp_path / "vit", format="jumok", preparation=PREPARATION)
    row, column = 2, 5
    file = Image.new("L", (4 * COLUMNS, 2 * ROWS), 0)  # twice as large as the resized image
    left = 2 * (COLUMNS // 2 + column * PATCH_COLUMNS)
    file.paste(255, (left, 2 * row * PATCH_ROWS, left + 2 * PATCH_COLUMNS, 2 * (row + 1) * PATCH_ROWS))
    file.save(tmp_path / "square.png")

    arguments = ["look", str(tmp_path / "vit"), str(tmp_path / "square.png"), "--png", str(tmp_path / "out.png")]
    process = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert process.exit_code == 0, process.output

    with Image.open(tmp_path / "out.png") as picture:
        pixels = numpy.asarray(picture.convert("RGB")).astype(int)
    black = (pixels.max(2) < 40) | ((pixels[..., 0] > 150) & (pixels[..., 1] < 130))
    panels = split_panels(black)
    assert len(panels) == 2, "the image, and one head"
    panel = pixels[panels[1]]
    red = (panel[..., 0] > 150) & (panel[..., 1] < 130)
    found_rows, found_columns = numpy.nonzero(red)
    height, width = panel.shape[:2]
    assert found_rows.mean() / height == pytest.approx((row + 0.5) / 3, abs=0.03)
    assert found_columns.mean() / width == pytest.approx((column + 0.5) / 7, abs=0.03)
    assert red.sum() / red.size == pytest.approx(1 / 21, rel=0.2), "one patch of 21"


def split_panels(inside: Any) -> list[tuple[slice, slice]]:
    """Return the rectangles of a picture that are filled by panels, from left to right."""
    filled = numpy.flatnonzero(inside.sum(0) > 40)
    parts = numpy.split(filled, numpy.flatnonzero(numpy.diff(filled) > 5) + 1)
    rectangles = []
    for part in parts:
        if len(part) > 50:
            rows = numpy.flatnonzero(inside[:, part[0] : part[-1]].mean(1) > 0.5)
            rectangles.append((slice(rows[0], rows[-1] + 1), slice(part[0], part[-1] + 1)))
    return rectangles


def test_query_is_a_patch_and_is_framed() -> None:
    vit = attend_to_white(ViT(ViTConfig(**SIZES, heads=2, layers=1, hidden=3, classes=3)))
    maps = read_maps(vit, draw_square(2, 3), query=1 + 7 + 6)  # the class token, one row of patches, the last patch
    assert maps.query == (1, 6) and maps.caption == "where patch 2,7 looks"
    with jumok.Lens(vit) as lens:
        expected = lens.run(draw_square(2, 3)).row(0, 1, 14)[1:].view(3, 7)
    assert torch.equal(maps.weights[1], expected)
    with pytest.raises(ArgumentError, match="the image has 22 positions"):
        read_maps(vit, draw_square(2, 3), query=22)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_windows_of_swin_are_put_back_into_the_image(layer: int) -> None:
    """Compared with the weights that the blocks return, patch by patch; the grid fills no whole number of windows."""
    torch.manual_seed(1)
    config = SwinConfig(image=(10, 14), patch=(2, 2), channels=1, width=8, depths=(2, 1), heads=(2, 2), window=3)
    swin, pixels = Swin(config).eval(), torch.randn(1, 1, 10, 14)
    for parameter in swin.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weights = swin(pixels, weights=True).weights[layer]
    grid, window, shift = [((5, 7), 3, 0), ((5, 7), 3, 1), ((3, 4), 3, 0)][layer]

    def locate(index: int, position: int) -> tuple[int, int]:
        """Return row and column of a position in a window of the rolled and padded grid."""
        across = -(-grid[1] // window)
        rows, columns = -(-grid[0] // window) * window, across * window
        row, column = index // across * window + position // window, index % across * window + position % window
        return (row + shift) % rows, (column + shift) % columns

    expected = torch.zeros(2, *grid)
    by_query: dict[tuple[int, int], Tensor] = {}
    for index in range(len(weights)):
        for query in range(window**2):
            cell = locate(index, query)
            if cell[0] >= grid[0] or cell[1] >= grid[1]:
                continue
            row = torch.zeros(2, *grid)
            for key in range(window**2):
                target = locate(index, key)
                if target[0] < grid[0] and target[1] < grid[1]:
                    row[:, target[0], target[1]] += weights[index, :, query, key]
            by_query[cell] = row
            expected += row
    assert len(by_query) == grid[0] * grid[1]

    maps = read_maps(swin, pixels, layer)
    assert maps.layout.patch == ((2, 2) if layer < 2 else (4, 4))
    torch.testing.assert_close(maps.weights, expected / len(by_query), atol=1e-5, rtol=1e-4)
    chosen = read_maps(swin, pixels, layer, query=3 * 7 + 5)  # row 3, column 5 of the first grid
    cell = (3, 5) if layer < 2 else (1, 2)
    assert chosen.query == cell
    torch.testing.assert_close(chosen.weights, by_query[cell], atol=1e-5, rtol=1e-4)


def test_captioner_has_a_panel_for_each_word(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a cat"] * 3, 270, {"begin": "<s>", "end": "</s>", "pad": "<pad>"})
    config = CaptionerConfig(
        source="patches", **SIZES, vocabulary=tokenizer.vocabulary, length=8, layers=1, decoder_layers=2, heads=2,
        hidden=9, start=tokenizer.begin or 0, end=tokenizer.end or 0, pad=tokenizer.pad or 0,
    )  # fmt: skip
    torch.manual_seed(2)
    captioner, pixels = Captioner(config).eval(), draw_square(1, 2)
    target = torch.tensor([[config.start, *tokenizer.encode("a cat", special=False)]])
    labels = ["<start>", *(str(token) for token in target[0, 1:].tolist())]
    with jumok.Lens(captioner) as lens:
        capture = lens.run(pixels, target)
    site = choose_image_site(capture, None)
    assert site == "decoder.1.cross"
    layout = captioner.locate_patches(site, (ROWS, COLUMNS))
    assert layout is not None

    maps = compute_patch_maps(capture, site, layout, layout, words=labels)
    cross = captioner(pixels, target, weights=True).weights["cross"][1][0]
    torch.testing.assert_close(maps.weights.flatten(1), cross.mean(0))
    assert maps.titles == [*labels[1:], "(next)"] and maps.caption == "while each word is written; mean of 2 heads"
    single = compute_patch_maps(capture, site, layout, layout, query=1, words=labels)
    torch.testing.assert_close(single.weights.flatten(1), cross[:, 1])
    assert single.caption == f"after {labels[1]}, while {labels[2]} is written"
    assert single.titles == ["head 0", "head 1"]
    with pytest.raises(ArgumentError, match=r"decoder\.1\.attention attends to words, not to patches"):
        choose_image_site(capture, "decoder.1.attention")

    path = save_image_weights(tmp_path / "words.svg", captioner, capture, PREPARATION.restore(pixels[0]))
    assert "decoder.1.cross" in path.read_text(encoding="utf-8")


def test_image_is_restored_as_the_model_saw_it(tmp_path: Path) -> None:
    generator = numpy.random.default_rng(5)
    colours = generator.integers(0, 256, (6, 9, 3), dtype=numpy.uint8)
    preparation = Preparation((6, 9), mean=(0.48, 0.45, 0.4), std=(0.22, 0.23, 0.27))
    assert (preparation.restore(preparation.apply(Image.fromarray(colours))) == colours).all()
    cropped = Preparation((6, 9), crop=(6, 5), mean=(0.5,) * 3, std=(0.5,) * 3)
    assert (cropped.restore(cropped.apply(Image.fromarray(colours))) == colours[:, 2:7]).all()
    assert stretch_pixels(torch.tensor([[[-3.0, 0.0, 1.0]]])).tolist() == [[0, 191, 255]]


def test_attention_with_other_positions_is_refused() -> None:
    vit = ViT(ViTConfig(**SIZES, heads=2, layers=1, hidden=3, classes=3)).eval()
    with jumok.Lens(vit) as lens:
        capture = lens.run(draw_square(0, 0))
    wrong = PatchLayout((2, 7), (5, 4), ("[class]",))
    with pytest.raises(ArgumentError, match="has 22 keys, but the image has 15 positions"):
        compute_patch_maps(capture, capture.sites.names[0], wrong, wrong)
