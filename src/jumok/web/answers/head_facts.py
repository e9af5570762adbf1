"""Classify the heads of a run for the page: kind, entropy and distance of each."""

from __future__ import annotations

from typing import Any

import torch

from jumok.data.tokenizers.token_labels import group_words
from jumok.errors import ArgumentError
from jumok.lens import Lens
from jumok.lens.describe.head_profile import HeadProfiler
from jumok.lens.describe.table_rows import build_table_rows
from jumok.models import Model
from jumok.web.forward_pass import Progress, watch_taps
from jumok.web.inspection import Inspection

from .site_maps import WindowMap

MAX_POSITIONS = 4096  # the complete maps of longer inputs would need gigabytes
PROFILER = "profiler"  # under which an opened model keeps it


def classify_heads(inspection: Inspection, progress: Progress) -> list[dict[str, Any]]:
    """Classify every head of the clean pass; the profile of a model on built-in texts is computed once.

    Args:
        inspection: The run.
        progress: Called with the finished and all steps and the stage; an exception that it raises stops it.

    Raises:
        ArgumentError: If the input is too long.
    """
    longest = max(max(site_map.queries, site_map.keys) for site_map in inspection.clean.maps)
    if longest > MAX_POSITIONS:
        raise ArgumentError(f"heads are classified on inputs of at most {MAX_POSITIONS:,} positions, not {longest:,}")
    rows = _build_rows(inspection, progress)
    capture = inspection.clean.capture
    heads = [(site, head) for site, name in enumerate(inspection.sites) for head in range(capture.heads(name))]
    return [
        {
            "site": site,
            "head": head,
            "kind": row.get("kind", ""),
            "kind_without_first": row.get("kind_without_first", ""),
            "kind_on_repeats": row.get("kind_on_repeats", ""),
            "entropy": _measure_entropy(inspection, site, head, row["entropy"]),
            "distance": row.get("distance"),
        }
        for (site, head), row in zip(heads, rows, strict=True)
    ]


def _build_rows(inspection: Inspection, progress: Progress) -> list[dict[str, Any]]:
    """Return a row for each head, as ``jumok look`` prints them."""
    opened, labelled = inspection.opened, inspection.labelled
    total = 2 * len(inspection.sites)
    progress(0, total, "classifying")
    if PROFILER not in opened.kept_results and labelled.tokens and not labelled.target:
        with opened.explain_failures(), opened.lens, watch_taps(lambda: progress(0, total, "classifying")):
            opened.kept_results[PROFILER] = _profile_heads(opened.lens)
    rows, _ = build_table_rows(
        inspection.clean.capture,
        labelled,
        inspection.sites,
        tokens=labelled.tokens,
        profiler=opened.kept_results.get(PROFILER),
        top=1,
        progress=lambda done, count: progress(count + done, 2 * count, "classifying"),
    )
    return rows


def _profile_heads(lens: Lens) -> HeadProfiler | None:
    """Return the profile of the heads on repeated tokens and on sentences; None if the model cannot read them."""
    tokenizer = lens.tokenizer
    if tokenizer is None:
        return None

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        token_ids = tokenizer.encode(text)
        # special tokens around the text do not belong to a word
        words = [positions for word, positions in group_words(tokenizer, token_ids) if word in text]
        return token_ids, words

    try:
        return HeadProfiler(lens, tokenize_words)
    except Exception:  # random tokens or the sentences may not fit a model of transformers
        if isinstance(lens.model, Model):
            raise
        return None


def _measure_entropy(inspection: Inspection, site: int, head: int, of_first_window: float) -> float:
    """Return the mean entropy of a head's rows; inside windows over the rows of all windows."""
    site_map = inspection.clean.maps[site]
    if not isinstance(site_map, WindowMap):
        return of_first_window
    weights = site_map.read_tile(head, slice(0, site_map.queries), slice(0, site_map.keys))
    return float(torch.special.entr(weights).sum(-1).mean())
