"""Experiment ``retrieval``: answer questions about long texts, by attention to all of it or to what a search finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jumok.errors import ArgumentError
from jumok.lab.experiments.experiment_result import Progress

from .passage_reader import ATTENTIONS
from .reading_cost import measure_reading
from .reading_quality import TESTED, create_reader, measure_quality
from .retrieval_result import RetrievalResult

LENGTHS = (1024, 2048, 4096, 8192, 16384)
QUICK: dict[str, Any] = {"lengths": LENGTHS[:4], "runs": 1, "steps": 300}
FULL: dict[str, Any] = {"lengths": LENGTHS, "runs": 3, "steps": 1000}


def measure_retrieval(
    lengths: Sequence[int] = LENGTHS[:4],
    *,
    runs: int = 1,
    steps: int = 300,
    questions: int = 200,
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> RetrievalResult:
    """Compare six ways to answer a question about a text of many passages: time, memory and right answers.

    Args:
        lengths: The numbers of tokens of the texts whose cost is measured, in increasing order.
        runs: How many readers to train for each attention; each has its own seed.
        questions: The number of held-out questions for each number of passages.
        progress: Called with the finished and the total number of training steps and rounds; default: nothing.

    Raises:
        ArgumentError: If a number is out of range, or bm25s is not installed.
    """
    if min(runs, steps, questions) < 1:
        raise ArgumentError("runs, steps and questions must be at least 1")
    total, done = len(lengths) * (rounds + 1) + len(ATTENTIONS) * runs * steps, 0

    def report_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    costs, search = measure_reading(lengths, rounds=rounds, seed=seed, after_round=report_step)
    quality, recall = measure_quality(
        range(seed, seed + runs), steps=steps, questions=questions, after_step=report_step
    )
    reach = create_reader("window").reach
    assert reach is not None
    return RetrievalResult(seed, tuple(lengths), costs, search, steps, TESTED, reach, quality, recall)
