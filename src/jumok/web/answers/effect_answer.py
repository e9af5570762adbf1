"""Measure the effects of heads and edges on the clean prediction, for the page."""

from __future__ import annotations

import time
from typing import Any

from jumok.lens import Effect, Effects, effect
from jumok.lens.effects import metrics
from jumok.lens.effects.metrics import Metric
from jumok.tasks.labelled_input import LabelledInput
from jumok.web.forward_pass import Progress, watch_taps
from jumok.web.inspection import Inspection


def measure_effects(inspection: Inspection, over: str, progress: Progress) -> dict[str, Any]:
    """Measure effects as ``jumok effect`` does, of the model without edits.

    Args:
        over: "heads" or "edges".
        progress: Called with the finished and all steps and the stage; an exception that it raises stops it.

    Raises:
        ArgumentError: If the model does not support it.
    """
    opened, labelled = inspection.opened, inspection.labelled
    started_at = time.perf_counter()
    counts = (0, 0)

    def report(done: int, total: int) -> None:
        nonlocal counts
        counts = (done, total)
        progress(done, total, "measuring")

    progress(0, 0, "measuring")
    # a batch of edits may take seconds, so a cancellation is noticed at every attention
    with opened.explain_failures(), watch_taps(lambda: progress(*counts, "measuring")):
        effects = effect(
            opened.loaded,
            *labelled.positional,
            metric=choose_metric(labelled),
            over=over,
            progress=report,
            **labelled.named,
        )
    return {
        "over": over,
        "metric": metrics.name_tokens(str(effects.metric), opened.loaded.tokenizer),
        "clean": effects.clean,
        "seconds": time.perf_counter() - started_at,
        "rows": [_describe_effect(inspection, effects, row) for row in effects],
    }


def choose_metric(labelled: LabelledInput) -> Metric | None:
    """Return the metric of an input: that of ``jumok effect`` without options; None is the default of ``effect``."""
    if labelled.target and labelled.inputs[1].is_floating_point():
        return metrics.Value(-1)
    if labelled.answer_length:
        return metrics.LogProbability(int(labelled.inputs[1][0, labelled.prompt]), labelled.prompt - 1)
    return None


def _describe_effect(inspection: Inspection, effects: Effects, row: Effect) -> dict[str, Any]:
    controls = row.control_effects
    is_edge = effects.over == "edges"
    return {
        "site": inspection.sites.index(inspection.clean.capture.sites.find(row.layer)),
        "head": row.head,
        "query": row.query,
        "key": row.key,
        "weight": row.weight if is_edge else None,
        "effect": row.effect,
        "control_mean": sum(controls) / len(controls) if controls else None,
        "control_low": min(controls, default=None),
        "control_high": max(controls, default=None),
        "rank": row.rank,
        "of": row.of,
    }
