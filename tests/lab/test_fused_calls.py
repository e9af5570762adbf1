"""The experiment ``fused``: both forms compute the same, and what is said of their times and memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments import fused_calls
from jumok.lab.experiments.fused_calls import FusedRow, Ratio, describe_fused_calls, measure_fused_calls
from jumok.lab.result import Result

FASTER = Ratio(2.0, 1.5, 2.5)


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_fused_calls([(8, 3)], [128, 256], rounds=2)


def test_memory_of_the_explicit_formula_is_quadratic_and_of_the_kernel_linear(outcome: Result) -> None:
    short, long = outcome.numbers["kernels"]
    weights = 4 * fused_calls.HEADS * 256**2
    assert long.plain_bytes > 2 * weights > long.fused_bytes
    assert long.plain_bytes > 3 * short.plain_bytes and long.fused_bytes < 2.1 * short.fused_bytes
    (projection,) = outcome.numbers["projections"]
    # three outputs of 3 x 8 numbers, and gradients of the parameters, of the inputs and of each output
    assert projection.plain_bytes >= 4 * (3 * 3 * 8 + 3 * (8 * 8 + 8) + 3 * 8 + 3 * 3 * 8)


def test_both_forms_compute_the_same() -> None:
    torch.manual_seed(0)
    forward, training = fused_calls._create_attentions(11)
    assert torch.allclose(forward["plain"]()[0], forward["fused"]()[0], atol=1e-6)  # type: ignore[index]
    for plain, fused in zip(training["plain"](), training["fused"](), strict=True):  # type: ignore[call-overload]
        assert torch.allclose(plain, fused, atol=1e-5)
    forward, _ = fused_calls._create_projections(5, 3)
    shapes = [[tuple(part.shape) for part in call()] for call in forward.values()]  # type: ignore[attr-defined]
    assert shapes == [[(1, 3, 5)] * 3] * 2


def test_forms_that_are_not_clearly_faster_are_reported(outcome: Result, tmp_path: Path) -> None:
    fast = FusedRow(64, 512, FASTER, FASTER, 100, 50)
    unclear = replace(fast, training=Ratio(1.2, 0.9, 1.4))

    def list_exceptions(projections: FusedRow, kernels: FusedRow) -> list[str]:
        result = describe_fused_calls(0, 11, (fast, projections), (fast, kernels))
        return [text.english for text in result.exceptions]

    assert list_exceptions(fast, fast) == []
    assert list_exceptions(unclear, fast)[0].startswith(
        "One layer for Q, K and V is not clearly faster than three at 1"
    )
    kernel = replace(unclear, width=None, tokens=2048)
    assert "not clearly faster at 2,048 tokens" in list_exceptions(fast, kernel)[0]
    assert str(FASTER) == "x2.00 [1.50, 2.50]"
    assert outcome.save_picture(tmp_path / "fused.png", "ko").exists()


def test_ratios_are_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"plain": [9.0, 9.0, 9.0, 2.0, 8.0, 6.0], "fused": [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]}
    monkeypatch.setattr(fused_calls, "time_calls", lambda calls, **settings: times)
    ratio = fused_calls._time_pair({}, 3, lambda: None)
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 4.0)  # the first three rounds warm up


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least 2 rounds"):
        measure_fused_calls(rounds=1)
