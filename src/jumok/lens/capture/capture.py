"""What a lens kept of one run: exact weights of any head, tile by tile, whatever the length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.sites import Sites, is_integer

from .recorder import CapturedAttention

AT_ONCE = 2**22  # weights that are in memory together while a map is pooled


class Overview(NamedTuple):
    """A whole map made small: the largest weight and the mean weight of every cell's patch."""

    largest: Tensor
    mean: Tensor


class AttendedKey(NamedTuple):
    """Where a token looks: which key, how much, and which head looks so."""

    key: int
    weight: float
    layer: str
    head: int


class Capture:
    """``sites``: the attentions of the model, in order, by the model's own module names."""

    def __init__(
        self,
        attentions: dict[str, CapturedAttention],
        kept: dict[str, Tensor],
        output: Any,
        edits: tuple[Any, ...],
        labels: Sequence[str] | None = None,
        name: str = "run",
    ) -> None:
        self.attentions, self.kept, self.output, self.edits = attentions, kept, output, edits
        self.labels, self.name = labels, name
        self._map: tuple[tuple[str, int, int], Tensor] | None = None
        self.sites = Sites(list(attentions))
        counts = {count for one in attentions.values() for count in (one.queries, one.keys)}
        if labels is not None and attentions and len(labels) not in counts:
            raise ArgumentError(f"there are {len(labels)} labels, but {min(counts)} places; give one for each")

    def __repr__(self) -> str:
        heads = sum(one.heads for one in self.attentions.values())
        places = max((one.queries for one in self.attentions.values()), default=0)
        edits = f", {len(self.edits)} edits" if self.edits else ""
        return f"<Run of {places:,} positions: {heads} heads of {len(self.attentions)} attentions{edits}>"

    @property
    def logits(self) -> Tensor:
        logits: Tensor | None = getattr(self.output, "logits", None)
        if logits is None and self.output is not None:
            raise ArgumentError(
                f"this model gives no logits; what it gave is in run.output, {type(self.output).__name__}"
            )
        if logits is None:
            raise ArgumentError("this run kept no logits; ask for them: lens.run(..., logits=True)")
        return logits

    @property
    def bytes(self) -> int:
        """How much memory the captured queries, keys and log-sum-exps take."""
        return sum(one.bytes for one in self.attentions.values())

    def attention(self, layer: int | str) -> CapturedAttention:
        return self.attentions[self.sites.find(layer)]

    def heads(self, layer: int | str) -> int:
        return self.attention(layer).heads

    def weights(self, layer: int | str, head: int, batch: int = 0) -> Tensor:
        """[query, key], exact."""
        return self.tile(layer, head, slice(None), slice(None), batch)

    def row(self, layer: int | str, head: int, query: int, batch: int = 0) -> Tensor:
        """[key]: where one token looks."""
        found = self.attention(layer)
        _check_place(query, found.queries, f"{found.site} has", "queries")
        return self.tile(layer, head, slice(query, query + 1), slice(None), batch)[0]

    def tile(self, layer: int | str, head: int, queries: slice, keys: slice, batch: int = 0) -> Tensor:
        """[query, key] of these rows and columns, exact; nothing else is computed."""
        found = self.attention(layer)
        _check_place(head, found.heads, f"{found.site} has", "heads")
        _check_place(batch, found.batch, "the run has", "texts")
        for part in (queries, keys):
            if not isinstance(part, slice) or part.step not in (None, 1):
                raise ArgumentError(f"a tile is made of rows and columns that stand together, not of {part}")
        with torch.no_grad():
            return self._kept_map(found, head, queries, keys, batch)

    def _kept_map(self, found: CapturedAttention, head: int, queries: slice, keys: slice, batch: int) -> Tensor:
        """The last whole map is kept: whoever asks for one head in many ways waits for it once."""
        key = found.site, head, batch
        rows = range(*queries.indices(found.queries))
        if self._map is not None and self._map[0] == key:
            return self._map[1][queries, keys]
        if len(rows) < found.queries or range(*keys.indices(found.keys)) != range(found.keys):
            return found.tile(batch, head, queries, keys)
        whole = found.tile(batch, head, queries, keys)
        if whole.numel() <= AT_ONCE:
            self._map = key, whole
        return whole

    def overview(self, layer: int | str, head: int, size: int = 512, batch: int = 0) -> Overview:
        """The whole map, pooled to at most ``size`` x ``size``; never n x n numbers in memory."""
        if size < 1:
            raise ArgumentError(f"an overview has at least one cell; {size} was asked for")
        found = self.attention(layer)
        rows, columns = min(size, found.queries), min(size, found.keys)
        row_ends, column_ends = _ends(found.queries, rows), _ends(found.keys, columns)
        column_of = torch.repeat_interleave(torch.arange(columns), torch.tensor(_sizes(column_ends)))
        device = found.calls[0].query.device
        column_of = column_of.to(device)
        counts = torch.tensor(_sizes(column_ends), dtype=torch.float32, device=device)
        largest, mean = torch.zeros(rows, columns, device=device), torch.zeros(rows, columns, device=device)
        step = max(1, AT_ONCE // max(1, found.keys))
        begin = 0
        for row, end in enumerate(row_ends):
            for first in range(begin, end, step):
                last = min(first + step, end)
                tile = self.tile(layer, head, slice(first, last), slice(None), batch).float()
                summed = tile.new_zeros(columns).index_add_(0, column_of, tile.sum(0))
                mean[row] += summed
                largest[row] = largest[row].scatter_reduce(0, column_of, tile.amax(0), "amax")
            mean[row] /= counts * (end - begin)
            begin = end
        return Overview(largest, mean)

    def top(self, query: int, k: int = 3, layer: int | str | None = None, batch: int = 0) -> list[AttendedKey]:
        """Where this token looks: the ``k`` keys with the largest weight in any head, of all layers or one; for each
        key the head that looks there most."""
        best: dict[int, AttendedKey] = {}
        for site in [self.sites.find(layer)] if layer is not None else self.sites.stack():
            found = self.attentions[site]
            for head in range(found.heads):
                row = self.row(site, head, query, batch)
                values, keys = row.topk(min(k, len(row)))
                for weight, key in zip(values.tolist(), keys.tolist(), strict=True):
                    if weight > 0 and (key not in best or weight > best[key].weight):
                        best[key] = AttendedKey(key, weight, site, head)
        return sorted(best.values(), key=lambda one: -one.weight)[:k]

    def mean_weights(self, layer: int | str, batch: int = 0) -> Tensor:
        """[query, key]: the mean over a layer's heads."""
        found = self.attention(layer)
        return torch.stack([self.weights(layer, head, batch) for head in range(found.heads)]).mean(0)

    def plot(self, layer: int | str, head: int, batch: int = 0) -> Any:
        """The map as a picture, for a notebook."""
        from .notebook_figure import HeadFigure

        return HeadFigure(self, layer, head, batch)


def _check_place(given: object, there: int, where: str, what: str) -> None:
    if not is_integer(given) or not 0 <= int(given) < there:  # type: ignore[call-overload]
        raise ArgumentError(f"{where} {there} {what}, counted from 0; {given!r} is none of them")


def _ends(length: int, parts: int) -> list[int]:
    """Where each of so many parts ends; they differ by one at most."""
    return [length * (part + 1) // parts for part in range(parts)]


def _sizes(ends: list[int]) -> list[int]:
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
