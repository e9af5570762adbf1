"""Build the tables that ``jumok look`` prints: every head with its kind, every token with the keys it attends to most.

Each head's map is computed only once, and both tables are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from jumok import defaults
from jumok.draw.pooling import PooledMap, pool_patterns
from jumok.lens.capture.head_figure import pool_head
from jumok.lens.capture.model_capture import Capture
from jumok.reporting import Progress

from .head_kinds import HeadKind, classify_heads
from .head_profile import HeadProfiler
from .head_statistics import merge_into_words
from .weight_checks import check_weights

Words = list[tuple[str, range]] | None  # the words of an axis with their tokens; None where there are none
Row = dict[str, Any]  # one row of a table, as for JSON


@runtime_checkable
class SideLabels(Protocol):
    """Labels for the positions of each side: "source", and "target" of an encoder-decoder."""

    def get_labels(self, side: str) -> list[str]:
        """Return the label of each position of a side."""

    def get_words(self, side: str) -> Words:
        """Return the words of a side; tokens that belong to none are left out."""


class LabelledWeights(NamedTuple):
    """A head's weights with the labels of both axes."""

    weights: Float[Tensor, "query key"]
    queries: list[str]
    keys: list[str]


class TableRows(NamedTuple):
    """A row for each head, and a row for each token."""

    heads: list[Row]
    tokens: list[Row]


def build_table_rows(
    capture: Capture,
    labels: SideLabels,
    sites: Sequence[str],
    *,
    tokens: Sequence[int] = (),
    profiler: HeadProfiler | None = None,
    heads: Mapping[str, Sequence[int]] | None = None,
    top: int = defaults.TOP_SOURCES,
    by_words: bool = False,
    progress: Progress | None = None,
) -> TableRows:
    """Build a row for each head and a row for each token.

    ``tokens`` are the ids of the text, if the model reads nothing else; ``heads`` selects heads by site; ``profiler``
    classifies heads on further texts too; ``top`` keys are listed for each token.
    """
    head_rows: list[Row] = []
    tables: dict[tuple[str, int], _SourceTable] = {}  # by side and number of queries
    for number, site in enumerate(sites):
        layer = capture.sites.get_layer(site)
        kinds = classify_self_attention_heads(capture, labels, site, tokens, profiler)
        for index in range(capture.attentions[site].heads) if heads is None else heads[site]:
            on_repeats = None if profiler is None else profiler.on_repeats.get((site, index))
            head_rows.append(_build_head_row(capture, site, index, kinds.get(index), on_repeats))
            weights, queries, keys = label_weights(capture, labels, site, index, by_words)
            sides = capture.sites.get_sides(site)
            # a table for the source and one for the target; the windows of an image have fewer queries
            table = tables.setdefault((sides.queries, len(queries)), _SourceTable(queries, sides.queries, top))
            table.add_head(weights, keys, sides.keys, layer, index)
        if progress is not None:
            progress(number + 1, len(sites))
    return TableRows(head_rows, [row for table in tables.values() for row in table.build_rows()])


def label_weights(
    capture: Capture, labels: SideLabels, site: str, head: int, by_words: bool = False
) -> LabelledWeights:
    """Return a head's weights with the labels of both axes."""
    weights = capture.weights(site, head).float().cpu()
    sides = capture.sites.get_sides(site)
    queries, keys = labels.get_labels(sides.queries), labels.get_labels(sides.keys)
    if by_words:
        query_words, key_words = labels.get_words(sides.queries), labels.get_words(sides.keys)
        weights = merge_into_words(weights, _list_token_ranges(query_words), _list_token_ranges(key_words))
        queries = queries if query_words is None else [text for text, _ in query_words]
        keys = keys if key_words is None else [text for text, _ in key_words]
    return LabelledWeights(weights, _fit_labels(queries, weights.shape[0]), _fit_labels(keys, weights.shape[1]))


def pool_labelled_head(
    capture: Capture,
    labels: SideLabels,
    site: str,
    head: int,
    limit: int,
    *,
    by_words: bool = False,
    first_apart: bool = False,
) -> PooledMap:
    """Return a head's map for a figure, with labels and with at most ``limit`` rows and columns."""
    if by_words:
        weights, queries, keys = label_weights(capture, labels, site, head, by_words)
        return pool_patterns(weights.double().numpy(), queries, keys, limit, first_apart=first_apart)
    attention, sides = capture.attentions[site], capture.sites.get_sides(site)
    queries = _fit_labels(labels.get_labels(sides.queries), attention.queries)
    keys = _fit_labels(labels.get_labels(sides.keys), attention.keys)
    return pool_head(capture, site, head, queries, keys, limit, first_apart=first_apart)


