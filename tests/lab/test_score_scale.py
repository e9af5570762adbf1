"""The experiment ``scale``: its formulas against plain loops, and the lesson itself."""

from __future__ import annotations

import math
from statistics import median

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments import run_experiment
from jumok.lab.experiments.score_scale import measure_scale, summarize_weights


def compute_row(scores: list[float]) -> tuple[float, float, float]:
    """Return the largest weight, the entropy and the norm of the Jacobian of a softmax, by plain loops."""
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    entropy = -sum(weight * math.log(weight) for weight in weights)
    squares = 0.0
    for i, weight in enumerate(weights):
        for j, other in enumerate(weights):
            squares += (weight * ((i == j) - other)) ** 2
    return max(weights), entropy, math.sqrt(squares)


def test_statistics_equal_plain_loops() -> None:
    scores = 2 * torch.randn(7, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    statistics = summarize_weights(scores.softmax(-1))
    largest, entropies, gradients = zip(*(compute_row(row) for row in scores.tolist()), strict=True)
    assert statistics.largest_weight == pytest.approx(sum(largest) / 7, rel=1e-12)
    assert statistics.entropy == pytest.approx(sum(entropies) / 7, rel=1e-12)
    assert statistics.gradient == pytest.approx(median(gradients), rel=1e-9)


def test_gradient_is_the_norm_of_the_jacobian_of_autograd() -> None:
    scores = torch.tensor([0.3, -1.2, 2.0, 0.0, 0.7], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda row: row.softmax(-1), scores)
    assert summarize_weights(scores.softmax(-1)[None]).gradient == pytest.approx(float(jacobian.norm()), rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_plain_scores_saturate_and_scaled_ones_do_not(seed: int) -> None:
    outcome = measure_scale([4, 64, 1024], samples=16, seed=seed)
    narrow, middle, wide = outcome.numbers["rows"]
    assert narrow.unscaled.largest_weight < 0.25
    assert middle.unscaled.largest_weight == pytest.approx(0.749, abs=0.04)
    assert wide.unscaled.largest_weight > 0.9 and wide.unscaled.saturated > 0.5
    assert wide.unscaled.gradient < wide.scaled.gradient / 20
    for row in outcome.numbers["rows"]:
        assert row.scaled.largest_weight == pytest.approx(0.045, abs=0.008)
        assert row.scaled.saturated == 0
    # before saturation plain scores have the larger gradient, which the result must admit
    assert narrow.unscaled.gradient > narrow.scaled.gradient
    assert "At d_k = 4, 64 plain" in outcome.exceptions[0].english


def test_a_width_that_does_not_saturate_is_reported() -> None:
    exceptions = [text.english for text in measure_scale([4], samples=2).exceptions]
    assert "At d_k = 4 plain scores do not saturate yet." in exceptions


def test_the_scale_of_the_lecture() -> None:
    table = measure_scale([64], samples=1).tables[1]
    row = table.select_language("en")[2]
    assert row[:3] == ["37.2 / sqrt(64)", "4.65", f"{1 / (1 + math.exp(-4.65)):.4f}"]


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (run_experiment("scale", quick=True, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.numbers["rows"] != other.numbers["rows"]


@pytest.mark.parametrize("settings", [{"widths": []}, {"widths": [0]}, {"samples": 0}, {"keys": 1}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match="at least"):
        measure_scale(**settings)  # type: ignore[arg-type]
