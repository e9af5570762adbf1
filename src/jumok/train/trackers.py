"""TensorBoard and Weights & Biases, where somebody asked for them: what is shown is also sent there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .errors import TrainingError
from .show import Show


class Tracked(Show):
    """Shows as ``inner`` does, and hands every number to ``send(step, numbers)``."""

    def __init__(self, inner: Show, sends: list[Any]) -> None:
        self.inner, self.sends = inner, sends

    def begin(self, steps: int, done: int) -> None:
        self.inner.begin(steps, done)

    def step(self, step: int, loss: float, speed: float) -> None:
        self.inner.step(step, loss, speed)
        self._send(step, {"loss": loss, "targets_per_second": speed})

    def evaluation(self, step: int, found: dict[str, float], best: bool) -> None:
        self.inner.evaluation(step, found, best)
        self._send(step, {f"evaluation/{name}": value for name, value in found.items()})

    def say(self, line: str, passing: bool = False) -> None:
        self.inner.say(line, passing)

    def end(self) -> None:
        self.inner.end()

    def _send(self, step: int, numbers: dict[str, float]) -> None:
        for send in self.sends:
            send(step, numbers)


def trackers(folder: Path, tensorboard: bool, wandb: bool, show: Show) -> Show:
    """``show``, and whatever else was asked for."""
    sends: list[Any] = []
    if tensorboard:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise TrainingError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def write(step: int, numbers: dict[str, float]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        sends.append(write)
    if wandb:
        try:
            client = importlib.import_module("wandb")
        except ImportError:
            raise TrainingError("--wandb needs the package wandb: pip install wandb") from None
        run: Any = client.init(project="jumok", name=folder.name, dir=str(folder))
        sends.append(lambda step, numbers: run.log(numbers, step=step))
    return Tracked(show, sends) if sends else show