def _list_token_ranges(words: Words) -> list[range] | None:
    return None if words is None else [tokens for _, tokens in words]


def _fit_labels(labels: list[str], count: int) -> list[str]:
    """Return the labels, or numbers if there is not one label per position."""
    return labels if len(labels) == count else [str(index) for index in range(count)]


def classify_self_attention_heads(
    capture: Capture,
    labels: SideLabels,
    site: str,
    tokens: Sequence[int],
    profiler: HeadProfiler | None,
    rows: Tensor | None = None,
) -> dict[int, HeadKind]:
    """Classify the heads of a self-attention, by all rows or some; empty for other attentions."""
    attention, sides = capture.attentions[site], capture.sites.get_sides(site)
    queries = labels.get_labels(sides.queries)
    # the windows of an image have fewer positions than the image
    if sides.queries != sides.keys or not attention.queries == len(queries) == attention.keys:
        return {}
    if profiler is not None:
        kinds = profiler.classify_on_text(capture, tokens, site, rows)
    else:
        kinds = classify_heads(capture, list(range(len(queries))), sites=[site], queries=rows)
    return {kind.head: kind for kind in kinds}


def _build_head_row(capture: Capture, site: str, head: int, kind: HeadKind | None, on_repeats: HeadKind | None) -> Row:
    check = check_weights(capture, site, head)
    row: Row = {"layer": capture.sites.get_layer(site), "head": head, "sums": check.sums, "future": check.future}
    row["entropy"] = float(torch.special.entr(capture.weights(site, head).float()).sum(-1).mean())
    if kind is not None:
        row |= {"kind": kind.name, "entropy": kind.entropy, "distance": kind.distance}
        row |= {"scores": _drop_missing(kind.scores), "kind_without_first": kind.name_without_first}
        row["scores_without_first"] = _drop_missing(kind.scores_without_first)
    if on_repeats is not None:
        row |= {"kind_on_repeats": on_repeats.name, "scores_on_repeats": _drop_missing(on_repeats.scores)}
    return row


def _drop_missing(scores: dict[str, float | None]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if score is not None}


class _SourceTable:
    """For every query, the keys with the largest weights in any head, and the head of each."""

    def __init__(self, labels: list[str], side: str, top: int) -> None:
        self._labels, self._side, self._top = labels, side, top
        self._weights: list[Tensor] = []
        self._keys: list[Tensor] = []
        self._heads: list[tuple[int | str, int, list[str], str]] = []  # layer, head, the labels and side of the keys

    def add_head(self, weights: Tensor, key_labels: list[str], key_side: str, layer: int | str, head: int) -> None:
        """Add the weights of one head; only the ``top`` largest of each row are kept."""
        largest, keys = weights.topk(min(self._top, weights.shape[1]))
        missing = self._top - largest.shape[1]
        self._weights.append(torch.nn.functional.pad(largest, (0, missing)))
        self._keys.append(torch.nn.functional.pad(keys, (0, missing)))
        self._heads.append((layer, head, key_labels, key_side))

    def build_rows(self) -> list[Row]:
        """Return a row for each query."""
        weights, keys = torch.cat(self._weights, 1), torch.cat(self._keys, 1)
        order = weights.argsort(dim=1, descending=True, stable=True)
        rows: list[Row] = []
        for query, label in enumerate(self._labels):
            sources = self._list_sources(weights[query], keys[query], order[query])
            rows.append({"token": query, "side": self._side, "label": label, "sources": sources})
        return rows

    def _list_sources(self, weights: Tensor, keys: Tensor, order: Tensor) -> list[Row]:
        """Return the keys of one query with the largest weights, each once."""
        sources: dict[tuple[int, str], Row] = {}  # by key and its side
        for column in order.tolist():
            weight, key = float(weights[column]), int(keys[column])
            if weight <= 0 or len(sources) == self._top:
                break
            layer, head, labels, side = self._heads[column // self._top]
            source = {"key": key, "side": side, "label": labels[key], "weight": weight, "layer": layer, "head": head}
            sources.setdefault((key, side), source)
        return list(sources.values())
