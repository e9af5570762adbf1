"""The experiment ``images``: the reach of layers, the drawn images, and correlations of heads that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.image_heads import (
    CELLS,
    GRID,
    PATCH,
    PLANE,
    SHADOW,
    SIDE,
    HeadRow,
    correlate_head,
    describe_images,
    draw_gallery,
    measure_images,
    measure_reach,
)


def test_reach_by_gradients_equals_the_fields_of_the_layers() -> None:
    rows = {row.kind: row for row in measure_reach(0)}
    assert all(row.measured == row.formula for row in rows.values())
    distance = (SHADOW - PLANE) * SIDE // GRID
    fields = {"pixels": (distance, 1), "patches": (SHADOW - PLANE, 1), "strided": (distance, 2)}
    for kind, (gap, stride) in fields.items():
        width, jump, layers = 1, 1, 0
        while width < gap + 1:  # each layer adds two steps of the size that the strides before it made
            width, jump, layers = width + 2 * jump, jump * stride, layers + 1
        assert rows[kind].formula == layers, kind
    assert rows["attention"].measured == 1


def test_two_of_three_squares_have_the_texture_of_the_label() -> None:
    gallery = draw_gallery(20, torch.Generator().manual_seed(1))
    for image, label, meanings, squares in zip(*gallery, strict=True):
        assert (int((meanings == label).sum()), int((meanings >= 0).sum())) == (8, 12)
        assert [int((squares == square).sum()) for square in (-1, 0, 1, 2)] == [CELLS**2 - 12, 4, 4, 4]
        pixels = (squares < 0).view(CELLS, CELLS).repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1)
        assert float(image[:, pixels].max()) <= 0.1 < float(image[:, ~pixels].max())


def test_correlations_of_heads_that_follow_one_property() -> None:
    gallery = draw_gallery(60, torch.Generator().manual_seed(2))
    is_same = (gallery.meanings[:, :, None] == gallery.meanings[:, None]).float()
    for weights, expected in ((is_same, 1.0), (1 - is_same, -1.0)):
        padded = torch.nn.functional.pad(weights, (1, 0, 1, 0))  # the class token comes first
        correlations, controls = correlate_head(padded, gallery)
        assert correlations[2] == pytest.approx(expected, abs=1e-5)
        assert max(map(abs, controls)) < 0.1 and abs(correlations[0]) < 0.2 and abs(correlations[1]) < 0.2
        assert HeadRow(0, 0, correlations, controls).kind == "meaning"
    assert HeadRow(0, 0, (0.3, 0.2, 0.0), (0.2, 0.0, 0.0)).kind == "distance"
    assert HeadRow(0, 0, (0.05, 0.0, 0.0), (0.0, 0.0, 0.0)).kind == "mixed"


def test_results_that_contradict_the_lesson_are_reported(tmp_path: Path) -> None:
    outcome = measure_images(steps=2)
    assert outcome.save_picture(tmp_path / "images.png", "ko").exists()
    head = HeadRow(0, 0, (0.5, 0.0, 0.0), (0.0, 0.0, 0.0))
    heads = (head, replace(head, correlations=(0.0, 0.5, 0.0)), replace(head, correlations=(0.0, 0.0, -0.5)))

    def list_exceptions(accuracy: float, *rows: HeadRow) -> list[str]:
        result = describe_images(0, 2, accuracy, outcome.numbers["reach"], rows)
        return [text.english for text in result.exceptions]

    assert list_exceptions(0.95, *heads) == []
    assert list_exceptions(0.5, *heads[1:]) == [
        "No head follows colour most.",
        "The model did not learn the task: 50% right.",
    ]
    with pytest.raises(ArgumentError, match="at least 1 step"):
        measure_images(steps=0)
