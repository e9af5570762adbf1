"""Send metrics to TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from jumok.errors import TrainingError

from .displays import ProgressDisplay


class TrackedDisplay(ProgressDisplay):
    """Shows progress on another display, and sends all metrics to TensorBoard, to Weights & Biases or to both.

    They open when training starts: the run's folder must be empty until then.
    """

    def __init__(self, display: ProgressDisplay, folder: Path, tensorboard: bool, wandb: bool) -> None:
        self.display = display
        self.folder = folder
        self.tensorboard = _import("TensorBoard", "torch.utils.tensorboard", "tensorboard") if tensorboard else None
        self.wandb = _import("Weights & Biases", "wandb", "wandb") if wandb else None
        self.writer: Any = None
        self.run_of_wandb: Any = None

    def begin(self, steps: int, done: int) -> None:
        if self.tensorboard is not None:
            self.writer = self.tensorboard.SummaryWriter(str(self.folder / "tensorboard"))
        if self.wandb is not None:
            self.run_of_wandb = self.wandb.init(project="jumok", name=self.folder.name, dir=str(self.folder))
        self.display.begin(steps, done)

    def show_step(self, step: int, loss: float, speed: float) -> None:
        self.display.show_step(step, loss, speed)
        self._send(step, {"loss": loss, "targets_per_second": speed})

    def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
        self.display.show_evaluation(step, metrics, best)
        self._send(step, {f"evaluation/{name}": value for name, value in metrics.items()})

    def show_message(self, line: str, transient: bool = False) -> None:
        self.display.show_message(line, transient)

    def end(self) -> None:
        self.display.end()
        if self.writer is not None:
            self.writer.close()
        if self.run_of_wandb is not None:
            self.run_of_wandb.finish()

    def _send(self, step: int, metrics: dict[str, float]) -> None:
        if self.writer is not None:
            for name, value in metrics.items():
                self.writer.add_scalar(name, value, step)
            self.writer.flush()
        if self.run_of_wandb is not None:
            self.run_of_wandb.log(metrics, step=step)


def _import(name: str, module: str, extra: str) -> Any:
    """Return the module of a tracker."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise TrainingError(
            f'{name} needs a package that is not installed; run: pip install "jumok[{extra}]"'
        ) from None


def add_trackers(display: ProgressDisplay, folder: Path, tensorboard: bool, wandb: bool) -> ProgressDisplay:
    """Return a display that also sends metrics to the selected trackers."""
    return TrackedDisplay(display, folder, tensorboard, wandb) if tensorboard or wandb else display
