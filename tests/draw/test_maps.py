"""Colour scales, maximum pooling, the grid of a model, masks and maps of effects."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from PIL import Image
from test_draw import causal_weights, error_message, read_pixels

from jumok import draw
from jumok.draw import panel
from jumok.draw.panel import Shading, choose_shading
from jumok.draw.pooling import pool_patterns, split_axis


def read_texts(path: Path) -> list[str]:
    """The texts of an SVG image, in the order of drawing."""
    return re.findall("<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def count_dark_pixels(path: Path) -> int:
    """The pixels of the darkest shade, without the colour bar."""
    from matplotlib import colormaps

    image = read_pixels(path)
    body = image[:, : int(image.shape[1] * 0.88)]
    darkest = numpy.round(numpy.array(colormaps[panel.COLOR_MAP](1.0)[:3]) * 255)
    return int((abs(body - darkest) <= 1).all(axis=2).sum())


# Colour scales


def test_scales_shade_weights_as_documented() -> None:
    weights = numpy.array([[0.64, 0.16, 0.0], [0.25, 0.04, 0.01]])
    assert numpy.allclose(Shading("linear").compute_shades(weights), weights)
    assert numpy.allclose(Shading("sqrt").compute_shades(weights), [[0.8, 0.4, 0], [0.5, 0.2, 0.1]])
    assert numpy.allclose(Shading("row").compute_shades(weights), [[1, 0.25, 0], [1, 0.16, 0.04]])
    assert (Shading("row").compute_shades(numpy.zeros((2, 2))) == 0).all(), "a row without weights stays white"


def test_without_the_first_key_the_scale_covers_the_other_weights() -> None:
    weights = numpy.array([[[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.6, 0.2, 0.2]]])
    for scale, last_row in (("linear", [1, 1]), ("sqrt", [1, 1]), ("row", [1, 1])):
        shading = choose_shading([weights], scale, skip_first=True)
        assert shading.largest == pytest.approx(0.2)
        shades = shading.compute_shades(weights[0])
        assert numpy.isnan(shades[:, 0]).all() and numpy.allclose(shades[2, 1:], last_row)
    assert choose_shading([weights], "linear", skip_first=False).largest == 1
    assert choose_shading([numpy.zeros((1, 2, 2))], "linear", skip_first=True).largest == 1


@pytest.mark.parametrize("scale", ["linear", "sqrt", "row"])
def test_values_stay_the_weights_in_every_scale(scale: str, tmp_path: Path) -> None:
    weights = [[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.6, 0.25, 0.15]]
    path = draw.save_heat_map(tmp_path / "m.svg", weights, "abc", "abc", scale=scale, skip_first=True)
    texts = read_texts(path)
    assert {"0.10", "0.25", "0.15"} <= set(texts) and not {"1.00", "0.90", "0.60"} & set(texts)
    assert "without the first key, 'a'" in texts


def test_grids_of_small_weights_are_readable_and_need_no_labels(tmp_path: Path) -> None:
    weights = numpy.full((8, 20, 20), 0.05)
    weights[3, 7, 11] = 0.16
    assert count_dark_pixels(draw.save_head_grid(tmp_path / "grid.png", weights)) >= 4
    texts = read_texts(draw.save_head_grid(tmp_path / "grid.svg", weights))
    assert texts[-6:] == ["0", "0.04", "0.08", "0.12", "0.16", "weight"] and {"19", "head 7"} <= set(texts)
    larger = read_texts(draw.save_head_grid(tmp_path / "larger.svg", weights * 4))
    assert larger[-6:] == ["0", "0.25", "0.5", "0.75", "1", "weight"]

    single = read_texts(draw.save_heat_map(tmp_path / "one.svg", weights[3]))
    assert single[-6:] == ["0", "0.25", "0.5", "0.75", "1", "weight"] and "19" in single


def test_unknown_scales_and_maps_of_one_key_raise(tmp_path: Path) -> None:
    path, two = tmp_path / "a.png", ["a", "b"]
    message = error_message(lambda: draw.save_heat_map(path, [[1, 0], [0, 1]], two, two, scale="log"))
    assert "'log' is unknown; choose one of linear, sqrt, row" in message
    for save in (draw.save_heat_map, draw.save_head_grid):
        message = error_message(lambda save=save: save(path, [[1], [1]], two, ["a"], skip_first=True))
        assert "one key" in message


def test_a_short_colour_bar_has_three_ticks(tmp_path: Path) -> None:
    two = ["a", "b"]
    texts = read_texts(draw.save_heat_map(tmp_path / "m.svg", [[1, 0], [0.3, 0.7]], two, two))
    assert texts[-4:] == ["0", "0.5", "1", "weight"]
    texts = read_texts(draw.save_heat_map(tmp_path / "m.svg", numpy.eye(8), "abcdefgh", "abcdefgh"))
    assert texts[-6:] == ["0", "0.25", "0.5", "0.75", "1", "weight"]


# Pooling


@pytest.mark.parametrize("count", [401, 500, 1037, 2000])
def test_a_single_large_weight_stays_visible_in_a_large_map(count: int, tmp_path: Path) -> None:
    """Drawing every n-th cell would lose it: it is tried at positions that a coarse grid skips."""
    labels = [f"t{index}" for index in range(count)]
    for query, key in ((count - 1, 1), (count // 3, count // 7), (count // 2 + 1, count // 2)):
        weights = numpy.zeros((count, count))
        weights[query, key] = 1.0
        path = draw.save_heat_map(tmp_path / "map.png", weights, labels, labels, title="one")
        assert 4 <= count_dark_pixels(path) <= 30, (count, query, key)
    assert max(read_pixels(path).shape) < 2000
    texts = read_texts(draw.save_heat_map(tmp_path / "map.svg", weights, labels, labels))
    assert any(text.startswith("each cell is the maximum of up to") for text in texts)
    assert not any(text.startswith("t") for text in texts), "the axes count positions"


def test_grids_pool_too(tmp_path: Path) -> None:
    labels = [f"t{index}" for index in range(700)]
    weights = numpy.zeros((3, 700, 700))
    weights[1, 611, 333] = 1.0
    grid = draw.save_head_grid(tmp_path / "grid.png", weights, labels, labels)
    model = draw.save_model_grid(tmp_path / "model.png", [draw.LayerMaps("layer 0", weights, labels, labels)] * 2)
    assert count_dark_pixels(grid) >= 4 and count_dark_pixels(model) >= 8


def test_pooling_takes_the_maximum_of_every_region() -> None:
    weights = numpy.random.default_rng(0).random((2, 11, 7))
    labels = [str(index) for index in range(11)]
    pooled = pool_patterns(weights, labels, labels[:7], 3)
    rows, columns = [0, 3, 7, 11], [0, 2, 4, 7]
    for row in range(3):
        for column in range(3):
            region = weights[:, rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            assert numpy.array_equal(pooled.weights[:, row, column], region.max(axis=(1, 2)))
    assert (pooled.queries, pooled.keys) == (["0", "3", "7"], ["0", "2", "4"])
    assert pooled.caption == "each cell is the maximum of up to 4 x 3 weights; the axes count positions"
    apart = pool_patterns(weights, labels, labels[:7], 3, first_apart=True)
    assert numpy.array_equal(apart.weights[:, 0, 0], weights[:, :3, 0].max(axis=1)), "the first key alone"
    small = pool_patterns(weights, labels, labels[:7], 11)
    assert small.weights is weights and small.caption == "" and small.keys == labels[:7]


@pytest.mark.parametrize("first_apart", [False, True])
def test_parts_of_an_axis_differ_by_at_most_one(first_apart: bool) -> None:
    for count in (1, 5, 80, 81, 399, 1000):
        starts = split_axis(count, 80, first_apart=first_apart)
        sizes = [end - start for start, end in zip(starts, [*starts[1:], count], strict=True)]
        assert len(starts) == min(count, 80) and sum(sizes) == count and starts[0] == 0
        remaining = sizes[1:] if first_apart and count > 80 else sizes
        assert max(remaining, default=1) - min(remaining, default=1) <= 1


# The grid of a model


def test_a_model_has_a_row_for_each_layer_and_all_its_heads(tmp_path: Path) -> None:
    layers = [
        draw.LayerMaps("encoder", causal_weights(3, 2), list("abc"), list("abc")),
        draw.LayerMaps("decoder", causal_weights(2, 4), list("xy"), list("xy")),
        draw.LayerMaps("cross", numpy.full((4, 2, 3), 1 / 3), list("xy"), list("abc"), heads=[0, 1, 2, 7]),
    ]
    texts = read_texts(draw.save_model_grid(tmp_path / "model.svg", layers, title="the title"))
    assert [text for text in texts if text in ("encoder", "decoder", "cross")] == ["encoder", "decoder", "cross"]
    assert sum(text.startswith("head ") for text in texts) == 2 + 4 + 4 and "head 7" in texts
    assert texts.count("weight") == 1 and "the title" in texts
    image = read_pixels(draw.save_model_grid(tmp_path / "model.png", layers))
    assert image.shape[0] > 300 and image.shape[1] > 300
    assert "no layers" in error_message(lambda: draw.save_model_grid(tmp_path / "a.png", []))


def test_many_layers_stay_readable_and_small(tmp_path: Path) -> None:
    layers = [draw.LayerMaps(f"layer {n}", causal_weights(6, 6), list("abcdef"), list("abcdef")) for n in range(12)]
    height, width, _ = read_pixels(draw.save_model_grid(tmp_path / "model.png", layers)).shape
    assert height < 5000 and width < 3000 and height > width


def test_words_of_several_maps_are_korean(tmp_path: Path) -> None:
    words = {"scale": "row", "axis_names": draw.AXIS_NAMES["ko"]}
    grid = draw.save_head_grid(tmp_path / "grid.svg", causal_weights(4, 2), list("abcd"), list("abcd"), **words)
    assert {"헤드 0", "헤드 1", "쿼리", "키", "행에서 가장 큰 가중치에 대한 비율"} <= set(read_texts(grid))
    layers = [draw.LayerMaps(f"{n}층", causal_weights(6, 6), list("abcdef"), list("abcdef")) for n in range(2)]
    model = draw.save_model_grid(tmp_path / "model.svg", layers, skip_first=True, **words)
    assert {"헤드 0", "0층", "첫 키는 제외"} <= set(read_texts(model))
    assert not [text for text in read_texts(model) if "weight" in text or "head" in text]


# Masks and effects


def test_a_mask_is_dark_where_it_allows(tmp_path: Path) -> None:
    allowed = numpy.tril(numpy.ones((6, 6), bool))
    path = draw.save_mask(tmp_path / "mask.png", allowed, title="causal")
    one_cell = count_dark_pixels(draw.save_mask(tmp_path / "one.png", numpy.eye(6, dtype=bool)[:, ::-1])) / 6
    assert count_dark_pixels(path) == pytest.approx(21 * one_cell, rel=0.05)
    texts = read_texts(draw.save_mask(tmp_path / "mask.svg", allowed, title="causal"))
    assert {"causal", "query", "key", "0", "5"} <= set(texts) and "weight" not in texts
    korean = read_texts(draw.save_mask(tmp_path / "ko.svg", allowed, axis_names=draw.AXIS_NAMES["ko"]))
    assert {"쿼리", "키", "진한 칸: 쿼리가 볼 수 있는 키"} <= set(korean) and "query" not in korean


def test_effects_are_red_below_zero_and_blue_above(tmp_path: Path) -> None:
    image = read_pixels(draw.save_effect_map(tmp_path / "e.png", [[-2.0, 2.0], [0.0, float("nan")]], ["a", "b"]))
    red = image[:, :, 0] - image[:, :, 2] > 60
    blue = image[:, :, 2] - image[:, :, 0] > 60
    cells = image.shape[1] // 2
    assert red[:, :cells].sum() > 500 and blue[:, :cells].sum() > 500
    assert numpy.nonzero(red[:, :cells])[1].mean() < numpy.nonzero(blue[:, :cells])[1].mean()
    texts = read_texts(draw.save_effect_map(tmp_path / "e.svg", [[-2.0, 2.0], [0.0, float("nan")]], ["a", "b"]))
    assert [text for text in texts if text.endswith(("0.00", "2.00"))] == ["-2.00", "+2.00", "0.00"]
    lines = ["red: the metric falls without the head;", "blue: it rises;", "white: no effect"]
    assert texts[-7:] == ["-2", "0", "2", "effect", *lines], "three ticks, and a caption no wider than the map"
    tiny = read_texts(draw.save_effect_map(tmp_path / "e.svg", [[-0.001, 5.0]]))
    assert "0.00" in tiny and "-0.00" not in tiny


def test_signed_tables_name_their_axes_and_their_quantity(tmp_path: Path) -> None:
    names = {"row_axis": "position", "column_axis": "dimension", "quantity": "encoding"}
    texts = read_texts(draw.save_effect_map(tmp_path / "p.svg", [[0.0, 1.0], [0.8, 0.5]], caption="", **names))
    assert {*names.values()} <= {*texts} and not {"layer", "head", "effect"} & {*texts}


def test_small_maps_are_large_enough_to_read(tmp_path: Path) -> None:
    for count in (2, 4):
        effects = read_pixels(draw.save_effect_map(tmp_path / "e.png", numpy.eye(count)))
        labels = [str(index) for index in range(count)]
        weights = read_pixels(draw.save_heat_map(tmp_path / "w.png", numpy.eye(count), labels, labels))
        assert effects.shape[1] > 150 * 0.75 * count and weights.shape[1] > 150 * 0.75 * count  # dots per inch
    draw.save_effect_map(tmp_path / "zero.png", [[0.0, 0.0]])
    draw.save_effect_map(tmp_path / "large.png", numpy.random.default_rng(0).normal(size=(30, 16)))


@pytest.mark.parametrize(
    ("effects", "labels", "message"),
    [
        ([1.0, 2.0], None, "give a table [layer, head]"),
        ([["x"]], None, "cannot be read as numbers"),
        ([[float("inf")]], None, "must be finite"),
        ([[float("nan")]], None, "must be finite"),
        ([[1.0]], ["a", "b"], "2 labels but 1 layers"),
    ],
)
def test_invalid_effects_raise(effects: list, labels: list[str] | None, message: str, tmp_path: Path) -> None:
    assert message in error_message(lambda: draw.save_effect_map(tmp_path / "e.png", effects, labels))


def test_title_of_a_long_mask_is_cut(tmp_path: Path) -> None:
    draw.save_mask(tmp_path / "long.png", [[True, False], [True, True]], title=" & ".join(["causal"] * 40))
    with Image.open(tmp_path / "long.png") as image:
        assert image.width < 1500
