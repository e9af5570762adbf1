"""Patch parts of one input into another: one part at a time, in a sweep, or several together."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from jumok.errors import ArgumentError
from jumok.lens import Capture, Patch
from jumok.lens.capture.captured_attention import WeightTable
from jumok.lens.edits.edit_base import KEPT_WORDS
from jumok.lens.effects.edit_runner import EditRunner
from jumok.lens.effects.metrics import extract_answer
from jumok.lens.effects.patch_sweep import measure_patches
from jumok.lens.lens_inputs import explain_failures
from jumok.lens.sites import SOURCE
from jumok.web import messages
from jumok.web.asks import PatchAsk, SweepAsk, check_index
from jumok.web.inspection import Inspection
from jumok.web.messages import Reply
from jumok.web.opened_model import OpenedModel, watch_taps
from jumok.web.work_queue import Job

from .contrast import Contrast, compute_shares, list_candidates, open_contrast, require_metric, run_input, select_scores
from .contrast_code import write_patches, write_sweep


def answer_sweep(inspection: Inspection, ask: SweepAsk, job: Job, other: OpenedModel) -> Reply:
    """Patch every part of the first input into the second one, one at a time."""
    started_at = time.perf_counter()
    contrast = open_contrast(inspection, ask, job, other)
    described, metric = require_metric(inspection, contrast, ask, job)
    counts = (0, 0)

    def report(done: int, total: int) -> None:
        nonlocal counts
        counts = (done, total)
        job.report(done, total, "measuring")

    job.report(0, 0, "measuring")
    source = _get_source(inspection, contrast, ask.part, job)
    partners = _choose_sweep_partners(inspection, contrast, ask.part)
    with explain_failures(other.model), other.lens, watch_taps(lambda: job.report(*counts, "measuring")):
        runner = EditRunner(other.lens, contrast.labelled.positional, dict(contrast.labelled.named), metric)
        layers = measure_patches(runner, source, ask.part, partners=partners, progress=report)
    columns = max(len(layer.effects) for layer in layers)
    table = torch.full((len(layers), columns), torch.nan)
    for row, layer in zip(table, layers, strict=True):
        row[: len(layer.effects)] = layer.effects.float()
        if ask.part != "attention" and len(layer.effects) == len(contrast.labelled.source):
            row[: _count_equal_positions(inspection, contrast)] = 0  # both texts have the same vectors there
    body = messages.Sweep(
        part=ask.part,
        layers=[messages.SweepLayer(layer.name, inspection.sites.index(layer.site)) for layer in layers],
        columns=columns,
        metric=described,
        seconds=time.perf_counter() - started_at,
        code=write_sweep(inspection, contrast, metric, ask.part),
    )
    return body, (table.numpy().astype("<f4").tobytes(),)


def answer_patch(inspection: Inspection, ask: PatchAsk, job: Job, other: OpenedModel) -> Reply:
    """Patch several parts of the first input into the second one together."""
    contrast = open_contrast(inspection, ask, job, other)
    described, metric = require_metric(inspection, contrast, ask, job)
    edits = [_create_patch(inspection, contrast, patch, job) for patch in ask.patches]
    labelled = contrast.labelled
    value, scores = described.corrupted, None if contrast.scores is None else contrast.scores[1]
    if edits:
        output = run_input(other, labelled, job, edits=edits, logits=True).output
        tensor = extract_answer(output).tensor
        value = float(metric(tensor, tensor)[0])
        if scores is not None:
            scores = select_scores(tensor, contrast.position)
    candidates = list_candidates(inspection, contrast)
    shares = None if scores is None else compute_shares(other, scores)
    probabilities = [] if shares is None else [float(shares[candidate.id]) for candidate in candidates]
    return messages.Patched(value, probabilities, write_patches(inspection, contrast, metric, edits)), ()


def _get_source(inspection: Inspection, contrast: Contrast, part: str, job: Job) -> Capture:
    """Return a capture of the first input that kept what patches of a part read."""
    capture = inspection.clean.capture
    if any(name.endswith(f".{KEPT_WORDS[part]}") for name in capture.activations):
        return capture
    if part not in contrast.sources:
        contrast.sources[part] = run_input(inspection.opened, inspection.labelled, job, keep=KEPT_WORDS[part])
    return contrast.sources[part]


def _count_equal_positions(inspection: Inspection, contrast: Contrast) -> int:
    """Return at how many first positions both inputs have the same vectors: equal tokens of a causal model."""
    if contrast.opened is not inspection.opened or contrast.labelled.target:
        return 0
    for site_map in contrast.second.maps:
        call = site_map.attention.calls[0]
        ahead = None if isinstance(call, WeightTable) or call.mask is None else call.mask.band[1]
        if ahead is None or ahead > 0:
            return 0
    first, second = inspection.labelled.tokens, contrast.labelled.tokens
    shortest = min(len(first), len(second))
    return next((index for index in range(shortest) if first[index] != second[index]), shortest)


def _choose_sweep_partners(inspection: Inspection, contrast: Contrast, part: str) -> dict[str, list[int | None]] | None:
    """Return the partners of the positions to patch; None: each its own. Equal vectors need not be patched."""
    equal = 0 if part == "attention" else _count_equal_positions(inspection, contrast)
    is_own = all(partners == list(range(len(partners))) for partners in contrast.partners.values())
    if is_own and not equal:
        return None
    partners = dict(contrast.partners)
    partners[SOURCE] = [*[None] * equal, *partners[SOURCE][equal:]]
    return partners


def _create_patch(inspection: Inspection, contrast: Contrast, patch: messages.PatchedPart, job: Job) -> Patch:
    sites = contrast.second.capture.sites
    site = sites.names[check_index("site", patch.site, len(sites.names))]
    if (patch.head is not None) != (patch.part == "attention"):
        raise ArgumentError("a patch of an attention needs a head, and no other one has a head")
    if patch.head is not None:
        check_index("head", patch.head, contrast.second.capture.heads(site))
    side = sites.get_sides(site).queries
    partners = contrast.partners[side]
    count = contrast.second.maps[patch.site].queries
    if count != len(partners):
        partners = list(range(count))
    positions = range(len(partners)) if patch.position is None else [check_index("position", patch.position, count)]
    pairs = [(position, partner) for position in positions if (partner := partners[position]) is not None]
    if not pairs:
        raise ArgumentError("this token has no partner in the first text, so there is nothing to patch")
    edit = Patch(
        layer=sites.get_layer(site),
        head=patch.head,
        part=patch.part,
        source=_get_source(inspection, contrast, patch.part, job),
    )
    if patch.position is None and all(position == partner for position, partner in pairs) and len(pairs) == count:
        return edit
    chosen, source = (tuple(positions) for positions in zip(*pairs, strict=True))
    return replace(edit, positions=chosen, source_positions=None if chosen == source else source)
