"""A capture, the record of one forward pass; it computes the exact weights of any head, tile by tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.draw.pooling import pool_cells, split_axis
from jumok.errors import ArgumentError
from jumok.lens.sites import SOURCE, TARGET, Sites, normalize_index
from jumok.reporting import Progress
from jumok.threads import use_threads

from .captured_attention import CapturedAttention, WeightTable

if TYPE_CHECKING:
    from jumok.lens.restart import ReusableRun

    from .head_figure import HeadFigure

#: the labels of one sequence, or those of the source and of the target
Labels = Sequence[str] | tuple[Sequence[str] | None, Sequence[str] | None] | None
MAX_CACHED_WEIGHTS = 2**22  # of a complete map that is kept


class Overview(NamedTuple):
    """A head's map of weights, pooled to fewer cells.

    Attributes:
        largest: The largest weight of each cell ``[row, column]``.
        mean: The mean weight of each cell ``[row, column]``.
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
        labels: The labels of the positions of the (source) sequence, or None.
        target_labels: The labels of the positions that the decoder of an encoder-decoder reads, or None.
        name: The name by which a ``Patch`` refers to this capture in JSON.
        sites: The names of the attentions, in execution order.
        reusable: What a later run with edits reuses, if it was requested by ``reusable=True``, else None.
    """

    reusable: ReusableRun | None = None

    def __init__(
        self,
        attentions: dict[str, CapturedAttention],
        activations: dict[str, Tensor],
        output: Any,
        edits: tuple[Any, ...],
        labels: Labels = None,
        name: str = "run",
    ) -> None:
        """Create a capture; users get one from ``Lens.run``.

        Args:
            attentions: The recorded attentions by site, in execution order.
            activations: Additional tensors, by full site name.
            output: The model's output, or None.
            edits: The edits of the forward pass.
            labels: The label of each position, or a pair for an encoder-decoder, as in ``Lens.run``; or None.
            name: The name of the capture.

        Raises:
            ArgumentError: If there is not one label for each position.
        """
        self.attentions, self.activations, self.output, self.edits = attentions, activations, output, edits
        self.name = name
        self.sites = Sites(list(attentions))
        self.labels, self.target_labels = split_labels(labels, attentions, self.sites)
        self._cached_map: tuple[tuple[str, int, int], Tensor] | None = None

    def __repr__(self) -> str:
        heads = sum(attention.heads for attention in self.attentions.values())
        positions = max((attention.queries for attention in self.attentions.values()), default=0)
        edits = f", {len(self.edits)} edits" if self.edits else ""
        source = ", maps returned by the model" if self.has_only_maps else ""
        return (
            f"<Capture of {positions:,} positions: {heads} heads of {len(self.attentions)} attentions{edits}{source}>"
        )

    @property
    def has_only_maps(self) -> bool:
        """Whether the weights were returned by a model of transformers that the lens can only look at."""
        return any(isinstance(attention.calls[0], WeightTable) for attention in self.attentions.values())

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

    def label_axes(self, layer: int | str) -> tuple[list[str], list[str]]:
        """Return the labels of a layer's queries and of its keys: target or source, by the side of each axis.

        Args:
            layer: The layer's number or site name.

        Returns:
            Two lists; positions without a label are numbered.
        """
        attention = self.attention(layer)
        by_side = {SOURCE: self.labels, TARGET: self.target_labels}
        sides = self.sites.get_sides(attention.site)
        return (
            label_positions(by_side[sides.queries], attention.query_positions),
            label_positions(by_side[sides.keys], attention.key_positions),
        )

    def heads(self, layer: int | str) -> int:
        """Return the number of heads of a layer.

        Args:
            layer: The layer's number or site name.
        """
        return self.attention(layer).heads

    def weights(self, layer: int | str, head: int | None = None, batch: int = 0) -> Float[Tensor, "*head query key"]:
        """Compute the attention weights of a head, ``[query, key]``, or of all heads, ``[head, query, key]``; exactly.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0, or from the end if negative; default: all heads of the layer.
            batch: The batch row.
        """
        if head is not None:
            return self.tile(layer, head, slice(None), slice(None), batch)
        heads = range(self.attention(layer).heads)
        return torch.stack([self.tile(layer, index, slice(None), slice(None), batch) for index in heads])

    def row(self, layer: int | str, head: int, query: int, batch: int = 0) -> Float[Tensor, " key"]:
        """Compute the weights of one query, ``[key]``.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0, or from the end if negative.
            query: The index of the query, counted from 0, or from the end if negative.
            batch: The batch row.
        """
        attention = self.attention(layer)
        query = normalize_index(query, attention.queries, attention.site, "queries")
        return self.tile(layer, head, slice(query, query + 1), slice(None), batch)[0]

    def tile(
        self, layer: int | str, head: int, queries: slice, keys: slice, batch: int = 0
    ) -> Float[Tensor, "query key"]:
        """Compute a rectangle of a head's weights, exactly; nothing else is computed.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0, or from the end if negative.
            queries: The rows, a slice with step 1.
            keys: The columns, a slice with step 1.
            batch: The batch row.
        """
        attention = self.attention(layer)
        head = normalize_index(head, attention.heads, attention.site, "heads")
        batch = normalize_index(batch, attention.batch, "this capture", "batch rows")
        for part in (queries, keys):
            if not isinstance(part, slice) or part.step not in (None, 1):
                raise ArgumentError(f"a tile needs slices with step 1 for its rows and columns, not {part}")
        with torch.no_grad():
            cache_key = attention.site, head, batch
            cached = self._cached_map  # read once, as another thread may replace it
            if cached is not None and cached[0] == cache_key:
                return cached[1][queries, keys]
            tile = attention.tile(batch, head, queries, keys)
        # the last complete map is kept, for callers that read one head several times
        rows = range(*queries.indices(attention.queries))
        columns = range(*keys.indices(attention.keys))
        is_complete = rows == range(attention.queries) and columns == range(attention.keys)
        if is_complete and tile.numel() <= MAX_CACHED_WEIGHTS:
            self._cached_map = cache_key, tile
        return tile

    def overview(
        self,
        layer: int | str,
        head: int,
        size: int = 512,
        batch: int = 0,
        first_apart: bool = False,
        *,
        rows_per_cell: int | None = None,
        progress: Progress | None = None,
    ) -> Overview:
        """Pool a head's map to at most ``size`` x ``size`` cells without storing all of its weights.

        Args:
            layer: The layer's number or site name.
            head: The head, counted from 0, or from the end if negative.
            size: The largest number of rows and columns.
            batch: The batch row.
            first_apart: Whether the first key, often an attention sink, keeps a column of its own.
            rows_per_cell: Compute only this many rows in the middle of each cell: a preview in a fraction of the time,
                whose largest weights may be too small. Default: all rows, exactly.
            progress: Called with the finished and the total number of rows; an exception that it raises stops the
                computation.
        """
        smallest = 2 if first_apart else 1
        if size < smallest:
            raise ArgumentError(f"size must be at least {smallest}, not {size}")
        if rows_per_cell is not None and rows_per_cell < 1:
            raise ArgumentError(f"rows_per_cell must be at least 1, not {rows_per_cell}")
        attention = self.attention(layer)
        # one thread: these small products gain nothing from a second one, and beside a busy program they lose a lot
        with use_threads(1) if attention.device.type == "cpu" else nullcontext():
            largest, mean = pool_cells(
                lambda queries, keys: self.tile(layer, head, queries, keys, batch).float().cpu().numpy(),
                [*split_axis(attention.queries, size), attention.queries],
                [*split_axis(attention.keys, size, first_apart=first_apart), attention.keys],
                bound_keys=attention.bound_keys,
                complete_rows=attention.needs_full_rows,
                rows_per_cell=rows_per_cell,
                with_mean=True,
                progress=progress,
            )
        return Overview(torch.from_numpy(largest), torch.from_numpy(mean))

    def top(self, query: int, k: int = 3, layer: int | str | None = None, batch: int = 0) -> list[AttendedKey]:
        """Find the keys that a query attends to most.

        Args:
            query: The index of the query, counted from 0, or from the end if negative.
            k: The largest number of keys.
            layer: Only the heads of this layer; default: all layers. Of an encoder-decoder, the default is all layers
                of the decoder, whose queries are positions of the target.
            batch: The batch row.

        Returns:
            The ``k`` keys with the largest weight in any head, each with the head where its weight is largest; a key of
            the source and a key of the target are two keys, even at the same index.
        """
        best: dict[tuple[str, int], AttendedKey] = {}
        query_side = TARGET if self.sites.has_target else SOURCE
        names = [name for name in self.sites.names if self.sites.get_sides(name).queries == query_side]
        for site in names if layer is None else [self.sites.find(layer)]:
            key_side = self.sites.get_sides(site).keys
            for head in range(self.attentions[site].heads):
                row = self.row(site, head, query, batch)
                weights, keys = row.topk(min(k, len(row)))
                for weight, key in zip(weights.tolist(), keys.tolist(), strict=True):
                    largest = best.get((key_side, key))
                    if weight > 0 and (largest is None or weight > largest.weight):
                        best[key_side, key] = AttendedKey(key, weight, site, head)
        return sorted(best.values(), key=lambda attended: -attended.weight)[:k]

    def mean_weights(self, layer: int | str, batch: int = 0) -> Float[Tensor, "query key"]:
        """Compute the mean of the weights ``[query, key]`` over a layer's heads.

        Args:
            layer: The layer's number or site name.
            batch: The batch row.
        """
        return self.weights(layer, batch=batch).mean(0)

    def plot(
        self,
        layer: int | str | None = None,
        head: int | None = None,
        batch: int = 0,
        *,
        scale: str = "linear",
        skip_first: bool = False,
    ) -> HeadFigure:
        """Draw the maps of a head, of a layer, or of all heads with a row for each layer.

        A notebook displays the returned figure, and its ``save(path)`` writes it.

        Args:
            layer: The layer's number or site name; default: all layers.
            head: The head, counted from 0, or from the end if negative; default: all heads.
            batch: The batch row.
            scale: The colour scale: "linear", "sqrt" (small weights become visible) or "row" (the largest weight of
                each row is the darkest).
            skip_first: Whether to leave out the first key, which is often an attention sink.
        """
        from .head_figure import HeadFigure

        return HeadFigure(self, layer, head, batch, scale=scale, skip_first=skip_first)


def split_labels(
    labels: Labels, attentions: Mapping[str, CapturedAttention], sites: Sites
) -> tuple[list[str] | None, list[str] | None]:
    """Return the labels of the source and those of the target; one list labels the source."""
    is_pair = isinstance(labels, tuple) and len(labels) == 2 and not any(isinstance(part, str) for part in labels)
    pair = labels if is_pair else (labels, None)  # ("a", "b") is one list
    source, target = cast(tuple[Sequence[str] | None, Sequence[str] | None], pair)
    if target is not None and not sites.has_target:
        raise ArgumentError("this model reads one sequence; give labels as one list, not as a pair")
    for side, side_labels in ((SOURCE, source), (TARGET, target)):
        counts = {  # the windows of an image have fewer positions than the image
            count
            for site, attention in attentions.items()
            for count, axis in zip((attention.queries, attention.keys), sites.get_sides(site), strict=True)
            if axis == side
        }
        if side_labels is not None and counts and len(side_labels) not in counts:
            sequence = f" of the {side}" if sites.has_target else ""
            raise ArgumentError(
                f"there are {len(side_labels)} labels for {min(counts)} positions{sequence}; give one per position"
            )
    return (None if source is None else list(source)), (None if target is None else list(target))


def label_positions(labels: Sequence[str] | None, positions: list[int]) -> list[str]:
    """Return the label of each position; its number if there is not a label for every position."""
    if labels is None or max(positions, default=0) >= len(labels):
        return [str(position) for position in positions]
    return [labels[position] for position in positions]


def check_labels_are_unambiguous(sites: Sites) -> None:
    """Raise an ArgumentError if the parts of a model read separate inputs, as CLIP's two encoders do."""
    parts = list(dict.fromkeys(name.split(".")[0] for name in sites.names))
    if not sites.has_target and len(sites.stacks) > 1 and len(parts) > 1:
        raise ArgumentError(
            f"{' and '.join(parts[:4])} read separate inputs, so one list of labels could belong to any of them; "
            "omit labels"
        )
