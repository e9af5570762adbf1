"""Helpers for training tests: a GPT of one block that learns to count, a display that stops a run, no plots."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from jumok.checkpoint import Loaded, run_folder
from jumok.models import Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.training import Batch, Settings, TrainingTask, compute_token_loss, select_part
from jumok.training.displays import ProgressDisplay

CONFIG = GPTConfig(vocabulary=16, length=12, width=16, layers=1, heads=2, hidden=32, dropout=0.1)

# float32: on a GPU, "auto" may be bfloat16, whose gradients depend on how a batch is divided
SETTINGS = {
    "steps": 12, "batch": 8, "evaluate_every": 4, "save_every": 4, "log_every": 1, "warmup": 2, "precision": "float32",
}  # fmt: skip

PLOTS = (
    "jumok.draw.save_line_plot",
    "jumok.recipes.toys.sequences.save_heat_map",
    "jumok.recipes.toys.induction.save_head_grid",
    "jumok.recipes.images.image_arrays.save_gallery",
)


def toy(config: GPTConfig = CONFIG, **fields: Any) -> TrainingTask:
    """Return a task: sequences that count up by one from a random number. ``fields`` change its settings."""
    settings = Settings.from_json({**SETTINGS, **fields})
    torch.manual_seed(settings.seed)
    model = GPT(config)

    def batches(step: int, part: int, parts: int) -> Batch:
        generator = torch.Generator().manual_seed(settings.seed * 1009 + step)
        first = torch.randint(0, 16, (settings.batch,), generator=generator)
        rows = (first[:, None] + torch.arange(9)) % 16
        rows = rows[select_part(list(range(settings.batch)), part, parts)]
        return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())

    def evaluate(model: Model) -> dict[str, float]:
        rows = (torch.arange(16)[:, None] + torch.arange(9)) % 16
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        torch.rand(3)  # an evaluation that draws random numbers must not change the training
        return {"loss": float(loss)}

    return TrainingTask(Loaded(model), settings, batches, compute_token_loss, evaluate)


class StopAt(ProgressDisplay):
    """A display that sends a signal to this process at a step."""

    def __init__(self, step: int, number: int = signal.SIGTERM) -> None:
        self.step, self.number = step, number

    def show_step(self, step: int, loss: float, speed: float) -> None:
        if step == self.step:
            os.kill(os.getpid(), self.number)


def new_run(folder: Path) -> Path:
    """Create the folder of a run."""
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True)
    (folder / run_folder.RUN_FILE).write_text("{}")
    return folder


def copy_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_equal(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Assert that two models have the same parameters, bit for bit."""
    assert actual.keys() == expected.keys()
    for name in expected:
        assert torch.equal(actual[name], expected[name]), name


def assert_same_parameters(model: nn.Module, expected: nn.Module) -> None:
    """Assert that two models have the same parameters, bit for bit."""
    assert_equal(copy_parameters(model), copy_parameters(expected))


@contextlib.contextmanager
def skip_plots() -> Iterator[None]:
    """Train without drawing plots, which take longer than a small model's training; plots have tests of their own."""

    def skip(*arguments: Any, **options: Any) -> Path:
        return Path()

    with pytest.MonkeyPatch.context() as patch:
        for name in PLOTS:
            patch.setattr(name, skip)
        yield
