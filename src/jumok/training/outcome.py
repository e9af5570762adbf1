"""The outcome of a training run: its folder, its metrics, its report and its model."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.tensor_files import read_json
from jumok.models import Model

from .resume import Progress

REPORT_FILE = "report.json"


@dataclass(frozen=True)
class Outcome:
    """How a training run ended.

    Attributes:
        signal: The signal that stopped the run before its last step; None if it was not stopped.
        trained: False if the run was already complete, so that there was nothing to do.
    """

    folder: Path
    progress: Progress
    metrics: dict[str, float]
    signal: signal.Signals | None = None
    trained: bool = True

    @property
    def report(self) -> dict[str, Any]:
        """The content of report.json, about the best model; empty if the run is not complete."""
        return read_json(self.folder, REPORT_FILE) if (self.folder / REPORT_FILE).is_file() else {}

    @cached_property
    def model(self) -> Model:
        """The best model of the run, loaded on first use."""
        return self.load().model

    def load(self) -> Loaded:
        """Load the best model of the run, with its tokenizer and config, as ``jumok.load`` does."""
        return load(self.folder)
