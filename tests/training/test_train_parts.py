"""Parts of training: Muon, the learning rate, the settings, the displays."""

from __future__ import annotations

import importlib.util
import math
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from jumok.errors import ArgumentError
from jumok.training import Settings, compute_rate_factor, fit
from jumok.training.displays import BarDisplay, LineDisplay, select_display
from jumok.training.muon import Muon, orthogonalize
from toys import new_run, toy


def test_muon_orthogonalizes_matrices() -> None:
    torch.manual_seed(0)
    singular_values = torch.linalg.svdvals(orthogonalize(torch.randn(3, 16, 40), 5))
    assert singular_values.min() > 0.6 and singular_values.max() < 1.3
    # the directions are those of the exact answer, U V^T
    matrix = torch.randn(1, 12, 12)
    u, _, v = torch.linalg.svd(matrix[0])
    cosine = nn.functional.cosine_similarity(orthogonalize(matrix, 5).flatten(), (u @ v).flatten(), dim=0)
    assert cosine > 0.97


def test_muon_updates_concatenated_maps_separately() -> None:
    """A matrix of three concatenated maps moves as three matrices do."""
    torch.manual_seed(1)
    joined = nn.Parameter(torch.randn(24, 8))
    maps = [nn.Parameter(part.clone()) for part in joined.detach().split(8)]
    joined.grad = torch.randn(24, 8)
    for parameter, grad in zip(maps, joined.grad.split(8), strict=True):
        parameter.grad = grad.clone()
    Muon({joined: (8, 8, 8)}).step()
    Muon(dict.fromkeys(maps, (8,))).step()
    torch.testing.assert_close(joined, torch.cat(maps))


def test_learning_rate_warms_up_and_decays() -> None:
    settings = Settings(steps=100, warmup=10, final_rate=0.1)
    rates = [compute_rate_factor(settings, step) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11) and rates[10] == 1.0 and rates[99] == pytest.approx(0.1, abs=1e-3)
    assert rates[:11] == sorted(rates[:11]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)))


@pytest.mark.parametrize(("steps", "warmup", "effective"), [(100, 100, 10), (50, 100, 5), (101, 100, 100), (1, 9, 9)])
def test_short_run_warms_up_in_a_tenth_of_its_steps(steps: int, warmup: int, effective: int) -> None:
    settings = Settings(steps=steps, warmup=warmup)
    assert settings.effective_warmup == effective and settings.warmup == warmup
    assert compute_rate_factor(settings, 0) == 1 / (effective + 1)
    assert Settings.from_json(settings.to_json()) == settings


def test_settings_refuse_invalid_values() -> None:
    with pytest.raises(ArgumentError, match="cannot be split evenly into 3 parts"):
        Settings(batch=8, accumulate=3)
    with pytest.raises(ArgumentError, match="learning_rate of the training config"):
        Settings(learning_rate=-1.0)
    with pytest.raises(ArgumentError, match="did you mean 'learning_rate'"):
        Settings.from_json({"learningrate": 1.0})


def test_line_display_prints_few_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(toy(), new_run(tmp_path / "run"), display=LineDisplay(every=1e9))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("step 1 of 12  loss ") and lines[-1].startswith("evaluation at step 12: loss ")
    assert len([line for line in lines if line.startswith("step ")]) == 2


def test_line_display_limits_frequent_evaluations(capsys: pytest.CaptureFixture[str]) -> None:
    display = LineDisplay(every=1e9, evaluations_every=1e9)
    display.begin(10_000, 0)
    for step in range(1, 10_001):
        display.show_step(step, 1.0, 1.0)
        display.show_evaluation(step, {"loss": 1.0}, best=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and lines[-1] == "evaluation at step 10,000: loss 1.0000"


def test_display_is_a_bar_in_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(select_display(), LineDisplay), "standard error is not a terminal"
    kernelapp = types.SimpleNamespace(IPKernelApp=types.SimpleNamespace(initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", kernelapp)
    assert isinstance(select_display(), LineDisplay), "ipykernel is imported, but this is no kernel"
    kernelapp.IPKernelApp.initialized = lambda: True
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ipywidgets" else find_spec(name))
    assert isinstance(select_display(), LineDisplay), "rich shows no bar in a notebook without ipywidgets"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert isinstance(select_display(), BarDisplay)
    monkeypatch.delitem(sys.modules, "ipykernel.kernelapp")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(select_display(), BarDisplay)


def test_bar_display_in_a_file_prints_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = BarDisplay()
    display.show_message("training into a folder")
    display.begin(10_000, 0)
    for step in range(1, 10_001):
        display.show_step(step, 1.0, 1.0)
    display.show_evaluation(10_000, {"loss": 1.0}, best=True)
    display.end()
    output = capsys.readouterr().err
    assert "step 10,000: loss 1.0000  (best)" in output and len(output.splitlines()) < 10
