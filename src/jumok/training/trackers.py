"""TensorBoard and Weights & Biases, where somebody asked for them: what is shown is also sent there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from jumok.errors import TrainingError

from .progress import ProgressDisplay


class Tracker:
    """Opened when the training begins: before that, the run's folder must stay empty."""

    def open(self, folder: Path) -> None: ...

    def send(self, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard(Tracker):
    def __init__(self) -> None:
        try:
            self.module: Any = importlib.import_module("torch.utils.tensorboard")
        except ImportError:
            raise TrainingError("--tensorboard needs the package tensorboard: pip install tensorboard") from None

    def open(self, folder: Path) -> None:
        self.writer = self.module.SummaryWriter(str(folder / "tensorboard"))

    def send(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    def __init__(self) -> None:
        try:
            self.module: Any = importlib.import_module("wandb")
        except ImportError:
            raise TrainingError("--wandb needs the package wandb: pip install wandb") from None

    def open(self, folder: Path) -> None:
        self.run = self.module.init(project="jumok", name=folder.name, dir=str(folder))

    def send(self, step: int, numbers: dict[str, float]) -> None:
        self.run.log(numbers, step=step)

    def close(self) -> None:
        self.run.finish()


class TrackedDisplay(ProgressDisplay):
    """Shows as ``inner`` does, and hands every number to the trackers."""

    def __init__(self, inner: ProgressDisplay, folder: Path, sent_to: list[Tracker]) -> None:
        self.inner, self.folder, self.sent_to = inner, folder, sent_to

    def begin(self, steps: int, done: int) -> None:
        for one in self.sent_to:
            one.open(self.folder)
        self.inner.begin(steps, done)

    def step(self, step: int, loss: float, speed: float) -> None:
        self.inner.step(step, loss, speed)
        self._send(step, {"loss": loss, "targets_per_second": speed})

    def evaluation(self, step: int, found: dict[str, float], best: bool) -> None:
        self.inner.evaluation(step, found, best)
        self._send(step, {f"evaluation/{name}": value for name, value in found.items()})

    def show_message(self, line: str, transient: bool = False) -> None:
        self.inner.show_message(line, transient)

    def end(self) -> None:
        self.inner.end()
        for one in self.sent_to:
            one.close()

    def _send(self, step: int, numbers: dict[str, float]) -> None:
        for one in self.sent_to:
            one.send(step, numbers)


def add_trackers(folder: Path, tensorboard: bool, wandb: bool, show: ProgressDisplay) -> ProgressDisplay:
    """``show``, and whatever else was asked for."""
    sent_to: list[Tracker] = [TensorBoard()] if tensorboard else []
    sent_to += [WeightsAndBiases()] if wandb else []
    return TrackedDisplay(show, folder, sent_to) if sent_to else show
