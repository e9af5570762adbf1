"""Measure heads for the page: the kind, entropy and distance of each, and the effects of heads and edges."""

from __future__ import annotations

import time
from typing import Any

import torch

from jumok.errors import ArgumentError
from jumok.lens import Effect, Effects, effect
from jumok.lens.describe.head_profile import build_profiler
from jumok.lens.describe.table_rows import build_table_rows
from jumok.lens.effects import metrics
from jumok.lens.effects.metrics import Metric
from jumok.lens.lens_inputs import explain_failures
from jumok.reporting import StageProgress
from jumok.tasks.labelled_input import LabelledInput
from jumok.web import messages
from jumok.web.inspection import Inspection
from jumok.web.maps.site_maps import WindowMap
from jumok.web.opened_model import watch_taps

MAX_POSITIONS = 4096  # the complete maps of longer inputs would need gigabytes


def describe_kinds(inspection: Inspection, progress: StageProgress) -> messages.Kinds:
    """Classify every head of the clean pass; the profile of a model on built-in texts is computed once."""
    longest = max(max(site_map.queries, site_map.keys) for site_map in inspection.clean.maps)
    if longest > MAX_POSITIONS:
        raise ArgumentError(f"heads are classified on inputs of at most {MAX_POSITIONS:,} positions, not {longest:,}")
    rows = _build_rows(inspection, progress)
    capture = inspection.clean.capture
    heads = [(site, head) for site, name in enumerate(inspection.sites) for head in range(capture.heads(name))]
    facts = [
        messages.HeadFacts(
            site,
            head,
            row.get("kind", ""),
            row.get("kind_without_first", ""),
            row.get("kind_on_repeats", ""),
            _measure_entropy(inspection, site, head, row["entropy"]),
            row.get("distance"),
        )
        for (site, head), row in zip(heads, rows, strict=True)
    ]
    return messages.Kinds(facts)


def _build_rows(inspection: Inspection, progress: StageProgress) -> list[dict[str, Any]]:
    """Return a row for each head, as ``jumok look`` prints them."""
    opened, labelled = inspection.opened, inspection.labelled
    total = 2 * len(inspection.sites)
    progress(0, total, "classifying")
    with explain_failures(opened.model), opened.lens, watch_taps(lambda: progress(0, total, "classifying")):
        reads_text = labelled.tokens and not labelled.target
        profiler = opened.remember("profiler", None, lambda: build_profiler(opened.lens) if reads_text else None)
    rows, _ = build_table_rows(
        inspection.clean.capture,
        labelled,
        inspection.sites,
        tokens=labelled.tokens,
        profiler=profiler,
        top=1,
        progress=lambda done, count: progress(count + done, 2 * count, "classifying"),
    )
    return rows


def _measure_entropy(inspection: Inspection, site: int, head: int, of_first_window: float) -> float:
    """Return the mean entropy of a head's rows; inside windows over the rows of all windows."""
    site_map = inspection.clean.maps[site]
    if not isinstance(site_map, WindowMap):
        return of_first_window
    weights = site_map.read_tile(head, slice(0, site_map.queries), slice(0, site_map.keys))
    return float(torch.special.entr(weights).sum(-1).mean())


def measure_effects(inspection: Inspection, over: messages.Over, progress: StageProgress) -> messages.Effects:
    """Measure effects on the clean prediction as ``jumok effect`` does, of the model without edits."""
    opened, labelled = inspection.opened, inspection.labelled
    started_at = time.perf_counter()
    counts = (0, 0)

    def report(done: int, total: int) -> None:
        nonlocal counts
        counts = (done, total)
        progress(done, total, "measuring")

    progress(0, 0, "measuring")
    # a batch of edits may take seconds, so a cancellation is noticed at every attention
    with explain_failures(opened.model), watch_taps(lambda: progress(*counts, "measuring")):
        effects = effect(
            opened.loaded,
            *labelled.positional,
            metric=_choose_metric(labelled),
            over=over,
            progress=report,
            **labelled.named,
        )
    return messages.Effects(
        over,
        effects.metric.describe(opened.loaded.tokenizer),
        effects.clean,
        time.perf_counter() - started_at,
        [_describe_effect(inspection, effects, row) for row in effects],
    )


def _choose_metric(labelled: LabelledInput) -> Metric | None:
    """Return the metric of an input: that of ``jumok effect`` without options; None is the default of ``effect``."""
    if labelled.target and labelled.inputs[1].is_floating_point():
        return metrics.Value(-1)
    if labelled.answer_length:
        return metrics.LogProbability(int(labelled.inputs[1][0, labelled.prompt]), labelled.prompt - 1)
    return None


def _describe_effect(inspection: Inspection, effects: Effects, row: Effect) -> messages.EffectRow:
    controls = row.control_effects
    is_edge = effects.over == "edges"
    assert row.head is not None  # the page measures heads and edges
    return messages.EffectRow(
        site=inspection.sites.index(inspection.clean.capture.sites.find(row.layer)),
        head=row.head,
        query=row.query,
        key=row.key,
        weight=row.weight if is_edge else None,
        effect=row.effect,
        control_mean=sum(controls) / len(controls) if controls else None,
        control_low=min(controls, default=None),
        control_high=max(controls, default=None),
        rank=row.rank,
        of=row.of,
    )
