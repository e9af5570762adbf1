"""Measure whether heads and edges matter: ``jumok.effect``.

    effects = jumok.effect("smollm2", text, metric=LogitDifference(" Mary", " John"), over="heads")

An effect is metric(edited) - metric(clean). All heads are measured. There are too many edges for that: a gradient
estimates all of them, and those with the largest estimates or weights are then measured exactly, together with random
edges of similar weight. An edge's rank among the latter says how unusual its effect is. It is no test of significance:
the largest of thousands of edges rank first because they were chosen. ``Effects.beyond_controls`` says how many exceed
all their controls, and how many random edges would: 1 in 21 with 20 controls.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from jumok import defaults
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture
from jumok.lens.edits.ablation import ABLATION_METHODS
from jumok.lens.edits.apply_edits import ReplaceHeadPerRow
from jumok.lens.edits.edit_base import TapCall
from jumok.lens.edits.edit_types import Ablate
from jumok.lens.lens import Lens, LensModel
from jumok.lens.sites import SOURCE
from jumok.reporting import Progress, Report

from .edge_effects import measure_edges
from .edit_runner import EditRunner
from .effect_table import Effect, Effects, rank_effects
from .metrics import Metric, MetricFunction

OVER = ("heads", "edges")


def effect(
    model: LensModel,
    *inputs: Any,
    metric: Metric | MetricFunction | None = None,
    over: str = "heads",
    by: str = "zero",
    verify: int | None = defaults.VERIFIED_EDGES,
    controls: int = defaults.CONTROL_EDGES,
    layers: int | str | Iterable[int | str] | None = None,
    seed: int = 0,
    source: Capture | None = None,
    progress: Progress | None = None,
    tokenizer: object = None,
    report: Report | None = None,
    **settings: Any,
) -> Effects:
    """Measure the effect of every head, or of the most important edges, on one text.

    Args:
        model: A model, or the name or folder of one, as for ``Lens``.
        inputs: The model's inputs, a single text, as for ``Lens.run``.
        metric: A metric of jumok.lens.effects.metrics, or a function of the model's output for the text: it receives
            the logits ``[position, token]`` (``[class]`` of a classifier; numbers or vectors of other models) as a
            tensor, and returns one finite number. Default: the log-probability of the model's own answer.
        over: "heads" or "edges".
        by: How heads are ablated: "zero", "mean" or "resample" (see ``Ablate``).
        verify: How many edges to measure exactly, by gradient and again by weight; None measures every edge.
        controls: How many random edges of similar weight each edge is compared with.
        layers: Only this layer or these layers; default: all.
        seed: The seed of the random edges and of "resample".
        source: A capture that "mean" and "resample" read, made with keep="output"; default: the text itself.
        progress: Called with the number of measured edits and their total.
        tokenizer: The tokenizer of texts, as for ``Lens``.
        report: Receives a sentence before a model of transformers is compared with itself without the lens.
        settings: Further keyword arguments of the model's ``forward``.

    Returns:
        The effects, the largest first.

    Raises:
        ArgumentError: If an argument is invalid or the metric does not fit the model.

    >>> import jumok
    >>> effects = jumok.effect("tiny", "the cat sat; the cat")
    >>> len(effects), effects[0].rank
    (4, 1)
    >>> jumok.effect("tiny", "the cat", metric=lambda logits: logits[-1].max())
    <Effects of 4 heads on the metric <lambda>: 4.9354>
    """
    _check_options(over, by, source, verify, controls)
    progress = progress or (lambda done, total: None)
    with Lens(model, tokenizer, report=report) as lens:
        runner = EditRunner(lens, inputs, settings, metric)
        sites = runner.capture.sites.names
        if layers is not None:
            selected = [layers] if isinstance(layers, int | str) else layers
            sites = [runner.capture.sites.find(layer) for layer in selected]
        if not sites:
            raise ArgumentError("layers is empty; omit it to measure all layers")
        sampled: tuple[Effect, ...] = ()
        if over == "heads":
            rows = measure_heads(runner, sites, Ablate(by=by, seed=seed, source=source), progress)
        else:
            rows, sampled = measure_edges(runner, sites, verify, controls, seed, progress)
    attentions = runner.capture.attentions
    return Effects(
        over,
        runner.metric,
        runner.clean_value,
        rows,
        by=by if over == "heads" else None,
        seed=seed,
        source=None if source is None else source.name,
        model=os.fspath(model) if isinstance(model, str | os.PathLike) else type(lens.model).__name__,
        sampled=sampled,
        every=over == "heads" or verify is None,
        sites=tuple(attentions),
        head_counts=tuple(attention.heads for attention in attentions.values()),
    )


def _check_options(over: str, by: str, source: Capture | None, verify: int | None, controls: int) -> None:
    if over not in OVER:
        raise ArgumentError(f"over must be one of {', '.join(OVER)}, not {over!r}")
    if by not in ABLATION_METHODS:
        raise ArgumentError(f"by must be one of {', '.join(ABLATION_METHODS)}, not {by!r}")
    if over == "edges" and by != "zero":
        raise ArgumentError(f'by={by!r} applies only to heads, not to edges; use over="heads"')
    if source is not None and by == "zero":
        raise ArgumentError('a source is read only by by="mean" and by="resample"')
    if controls < 1:
        raise ArgumentError(f"controls must be at least 1, not {controls}")
    if verify is not None and verify < 1:
        raise ArgumentError(f"verify must be at least 1, or None to measure every edge; not {verify}")


def measure_heads(runner: EditRunner, sites: Sequence[str], ablation: Ablate, progress: Progress) -> tuple[Effect, ...]:
    """Measure the effect of ablating every head of these attentions, many heads in one batch."""
    rows: list[Effect] = []
    capture = runner.capture
    total = sum(capture.attentions[site].heads for site in sites)
    for site in sites:
        attention, layer = capture.attentions[site], capture.sites.get_layer(site)
        heads = range(attention.heads)
        position = runner.metric.measured_position
        # the metric reads positions of the target, where there is one
        is_encoder = capture.sites.has_target and capture.sites.get_sides(site).queries == SOURCE
        if position is None or attention.batch != 1 or is_encoder:
            position = None
        elif not 0 <= position < attention.queries:
            position = max(0, attention.queries + min(position, -1))
        output = capture.activations[f"{site}.output"]  # [part, head, query, width]
        for first in range(0, len(heads), runner.rows_per_batch):
            batch = heads[first : first + runner.rows_per_batch]
            calls = {head: TapCall(f"{site}.output", (head,), 0, capture.attentions) for head in batch}
            replacements = [ablation.replace_output(output[:, [head]], call)[:, 0] for head, call in calls.items()]
            listener = ReplaceHeadPerRow(site, torch.tensor(batch), torch.stack(replacements))
            differences = runner.measure(listener, site, len(batch)).tolist()
            for head, difference in zip(batch, differences, strict=True):
                edit = replace(ablation, layer=layer, head=head)
                weight, looks_at = None, None  # from the measured position
                if position is not None:
                    row = capture.row(site, head, position)
                    weight, looks_at = float(row.max()), int(row.argmax())
                rows.append(Effect(layer, head, difference, edit, weight=weight, looks_at=looks_at))
            progress(len(rows), total)
    return rank_effects(rows)
