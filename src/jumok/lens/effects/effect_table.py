"""The results of ``effect``: effects sorted by size, their controls, and how weights and effects are related."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from jumok.draw import save_effect_map
from jumok.errors import ArgumentError
from jumok.lens.edits.edit_base import Edit
from jumok.lens.sites import AxisSides, Sites, normalize_index

from .metrics import Metric

if TYPE_CHECKING:
    from pandas import DataFrame

NO_EFFECT_SHARE = 0.01  # an effect of at most this share of the largest effect counts as none
SMALL_WEIGHT = 0.05  # a weight below this is called small
EXAMPLES = 5  # edges listed as examples


@dataclass(frozen=True)
class Effect:
    """One edit and its effect on the metric.

    Attributes:
        layer: The layer's number in a model with a single stack, else its site name; every ``layer`` argument accepts
            both.
        head: The head.
        effect: The metric with the edit minus the metric without.
        edit: The edit that was measured, for ``Lens.run``.
        query: The query of an edge; None for a head.
        key: The key of an edge; None for a head.
        weight: The weight of an edge; of a head, the largest weight of the measured position.
        estimate: The gradient's estimate of an edge's effect.
        rank: The rank by size among ``of`` comparable edits, 1 is the largest. Heads are compared with all heads, an
            edge with random edges of similar weight and itself. This is no test of significance: the edges were chosen
            because they have large estimates or weights.
        of: The number of comparable edits, this one included.
        looks_at: The key that a head attends to most from the measured position.
        row_edges: The number of edges in the row of an edge, itself included. An edge that is alone in its row has
            weight 1 by definition, and without it the head outputs 0 at this query.
        control_effects: The effects of the random edges of similar weight that an edge is compared with.
    """

    layer: int | str
    head: int
    effect: float
    edit: Edit
    query: int | None = None
    key: int | None = None
    weight: float | None = None
    estimate: float | None = None
    rank: int | None = None
    of: int | None = None
    looks_at: int | None = None
    row_edges: int | None = None
    control_effects: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the effect as a dictionary for JSON, without fields that are None, the edit and the controls."""
        omitted = ("edit", "control_effects")  # the other fields, and those of Effects, describe the edit
        return {name: field for name, field in vars(self).items() if field is not None and name not in omitted}


