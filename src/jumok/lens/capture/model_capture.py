"""A capture, the record of one forward pass; it computes the exact weights of any head, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.sites import Sites, is_integer

from .captured_attention import CapturedAttention

if TYPE_CHECKING:
    from .head_figure import HeadFigure

MAX_WEIGHTS = 2**22  # weights that are in memory at once while a map is pooled


class Overview(NamedTuple):
    """A head's map of weights, pooled to fewer cells.

    Attributes:
        largest: The largest weight of each patch ``[row, column]``.
        mean: The mean weight of each patch ``[row, column]``.
    """

    largest: Tensor
    mean: Tensor


class AttendedKey(NamedTuple):
    """A key that a query attends to.

    Attributes:
        key: The index of the key.
        weight: Its weight.
        layer: The name of the site ("blocks.1.attention"), which every ``layer`` argument accepts. ``Effect.layer``,
            in contrast, is a number where the model has a single stack.
        head: The head that has this weight.
    """

    key: int
    weight: float
    layer: str
    head: int


class Capture:
    """The record of one forward pass.

    Attributes:
        attentions: The recorded attentions by site, in execution order.
        activations: The tensors named by ``keep``, by full site name ("blocks.0.attention.output").
        output: The model's output if it was requested by ``logits=True``, else None.
        edits: The edits of this forward pass.
        labels: The labels of the positions, or None.
        name: The name by which a ``Patch`` refers to this capture in JSON.
        sites: The names of the attentions, in execution order.
    """

    def __init__(
        self,
        attentions: dict[str, CapturedAttention],
        activations: dict[str, Tensor],
        output: Any,
        edits: tuple[Any, ...],
        labels: Sequence[str] | None = None,
        name: str = "run",
    ) -> None:
        """Create a capture; users get one from ``Lens.run``.

        Args:
            attentions: The recorded attentions by site, in execution order.
            activations: Additional tensors, by full site name.
            output: The model's output, or None.
            edits: The edits of the forward pass.
            labels: The label of each position, or None.
            name: The name of the capture.

        Raises:
            ArgumentError: If the number of labels matches no attention.
        """
        self.attentions, self.activations, self.output, self.edits = attentions, activations, output, edits
        self.labels, self.name = labels, name
        self.sites = Sites(list(attentions))
        self._cached_map: tuple[tuple[str, int, int], Tensor] | None = None
        counts = {count for attention in attentions.values() for count in (attention.queries, attention.keys)}
        if labels is not None and attentions and len(labels) not in counts:
            raise ArgumentError(f"there are {len(labels)} labels for {min(counts)} positions; give one per position")

    def __repr__(self) -> str:
        heads = sum(attention.heads for attention in self.attentions.values())
        positions = max((attention.queries for attention in self.attentions.values()), default=0)
        edits = f", {len(self.edits)} edits" if self.edits else ""
        return f"<Capture of {positions:,} positions: {heads} heads of {len(self.attentions)} attentions{edits}>"

    @property
    def logits(self) -> Tensor:
        """The model's logits.

        Raises:
            ArgumentError: If they were not requested, or the model has none.
        """
        if self.output is None:
            raise ArgumentError("this capture has no logits; request them with lens.run(..., logits=True)")
        logits: Tensor | None = getattr(self.output, "logits", None)
        if logits is None:
            raise ArgumentError(
                f"this model has no logits; its output is in capture.output ({type(self.output).__name__})"
            )
        return logits

    @property
    def bytes(self) -> int:
        """The memory of the captured queries, keys and log-sum-exps, in bytes."""
        return sum(attention.bytes for attention in self.attentions.values())

    def attention(self, layer: int | str) -> CapturedAttention:
        """Return the recorded attention of a layer.

        Args:
            layer: The layer's number, or its site name where the model has several stacks.
        """
        return self.attentions[self.sites.find(layer)]

    def heads(self, layer: int | str) -> int:
        """Return the number of heads of a layer.

        Args:
            layer: The layer's number or site name.
        """
        return self.attention(layer).heads

    def weights(self, layer: int | str, head: int, batch: int = 0) -> Float[Tensor, "query key"]:
        """Compute a head's attention weights ``[query, key]``, exactly.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0.
            batch: The batch row.
        """
        return self.tile(layer, head, slice(None), slice(None), batch)

    def row(self, layer: int | str, head: int, query: int, batch: int = 0) -> Float[Tensor, " key"]:
        """Compute the weights of one query, ``[key]``.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0.
            query: The index of the query, counted from 0.
            batch: The batch row.
        """
        attention = self.attention(layer)
        _check_index(query, attention.queries, attention.site, "queries")
        return self.tile(layer, head, slice(query, query + 1), slice(None), batch)[0]

    def tile(
        self, layer: int | str, head: int, queries: slice, keys: slice, batch: int = 0
    ) -> Float[Tensor, "query key"]:
        """Compute a rectangle of a head's weights, exactly; nothing else is computed.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0.
            queries: The rows, a slice with step 1.
            keys: The columns, a slice with step 1.
            batch: The batch row.
        """
        attention = self.attention(layer)
        _check_index(head, attention.heads, attention.site, "heads")
        _check_index(batch, attention.batch, "this capture", "batch rows")
        for part in (queries, keys):
            if not isinstance(part, slice) or part.step not in (None, 1):
                raise ArgumentError(f"a tile needs slices with step 1 for its rows and columns, not {part}")
        with torch.no_grad():
            return self._compute_or_reuse(attention, head, queries, keys, batch)

    def _compute_or_reuse(
        self, attention: CapturedAttention, head: int, queries: slice, keys: slice, batch: int
    ) -> Tensor:
        """Compute a tile. The last complete map is cached, for callers that read one head several times."""
        cache_key = attention.site, head, batch
        if self._cached_map is not None and self._cached_map[0] == cache_key:
            return self._cached_map[1][queries, keys]
        tile = attention.tile(batch, head, queries, keys)
        rows = range(*queries.indices(attention.queries))
        columns = range(*keys.indices(attention.keys))
        is_complete = rows == range(attention.queries) and columns == range(attention.keys)
        if is_complete and tile.numel() <= MAX_WEIGHTS:
            self._cached_map = cache_key, tile
        return tile

    def overview(self, layer: int | str, head: int, size: int = 512, batch: int = 0) -> Overview:
        """Pool a head's map to at most ``size`` x ``size`` cells without storing all of its weights.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0.
            size: The largest number of rows and columns.
            batch: The batch row.
        """
        if size < 1:
            raise ArgumentError(f"size must be at least 1, not {size}")
        attention = self.attention(layer)
        rows, columns = min(size, attention.queries), min(size, attention.keys)
        row_ends = _split_evenly(attention.queries, rows)
        device = attention.calls[0].query.device
        column_sizes = torch.tensor(_measure_parts(_split_evenly(attention.keys, columns)), device=device)
        column_of_key = torch.repeat_interleave(torch.arange(columns, device=device), column_sizes)

        largest = torch.zeros(rows, columns, device=device)
        mean = torch.zeros(rows, columns, device=device)
        step = max(1, MAX_WEIGHTS // max(1, attention.keys))
        begin = 0
        for row, end in enumerate(row_ends):
            for first in range(begin, end, step):
                queries = slice(first, min(first + step, end))
                tile = self.tile(layer, head, queries, slice(None), batch).float()
                mean[row] += tile.new_zeros(columns).index_add_(0, column_of_key, tile.sum(0))
                largest[row] = largest[row].scatter_reduce(0, column_of_key, tile.amax(0), "amax")
            mean[row] /= column_sizes.float() * (end - begin)
            begin = end
        return Overview(largest, mean)

    def top(self, query: int, k: int = 3, layer: int | str | None = None, batch: int = 0) -> list[AttendedKey]:
        """Find the keys that a query attends to most.

        Args:
            query: The index of the query, counted from 0.
            k: The largest number of keys.
            layer: Only the heads of this layer; default: all layers.
            batch: The batch row.

        Returns:
            The ``k`` keys with the largest weight in any head, each with the head where its weight is largest.
        """
        best: dict[int, AttendedKey] = {}
        for site in self.sites.names if layer is None else [self.sites.find(layer)]:
            for head in range(self.attentions[site].heads):
                row = self.row(site, head, query, batch)
                weights, keys = row.topk(min(k, len(row)))
                for weight, key in zip(weights.tolist(), keys.tolist(), strict=True):
                    if weight > 0 and (key not in best or weight > best[key].weight):
                        best[key] = AttendedKey(key, weight, site, head)
        return sorted(best.values(), key=lambda attended: -attended.weight)[:k]

    def mean_weights(self, layer: int | str, batch: int = 0) -> Float[Tensor, "query key"]:
        """Compute the mean of the weights ``[query, key]`` over a layer's heads.

        Args:
            layer: The layer's number or site name.
            batch: The batch row.
        """
        heads = range(self.attention(layer).heads)
        return torch.stack([self.weights(layer, head, batch) for head in heads]).mean(0)

    def plot(self, layer: int | str, head: int, batch: int = 0) -> HeadFigure:
        """Draw a head's map; a notebook displays the returned figure, and its ``save(path)`` writes it.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0.
            batch: The batch row.
        """
        from .head_figure import HeadFigure

        return HeadFigure(self, layer, head, batch)


def _check_index(index: int, count: int, owner: str, kind: str) -> None:
    if not is_integer(index) or not 0 <= index < count:
        raise ArgumentError(f"{owner} has {count} {kind}, counted from 0; {index!r} is not one of them")


def _split_evenly(length: int, parts: int) -> list[int]:
    """Split a length into parts whose sizes differ by at most 1, and return the end of each part."""
    return [length * (part + 1) // parts for part in range(parts)]


def _measure_parts(ends: list[int]) -> list[int]:
    """Return the sizes of parts from their ends."""
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
