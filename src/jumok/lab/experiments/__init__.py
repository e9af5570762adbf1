"""Experiments: the lessons of textbooks as small programs with numbers. ``jumok experiment`` runs them.

Every experiment is a function of plain values and a seed that returns an ``ExperimentResult``. Where a lesson does not
come out at some size or for some seed, the result says so.

    >>> sorted(EXPERIMENTS)[-1]
    'scale'
    >>> run_experiment("scale", quick=True, seed=0).rows[0].head_width
    4
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text

from .experiment_result import ExperimentResult, Progress, Table

__all__ = ["EXPERIMENTS", "Experiment", "ExperimentResult", "Table", "Text", "run_experiment"]


@dataclass(frozen=True)
class Experiment:
    """An experiment that can be run by name. Its module is imported only when it runs.

    Attributes:
        module: The module in this package; it has the settings ``QUICK`` and ``FULL``.
        summary: One line for the list of experiments.
    """

    module: str
    function: str
    summary: Text


EXPERIMENTS = {
    "scale": Experiment(
        "score_scale",
        "measure_scale",
        Text("why scores are divided by sqrt(d_k)", "점수를 sqrt(d_k)로 나누는 이유"),
    ),
    "mask": Experiment(
        "mask_removal",
        "measure_mask_removal",
        Text("what a model does without the causal mask", "인과 마스크를 없애면 일어나는 일"),
    ),
    "heads": Experiment(
        "head_count",
        "measure_head_counts",
        Text("what the number of heads costs and changes", "헤드 수의 비용과 효과"),
    ),
    "positions": Experiment(
        "position_encodings",
        "measure_positions",
        Text("what position encodings tell, and how far they reach", "위치 인코딩의 역할과 한계"),
    ),
    "recurrence": Experiment(
        "recurrence.recurrence_experiment",
        "measure_recurrence",
        Text("why attention replaced recurrence", "어텐션이 순환 신경망을 대신한 이유"),
    ),
    "long": Experiment(
        "long_mixings",
        "measure_long_mixings",
        Text("ways past n^2 for long texts, and how far they see", "긴 텍스트에서 n^2를 피하는 방법과 그 도달 거리"),
    ),
    "listening": Experiment(
        "listening.listening_experiment",
        "measure_listening",
        Text("which heads of a speech model listen in time", "음성 모델에서 시간에 맞춰 듣는 헤드"),
    ),
    "retrieval": Experiment(
        "retrieval.retrieval_experiment",
        "measure_retrieval",
        Text("find passages, or attend to all of a long text", "긴 텍스트: 구절을 찾기, 또는 전부 보기"),
    ),
}


def run_experiment(
    name: str, *, quick: bool = False, seed: int = 0, progress: Progress | None = None
) -> ExperimentResult:
    """Run an experiment by name with its own settings; its function takes other ones.

    Args:
        name: One of ``EXPERIMENTS``.
        quick: Whether to use the small settings, which take about a minute at most.
        seed: The seed of all random numbers; the same seed gives the same numbers, except for measured times.
        progress: Called with the finished and the total number of steps; default: nothing.

    Raises:
        ArgumentError: If there is no such experiment.
    """
    if name not in EXPERIMENTS:
        raise ArgumentError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    module = import_module(f"{__name__}.{experiment.module}")
    settings = module.QUICK if quick else module.FULL
    outcome: ExperimentResult = getattr(module, experiment.function)(**settings, seed=seed, progress=progress)
    return outcome
