"""Experiments: the lessons of textbooks as small programs with numbers. ``jumok experiment`` runs them.

Every experiment is a function of plain values and a seed that returns a ``Result``. Where a lesson does not
come out at some size or for some seed, the result says so.

    >>> "scale" in EXPERIMENTS
    True
    >>> run_experiment("scale", quick=True, seed=0).numbers["rows"][0].head_width
    4
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from jumok.bilingual_text import Text, Texts
from jumok.errors import ArgumentError
from jumok.lab.result import Result, Table
from jumok.reporting import Progress

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Table", "Text", "run_experiment"]


@dataclass(frozen=True)
class Experiment:
    """An experiment that can be run by name. Its module is imported only when it runs.

    Attributes:
        module: The module in this package; it has the settings ``FULL``, and its texts in a TOML file.
        function: The function that returns the result; its defaults are the small settings.
    """

    module: str
    function: str

    @property
    def summary(self) -> Text:
        """One line for the list of experiments."""
        return Texts(str(Path(__file__).with_name(self.module)))("summary")


EXPERIMENTS = {
    "scale": Experiment("score_scale", "measure_scale"),
    "mask": Experiment("mask_removal", "measure_mask_removal"),
    "heads": Experiment("head_count", "measure_head_counts"),
    "parts": Experiment("parts", "measure_parts"),
    "fused": Experiment("fused_calls", "measure_fused_calls"),
    "positions": Experiment("position_encodings", "measure_positions"),
    "recurrence": Experiment("recurrence", "measure_recurrence"),
    "long": Experiment("long_mixings", "measure_long_mixings"),
    "images": Experiment("image_heads", "measure_images"),
    "relations": Experiment("head_relations", "measure_relations"),
    "listening": Experiment("listening", "measure_listening"),
    "retrieval": Experiment("retrieval", "measure_retrieval"),
}


def run_experiment(name: str, *, quick: bool = False, seed: int = 0, progress: Progress | None = None) -> Result:
    """Run an experiment by name with its own settings; its function takes other ones.

    Args:
        quick: Whether to use the small settings, which take about a minute at most.
        seed: The seed of all random numbers; the same seed gives the same numbers, except for measured times.
    """
    if name not in EXPERIMENTS:
        raise ArgumentError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    module = import_module(f"{__name__}.{experiment.module}")
    settings = {} if quick else module.FULL
    outcome: Result = getattr(module, experiment.function)(**settings, seed=seed, progress=progress)
    return outcome
