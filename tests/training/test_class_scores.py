"""The comparison of a classifier with its baseline."""

from __future__ import annotations

import pytest
import torch

from jumok.recipes.shared.class_scores import compare_with_baseline

LABELS = torch.arange(4000) % 2


@pytest.mark.parametrize(
    ("wrong", "baseline_wrong", "verdict"),
    [
        (3, 3, "the same macro-F1 as the baseline (TF-IDF and"),
        (0, 1, "less than 0.1 points of macro-F1 above the baseline"),
        (1, 0, "less than 0.1 points of macro-F1 below the baseline"),
        (0, 400, "10.0 points of macro-F1 above the baseline"),
        (400, 0, "10.0 points of macro-F1 below the baseline"),
    ],
)
def test_verdict_on_the_difference(wrong: int, baseline_wrong: int, verdict: str) -> None:
    predictions, baseline = LABELS.clone(), LABELS.clone()
    predictions[:wrong] = 1 - predictions[:wrong]
    baseline[:baseline_wrong] = 1 - baseline[:baseline_wrong]
    report = compare_with_baseline(predictions, baseline, LABELS, ["bad", "good"])
    assert str(report["verdict"]).startswith(verdict)
