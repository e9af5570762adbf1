"""The results of ``effect``: effects sorted by size, their controls, and how weights and effects are related."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from jumok.errors import ArgumentError
from jumok.lens.edits.edit_types import Ablate, Edit, KnockOut

USELESS_SHARE = 0.05  # an effect below this share of the largest effect is called useless
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
        query: The query of an edge; None for a head.
        key: The key of an edge; None for a head.
        weight: The weight of an edge; of a head, the largest weight of the measured position.
        estimate: The gradient's estimate of an edge's effect.
        rank: The rank by size among ``of`` comparable edits, 1 is the largest. Heads are compared with all heads, an
            edge with random edges of similar weight and itself.
        of: The number of comparable edits, this one included.
        looks_at: The key that a head attends to most from the measured position.
    """

    layer: int | str
    head: int
    effect: float
    query: int | None = None
    key: int | None = None
    weight: float | None = None
    estimate: float | None = None
    rank: int | None = None
    of: int | None = None
    looks_at: int | None = None

    @property
    def p(self) -> float | None:
        """The share of comparable edits whose effect is at least as large, this one included."""
        return None if self.rank is None or self.of is None else self.rank / self.of

    @property
    def edit(self) -> Edit:
        """The edit that was measured, for ``Lens.run``."""
        if self.query is None:
            return Ablate(layer=self.layer, head=self.head)
        return KnockOut(layer=self.layer, head=self.head, query=self.query, key=self.key)

    def to_json(self) -> dict[str, Any]:
        """Return the effect as a dictionary for JSON, without fields that are None."""
        fields = {**asdict(self), "p": self.p}
        return {name: field for name, field in fields.items() if field is not None}


@dataclass(frozen=True)
class WeightAndEffect:
    """How the weights of edges are related to their effects (the question of Jain and Wallace 2019).

    Attributes:
        edges: The number of edges that the correlations are computed over.
        every: Whether these are all edges, or a random sample.
        pearson: Pearson's correlation of weight and absolute effect.
        spearman: Spearman's correlation of weight and absolute effect.
        looked_at_but_useless: Edges with the largest weights among those with a negligible effect.
        useful_but_little_looked_at: Edges with the largest effects among those with a small weight.
    """

    edges: int
    every: bool
    pearson: float
    spearman: float
    looked_at_but_useless: tuple[Effect, ...]
    useful_but_little_looked_at: tuple[Effect, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the relation as a dictionary for JSON."""
        return {
            **asdict(self),
            "looked_at_but_useless": [edge.to_json() for edge in self.looked_at_but_useless],
            "useful_but_little_looked_at": [edge.to_json() for edge in self.useful_but_little_looked_at],
        }


@dataclass(frozen=True)
class Effects:
    """The effects of many edits on one metric.

    Attributes:
        over: "heads" or "edges".
        metric: The metric, as text.
        clean: The metric without edits.
        rows: The effects, the largest first.
        sampled: The effects of the random edges that serve as controls.
        every: Whether ``rows`` contains all edges.
    """

    over: str
    metric: str
    clean: float
    rows: tuple[Effect, ...]
    sampled: tuple[Effect, ...] = ()
    every: bool = True

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
            layer: The layer, as in ``Effect.layer``.
            head: The head.
            query: The query of an edge; None for a head.
            key: The key of an edge; None for a head.

        Raises:
            ArgumentError: If it was not measured.
        """
        for row in self.rows:
            if (row.layer, row.head, row.query, row.key) == (layer, head, query, key):
                return row
        raise ArgumentError(f"layer {layer}, head {head}, edge {query} <- {key} was not measured")

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
        largest = max((abs(effect.effect) for effect in measured), default=0.0)
        useless = [effect for effect in measured if abs(effect.effect) < USELESS_SHARE * largest]
        small = [effect for effect in measured if (effect.weight or 0.0) < SMALL_WEIGHT]
        return WeightAndEffect(
            len(unbiased),
            self.every,
            compute_pearson(weights, sizes),
            compute_spearman(weights, sizes),
            tuple(sorted(useless, key=lambda effect: -(effect.weight or 0.0))[:EXAMPLES]),
            tuple(sorted(small, key=lambda effect: -abs(effect.effect))[:EXAMPLES]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the effects as a dictionary for JSON."""
        report: dict[str, Any] = {"over": self.over, "metric": self.metric, "clean": self.clean}
        report["rows"] = [row.to_json() for row in self.rows]
        if self.over == "edges":
            report |= {"agreement": self.agreement, "agreement_of_chosen": self.agreement_of_chosen}
            report["weight_and_effect"] = self.weight_and_effect.to_json()
        return report


def sort_by_size(rows: Sequence[Effect]) -> tuple[Effect, ...]:
    """Sort effects by absolute size, the largest first.

    Args:
        rows: The effects.
    """
    return tuple(sorted(rows, key=lambda row: -abs(row.effect)))


def rank_effects(rows: Sequence[Effect]) -> tuple[Effect, ...]:
    """Sort effects by absolute size, and set the rank of each among all of them.

    Args:
        rows: The effects.
    """
    sizes = [abs(row.effect) for row in rows]
    return tuple(
        replace(row, rank=sum(size >= abs(row.effect) for size in sizes), of=len(sizes)) for row in sort_by_size(rows)
    )


def compute_pearson(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Pearson's correlation; 0 where a side is constant.

    Args:
        left: The first variable.
        right: The second variable, of equal length.
    """
    if len(left) < 2:
        return 0.0
    pair = torch.tensor([list(left), list(right)], dtype=torch.float64)
    centred = pair - pair.mean(1, keepdim=True)
    norms = centred.norm(dim=1).prod()
    return float((centred[0] * centred[1]).sum() / norms) if norms > 0 else 0.0


def compute_spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Compute Spearman's rank correlation; equal numbers get their mean rank.

    Args:
        left: The first variable.
        right: The second variable, of equal length.
    """
    return compute_pearson(_rank(left), _rank(right))


def _rank(numbers: Sequence[float]) -> list[float]:
    """Return the rank of each number; equal numbers share the mean of their ranks."""
    distinct, indices = torch.tensor(list(numbers), dtype=torch.float64).unique(return_inverse=True)
    counts = torch.bincount(indices, minlength=len(distinct)).to(torch.float64)
    last_ranks = counts.cumsum(0)
    return (last_ranks - (counts - 1) / 2)[indices].tolist()
