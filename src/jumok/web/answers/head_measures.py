"""Measure heads for the page: the kind, entropy and distance of each, and the effects of heads and edges."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens import Effect, Effects, Lens, effect
from jumok.lens.describe.head_kinds import sample_queries
from jumok.lens.describe.head_profile import build_profiler
from jumok.lens.describe.table_rows import classify_self_attention_heads
from jumok.lens.effects.edge_effects import Edge, measure_exactly
from jumok.lens.effects.edit_runner import EditRunner
from jumok.lens.lens_inputs import explain_failures
from jumok.reporting import Progress, StageProgress
from jumok.web import asks, messages
from jumok.web.asks import check_index
from jumok.web.inspection import Inspection
from jumok.web.maps.site_maps import WindowMap
from jumok.web.opened_model import Pass, watch_taps

from .effect_metrics import choose_metric

MAX_POSITIONS = 4096  # of inputs whose heads are classified
MAX_COMPLETE_QUERIES = 1024  # heads of longer inputs are classified by a sample of their rows
SAMPLED_QUERIES = 384  # 99 of 100 heads have the same kind as by all rows (bench/results/page.md)
CUT_HEADS = 24  # heads in which one cell is cut


def describe_kinds(inspection: Inspection, progress: StageProgress) -> messages.Kinds:
    """Classify every head of the clean pass, of a long input by a sample of its queries; the profile of a model on
    built-in texts is computed once."""
    longest = max(max(site_map.queries, site_map.keys) for site_map in inspection.clean.maps)
    if longest > MAX_POSITIONS:
        raise ArgumentError(f"heads are classified on inputs of at most {MAX_POSITIONS:,} positions, not {longest:,}")
    opened, labelled, capture = inspection.opened, inspection.labelled, inspection.clean.capture
    count = len(inspection.sites)
    progress(0, 2 * count, "classifying")
    with explain_failures(opened.model), opened.lens, watch_taps(lambda: progress(0, 2 * count, "classifying")):
        reads_text = labelled.tokens and not labelled.target
        profiler = opened.remember("profiler", None, lambda: build_profiler(opened.lens) if reads_text else None)

    facts: list[messages.HeadFacts] = []
    sampled: int | None = None
    for site, name in enumerate(inspection.sites):
        progress(count + site, 2 * count, "classifying")
        queries = capture.attentions[name].queries
        rows = sample_queries(queries, SAMPLED_QUERIES) if queries > MAX_COMPLETE_QUERIES else None
        if rows is not None:
            sampled = len(rows)
        kinds = classify_self_attention_heads(capture, labelled, name, labelled.tokens, profiler, rows)
        for head in range(capture.heads(name)):
            kind = kinds.get(head)
            on_repeats = None if profiler is None else profiler.on_repeats.get((name, head))
            facts.append(
                messages.HeadFacts(
                    site,
                    head,
                    "" if kind is None else kind.name,
                    "" if kind is None else kind.name_without_first,
                    "" if on_repeats is None else on_repeats.name,
                    _measure_entropy(inspection, site, head, rows) if kind is None else kind.entropy,
                    None if kind is None else kind.distance,
                )
            )
    return messages.Kinds(facts, sampled)


def _measure_entropy(inspection: Inspection, site: int, head: int, rows: Tensor | None) -> float:
    """Return the mean entropy of a head's rows, or of some of them; inside windows of the rows of all windows."""
    site_map = inspection.clean.maps[site]
    if rows is not None and not isinstance(site_map, WindowMap):
        weights = site_map.attention.read_rows(0, head, rows)[0].float().cpu()
    else:
        weights = site_map.read_tile(head, slice(0, site_map.queries), slice(0, site_map.keys))
    return float(torch.special.entr(weights).sum(-1).mean())


def measure_effects(inspection: Inspection, ask: asks.EffectAsk, progress: StageProgress) -> messages.Effects:
    """Measure effects on the clean prediction as ``jumok effect`` does, of the model without edits."""
    opened, labelled = inspection.opened, inspection.labelled
    started_at = time.perf_counter()
    counts = (0, 0)

    def report(done: int, total: int) -> None:
        nonlocal counts
        counts = (done, total)
        progress(done, total, "measuring")

    progress(0, 0, "measuring")
    metric = choose_metric(inspection, ask.metric)
    # a batch of edits may take seconds, so a cancellation is noticed at every attention
    with explain_failures(opened.model), watch_taps(lambda: progress(*counts, "measuring")):
        if ask.over == "cell":
            with Lens(opened.loaded) as lens:
                runner = EditRunner(lens, labelled.positional, labelled.named, metric)
                rows = _measure_cell(inspection, ask, runner, report)
            measured, clean = runner.metric, runner.clean_value
        else:
            by = ask.by if ask.over == "heads" else "zero"
            effects = effect(
                opened.loaded,
                *labelled.positional,
                metric=metric,
                over=ask.over,
                by=by,
                progress=report,
                **labelled.named,
            )
            rows = [_describe_effect(inspection, effects, row) for row in effects]
            measured, clean = effects.metric, effects.clean
    seconds = time.perf_counter() - started_at
    return messages.Effects(ask.over, ask.by, measured.describe(opened.loaded.tokenizer), clean, seconds, rows)


def list_cell_weights(
    inspection: Inspection, shown: Pass, site: int, query: int, key: int
) -> list[messages.CellWeight]:
    """Return the weight of a cell in every head that reads the same sequences as an attention, the largest first."""
    check_index("site", site, len(inspection.sites))
    check_index("query", query, shown.maps[site].queries)
    check_index("key", key, shown.maps[site].keys)
    sites = shown.capture.sites
    sides, shape = sites.get_sides(inspection.sites[site]), (shown.maps[site].queries, shown.maps[site].keys)
    rows = []
    for index, (name, site_map) in enumerate(zip(inspection.sites, shown.maps, strict=True)):
        if sites.get_sides(name) != sides or (site_map.queries, site_map.keys) != shape:
            continue
        for head in range(site_map.heads):
            weight = float(site_map.read_tile(head, slice(query, query + 1), slice(key, key + 1))[0, 0])
            rows.append(messages.CellWeight(index, head, weight))
    return sorted(rows, key=lambda row: -row.weight)


def _measure_cell(
    inspection: Inspection, ask: asks.EffectAsk, runner: EditRunner, progress: Progress
) -> list[messages.EffectRow]:
    """Measure the effect of cutting a cell in each of the heads that give it most weight."""
    if ask.site is None or ask.query is None or ask.key is None:
        raise ArgumentError("the effects of a cell need its site, its query and its key")
    weights = list_cell_weights(inspection, inspection.clean, ask.site, ask.query, ask.key)
    heads = [row for row in weights if row.weight > 0][:CUT_HEADS]
    for row in heads:
        if isinstance(inspection.clean.maps[row.site], WindowMap):
            raise ArgumentError(
                f"{inspection.sites[row.site]} attends inside windows, and the page cannot cut their cells"
            )
    edges = {(row.site, row.head): Edge(inspection.sites[row.site], row.head, ask.query, ask.key) for row in heads}
    effects = measure_exactly(runner, list(edges.values()), progress)
    return [
        messages.EffectRow(
            site=row.site,
            head=row.head,
            query=ask.query,
            key=ask.key,
            weight=row.weight,
            effect=effects[edges[row.site, row.head]],
            control_mean=None,
            control_low=None,
            control_high=None,
            rank=None,
            of=None,
        )
        for row in heads
    ]


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
