"""A whole run as rows to print: every head with its kind and its checks, every place with where it looks most.

One pass over the layers: a head's map is made once, and everything is read from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from jumok import defaults
from jumok.lens.capture.capture import Capture

from .head_kinds import HeadKind, classify_heads
from .head_profile import HeadProfiler
from .weight_checks import check
from .word_weights import merge_into_words

Words = list[tuple[str, range]] | None


@runtime_checkable
class LabelledAxes(Protocol):
    """Who knows what stands on both sides of an attention: labels of its queries and keys, and their words."""

    def axes(self, site: str) -> tuple[list[str], list[str]]: ...

    def words(self, site: str) -> tuple[Words, Words]: ...


def rows(
    run: Capture,
    sides: LabelledAxes,
    sites: Sequence[str],
    *,
    ids: Sequence[int] = (),
    tried: HeadProfiler | None = None,
    head: int | None = None,
    top: int = defaults.TOP_SOURCES,
    by_words: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(heads, places). ``ids``: the tokens, where a text is all that the model reads."""
    heads: list[dict[str, Any]] = []
    looking: dict[str, _Sources] = {}
    for number, site in enumerate(sites):
        chosen = range(run.attentions[site].heads) if head is None else [head]
        known = _kinds(run, sides, site, ids, tried)
        for one in chosen:
            weights, queries, keys = pattern(run, sides, site, one, by_words)
            kind = known.get(one)
            told = {"layer": run.sites.get_layer(site), "head": one, **check(run, site, one)._asdict()}
            told["entropy"] = float(torch.special.entr(run.weights(site, one).float()).sum(-1).mean())
            if kind is not None:
                told |= {"kind": kind.name, "entropy": kind.entropy, "distance": kind.distance, "scores": _scores(kind)}
            other = None if tried is None else tried.on_repeats.get((site, one))
            if other is not None:
                told |= {"kind_on_repeats": other.name, "scores_on_repeats": _scores(other)}
            heads.append(told)
            # places of one text, whichever layer: an encoder's, a decoder's
            looking.setdefault("\0".join(queries), _Sources(queries, top)).add(weights, keys, told["layer"], one)
        if progress is not None:
            progress(number + 1, len(sites))
    return heads, [entry for some in looking.values() for entry in some.entries()]


def pattern(
    run: Capture, sides: LabelledAxes, site: str, head: int, by_words: bool = False
) -> tuple[Float[Tensor, "query key"], list[str], list[str]]:
    """A head's weights with the labels of both sides, joined to words where asked for."""
    weights = run.weights(site, head).float().cpu()
    queries, keys = sides.axes(site)
    if by_words:
        across, down = sides.words(site)
        places = [None if some is None else [where for _, where in some] for some in (across, down)]
        weights = merge_into_words(weights, *places)
        queries = queries if across is None else [text for text, _ in across]
        keys = keys if down is None else [text for text, _ in down]
    queries = queries if len(queries) == weights.shape[0] else [str(place) for place in range(weights.shape[0])]
    keys = keys if len(keys) == weights.shape[1] else [str(place) for place in range(weights.shape[1])]
    return weights, queries, keys


def _kinds(
    run: Capture, sides: LabelledAxes, site: str, ids: Sequence[int], tried: HeadProfiler | None
) -> dict[int, HeadKind]:
    """Where places look at places of the same text."""
    found, (queries, keys) = run.attentions[site], sides.axes(site)
    if queries is not keys or not found.queries == len(queries) == found.keys:
        return {}
    if tried is not None:
        return {one.head: one for one in tried.on_text(run, ids, site)}
    return {one.head: one for one in classify_heads(run, list(range(len(queries))), sites=[site])}


def _scores(kind: HeadKind) -> dict[str, float]:
    return {name: score for name, score in kind.scores.items() if score is not None}


class _Sources:
    """For every place the keys with the largest weight in any head, and which head looks so."""

    def __init__(self, labels: list[str], top: int) -> None:
        self.labels, self.top = labels, top
        self.values: list[Tensor] = []
        self.keys: list[Tensor] = []
        self.names: list[list[str]] = []
        self.places: list[tuple[int | str, int]] = []

    def add(self, weights: Tensor, keys: list[str], layer: int | str, head: int) -> None:
        # no more than so many of one head can be among the largest of all
        values, places = weights.topk(min(self.top, weights.shape[1]))
        self.values.append(torch.nn.functional.pad(values, (0, self.top - values.shape[1])))
        self.keys.append(torch.nn.functional.pad(places, (0, self.top - places.shape[1])))
        self.names.append(keys)
        self.places.append((layer, head))

    def entries(self) -> list[dict[str, Any]]:
        values, keys = torch.cat(self.values, 1), torch.cat(self.keys, 1)
        order = values.argsort(dim=1, descending=True, stable=True)
        found = []
        for row, label in enumerate(self.labels):
            sources: dict[tuple[int, str], dict[str, Any]] = {}
            for column in order[row].tolist():
                weight, key, place = float(values[row, column]), int(keys[row, column]), column // self.top
                if weight <= 0 or len(sources) == self.top:
                    break
                name, (layer, head) = self.names[place][key], self.places[place]
                told = {"key": key, "label": name, "weight": weight, "layer": layer, "head": head}
                sources.setdefault((key, name), told)
            found.append({"token": row, "label": label, "sources": list(sources.values())})
        return found