@dataclass(frozen=True)
class WeightAndEffect:
    """How the weights of edges are related to their effects (the question of Jain and Wallace 2019).

    An edge with an effect of at most 1% of the largest measured one is useless. Of the useless edges, those with the
    largest weights are listed, without edges that are alone in their row: their weight is not a choice of the head. Of
    the others with a weight below 0.05, those with the largest effects are listed.
    """

    edges: int  # the number of edges that the correlations are computed over
    every: bool  # these are all edges, not a random sample
    pearson: float  # of weight and absolute effect
    spearman: float
    looked_at_but_useless: tuple[Effect, ...]
    useful_but_little_looked_at: tuple[Effect, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the relation as a dictionary for JSON."""
        return {
            **vars(self),
            "looked_at_but_useless": [edge.to_json() for edge in self.looked_at_but_useless],
            "useful_but_little_looked_at": [edge.to_json() for edge in self.useful_but_little_looked_at],
        }


@dataclass(frozen=True)
class Effects:
    """The effects of many edits on one metric. ``len``, indexing and iteration read ``rows``.

    Attributes:
        over: "heads" or "edges".
        metric: The metric, with token ids in place of texts; ``metric(edited_logits, clean_logits)`` computes it.
        clean: The metric without edits.
        rows: The effects, the largest first.
        by: How heads were ablated: "zero", "mean" or "resample"; None for edges.
        seed: The seed of the random edges and of "resample".
        source: The name of the capture that "mean" and "resample" read; None for the text itself.
        model: The name or folder of the model, or the class of a model that was passed itself.
        sampled: The effects of the random edges that serve as controls.
        every: Whether ``rows`` contains all edges.
        sites: The names of all attentions of the model, in execution order.
        head_counts: The number of heads of each attention, in the same order.
    """

    over: str
    metric: Metric
    clean: float
    rows: tuple[Effect, ...]
    by: str | None = None
    seed: int = 0
    source: str | None = None
    model: str = ""
    sampled: tuple[Effect, ...] = ()
    every: bool = True
    sites: tuple[str, ...] = ()
    head_counts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> Effect: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Effect, ...]: ...
    def __getitem__(self, index: int | slice) -> Effect | tuple[Effect, ...]:
        return self.rows[index]

    def __repr__(self) -> str:
        return f"<Effects of {len(self.rows):,} {self.over} on the {self.metric}: {self.clean:.4f}>"

    def top(self, count: int = 10) -> tuple[Effect, ...]:
        """Return the largest effects.

        Args:
            count: How many, at least 1.
        """
        if count < 1:
            raise ArgumentError(f"count must be at least 1, not {count}")
        return self.rows[:count]

    def get(self, layer: int | str, head: int, query: int | None = None, key: int | None = None) -> Effect:
        """Return the effect of one head or edge.

        Args:
            layer: The layer: its number (negative from the end) or its site name.
            head: The head (negative from the end).
            query: The query of an edge; None for a head.
            key: The key of an edge; None for a head.

        Raises:
            ArgumentError: If it was not measured.
        """
        if self.sites:
            sites = Sites(self.sites)
            site = sites.find(layer)
            layer = sites.get_layer(site)
            if self.head_counts:
                head = normalize_index(head, self.head_counts[self.sites.index(site)], site, "heads")
        for row in self.rows:
            if (row.layer, row.head, row.query, row.key) == (layer, head, query, key):
                return row
        raise ArgumentError(f"layer {layer}, head {head}, edge {query} <- {key} was not measured")

    @property
    def beyond_controls(self) -> tuple[int, float]:
        """How many of the edges have a larger effect than all their controls, and how many random edges would have.

        Raises:
            ArgumentError: If heads were measured.
        """
        if self.over == "heads":
            raise ArgumentError('heads have no controls; measure with over="edges"')
        return sum(row.rank == 1 for row in self.rows), sum(1 / (row.of or 1) for row in self.rows)

    @property
    def agreement(self) -> float | None:
        """Spearman's correlation of estimated and exact effects over random edges; None for heads.

        If every edge was measured, it is computed over all of them.
        """
        return self._correlate_estimates(self.rows if self.every else self.sampled)

    @property
    def agreement_of_chosen(self) -> float | None:
        """The same correlation over the edges that were chosen for a large estimate or weight; None for heads.

        It is usually lower, because large effects are far outside the linear range of the gradient estimate.
        """
        return self._correlate_estimates(self.rows)

    def _correlate_estimates(self, effects: Sequence[Effect]) -> float | None:
        if self.over == "heads" or len(effects) < 3:
            return None
        return compute_spearman([effect.estimate or 0.0 for effect in effects], [effect.effect for effect in effects])

    @property
    def weight_and_effect(self) -> WeightAndEffect:
        """How the weights of edges are related to their effects.

        Raises:
            ArgumentError: If heads were measured.
        """
        if self.over == "heads":
            raise ArgumentError('heads have no weight; measure with over="edges"')
        # random edges: rows selected for a large weight or estimate would bias the correlation
        unbiased = self.rows if self.every else self.sampled
        weights = [effect.weight or 0.0 for effect in unbiased]
        sizes = [abs(effect.effect) for effect in unbiased]

        measured = (*self.rows, *self.sampled)
        limit = NO_EFFECT_SHARE * max((abs(effect.effect) for effect in measured), default=0.0)
        useless = [effect for effect in measured if abs(effect.effect) <= limit and effect.row_edges != 1]
        small = [effect for effect in measured if abs(effect.effect) > limit and (effect.weight or 0.0) < SMALL_WEIGHT]
        return WeightAndEffect(
            len(unbiased),
            self.every,
            compute_pearson(weights, sizes),
            compute_spearman(weights, sizes),
            tuple(sorted(useless, key=lambda effect: -(effect.weight or 0.0))[:EXAMPLES]),
            tuple(sorted(small, key=lambda effect: -abs(effect.effect))[:EXAMPLES]),
        )

    def get_sides(self, effect: Effect) -> AxisSides:
        """Return the sequences that the layer of an effect connects: source or target, for queries and for keys.

        Args:
            effect: One of the effects.
        """
        sites = Sites(self.sites)
        return sites.get_sides(sites.find(effect.layer))

    def to_dataframe(self) -> DataFrame:
        """Return the effects as a pandas DataFrame, one row each, the largest first, without columns that are empty.

        Raises:
            ArgumentError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ArgumentError("to_dataframe needs pandas, which is not installed; run: pip install pandas") from None
        return pandas.DataFrame([row.to_json() for row in self.rows])

    def plot(self, title: str = "") -> EffectFigure:
        """Draw the effects of heads, layers by heads; a notebook displays the figure, and ``save(path)`` writes it.

        Args:
            title: The title; default: the metric and its value without edits.

        Raises:
            ArgumentError: If edges were measured.
        """
        if self.over != "heads":
            raise ArgumentError('the figure shows heads; measure them with over="heads"')
        return EffectFigure(self, title or f"{self.metric}: {self.clean:.4f}")

    def to_json(self) -> dict[str, Any]:
        """Return the effects as a dictionary for JSON."""
        report: dict[str, Any] = {"model": self.model, "over": self.over, "by": self.by, "seed": self.seed}
        report |= {"ablation_source": self.source, "metric": str(self.metric), "metric_fields": self.metric.to_json()}
        report |= {"clean": self.clean, "rows": [row.to_json() for row in self.rows]}
        if self.over == "edges":
            beyond, expected = self.beyond_controls
            report["beyond_controls"] = {"edges": beyond, "of": len(self.rows), "expected_of_random_edges": expected}
            report |= {"agreement": self.agreement, "agreement_of_chosen": self.agreement_of_chosen}
            report["weight_and_effect"] = self.weight_and_effect.to_json()
        return report


@dataclass(frozen=True)
class EffectFigure:
    """A heat map of the effects of heads: a row for each layer, a column for each head.

    Attributes:
        words: The axes, the quantity and the caption, by the parameters of ``save_effect_map``; default: its own.
    """

    effects: Effects
    title: str
    words: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: str | Path) -> Path:
        """Write the figure, and return its path; the suffix ``.png`` or ``.svg`` selects the format."""
        sites = Sites(self.effects.sites)
        measured = {row.layer for row in self.effects}
        layers = [layer for layer in map(sites.get_layer, sites.names) if layer in measured]
        heads = 1 + max(row.head for row in self.effects)
        table = [[math.nan] * heads for _ in layers]
        for row in self.effects:
            table[layers.index(row.layer)][row.head] = row.effect
        return save_effect_map(path, table, [str(layer) for layer in layers], title=self.title, **self.words)

    def _repr_png_(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(Path(folder) / "effects.png").read_bytes()


def sort_by_size(rows: Sequence[Effect]) -> tuple[Effect, ...]:
    """Sort effects by absolute size, the largest first."""
    return tuple(sorted(rows, key=lambda row: -abs(row.effect)))


def rank_effects(rows: Sequence[Effect]) -> tuple[Effect, ...]:
    """Sort effects by absolute size, and set the rank of each among all of them."""
    sizes = [abs(row.effect) for row in rows]
    return tuple(
        replace(row, rank=sum(size >= abs(row.effect) for size in sizes), of=len(sizes)) for row in sort_by_size(rows)
    )


def compute_pearson(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Pearson's correlation; 0 where a side is constant."""
    if len(left) < 2:
        return 0.0
    pair = torch.tensor([list(left), list(right)], dtype=torch.float64)
    centred = pair - pair.mean(1, keepdim=True)
    norms = centred.norm(dim=1).prod()
    return float((centred[0] * centred[1]).sum() / norms) if norms > 0 else 0.0


def compute_spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Spearman's rank correlation; equal numbers get their mean rank."""
    return compute_pearson(_rank(left), _rank(right))


def _rank(numbers: Sequence[float]) -> list[float]:
    """Return the rank of each number; equal numbers share the mean of their ranks."""
    distinct, indices = torch.tensor(list(numbers), dtype=torch.float64).unique(return_inverse=True)
    counts = torch.bincount(indices, minlength=len(distinct)).to(torch.float64)
    last_ranks = counts.cumsum(0)
    return (last_ranks - (counts - 1) / 2)[indices].tolist()
