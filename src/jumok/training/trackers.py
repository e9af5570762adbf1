"""Send metrics to TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from jumok.errors import TrainingError

from .progress import ProgressDisplay


class Tracker(ABC):
    """Base class of trackers. They open when training starts: the run's folder must be empty until then.

    Args:
        module: The module of the tracker's package.
        extra: The name of the optional dependency that installs it.
    """

    def __init__(self, name: str, module: str, extra: str) -> None:
        try:
            self.module: Any = importlib.import_module(module)
        except ImportError:
            raise TrainingError(
                f'{name} needs a package that is not installed; run: pip install "jumok[{extra}]"'
            ) from None

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Start tracking."""

    @abstractmethod
    def send(self, step: int, metrics: dict[str, float]) -> None:
        """Send the metrics of a step."""

    @abstractmethod
    def close(self) -> None:
        """Stop tracking."""


class TensorBoard(Tracker):
    """Writes TensorBoard events into the run's folder."""

    def __init__(self) -> None:
        super().__init__("TensorBoard", "torch.utils.tensorboard", "tensorboard")

    def open(self, folder: Path) -> None:
        self.writer = self.module.SummaryWriter(str(folder / "tensorboard"))

    def send(self, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    """Sends metrics to Weights & Biases, as a run of the project "jumok"."""

    def __init__(self) -> None:
        super().__init__("Weights & Biases", "wandb", "wandb")

    def open(self, folder: Path) -> None:
        self.run = self.module.init(project="jumok", name=folder.name, dir=str(folder))

    def send(self, step: int, metrics: dict[str, float]) -> None:
        self.run.log(metrics, step=step)

    def close(self) -> None:
        self.run.finish()


class TrackedDisplay(ProgressDisplay):
    """Shows progress on another display, and sends all metrics to trackers."""

    def __init__(self, display: ProgressDisplay, folder: Path, trackers: list[Tracker]) -> None:
        self.display = display
        self.folder = folder
        self.trackers = trackers

    def begin(self, steps: int, done: int) -> None:
        for tracker in self.trackers:
            tracker.open(self.folder)
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
        for tracker in self.trackers:
            tracker.close()

    def _send(self, step: int, metrics: dict[str, float]) -> None:
        for tracker in self.trackers:
            tracker.send(step, metrics)


def add_trackers(display: ProgressDisplay, folder: Path, tensorboard: bool, wandb: bool) -> ProgressDisplay:
    """Return a display that also sends metrics to the selected trackers."""
    kinds = [kind for kind, is_selected in ((TensorBoard, tensorboard), (WeightsAndBiases, wandb)) if is_selected]
    return TrackedDisplay(display, folder, [kind() for kind in kinds]) if kinds else display
