"""What was measured: effects in order, each with its controls; and what weight says about effect, and what not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from jumok.errors import ArgumentError
from jumok.lens.edits.edit_types import Ablate, Edit, KnockOut

if TYPE_CHECKING:
    from .edit_bench import EditRunner

USELESS = 0.05  # of the largest effect: less is called useless
LITTLE = 0.05  # of a row: less weight is called little looked at


@dataclass(frozen=True)
class Effect:
    """One edit and what it changed. rank: its place among ``of`` edits of its kind (edges: itself and random edges of
    equal weight; heads: all heads), the largest change first."""

    layer: int | str
    head: int
    effect: float
    query: int | None = None
    key: int | None = None
    weight: float | None = None
    estimate: float | None = None  # by gradient
    rank: int | None = None
    of: int | None = None
    looks_at: int | None = None  # of a head: the key it looks at most from the place measured, by ``weight``

    @property
    def p(self) -> float | None:
        """How often an edit of this kind does at least as much, this one counted in."""
        return None if self.rank is None or self.of is None else self.rank / self.of

    @property
    def edit(self) -> Edit:
        """The same as an edit, for a run under the lens."""
        if self.query is None:
            return Ablate(layer=self.layer, head=self.head)
        return KnockOut(layer=self.layer, head=self.head, query=self.query, key=self.key)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in {**asdict(self), "p": self.p}.items() if value is not None}


@dataclass(frozen=True)
class WeightAndEffect:
    """What looking says about mattering (Jain and Wallace 2019 asked it first): Pearson's and Spearman's correlation
    of weight and size of effect over edges, the most looked-at edges that do nothing, and the most useful ones that are
    hardly looked at."""

    edges: int
    every: bool  # of all edges, or of a sample
    pearson: float
    spearman: float
    looked_at_but_useless: tuple[Effect, ...]
    useful_but_little_looked_at: tuple[Effect, ...]

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        for name in ("looked_at_but_useless", "useful_but_little_looked_at"):
            told[name] = [one.to_json() for one in getattr(self, name)]
        return told


@dataclass(frozen=True)
class Effects:
    """``rows``: the largest change first. ``sampled``: the random edges that were cut as controls."""

    over: str
    metric: str
    clean: float
    rows: tuple[Effect, ...]
    sampled: tuple[Effect, ...] = ()
    every: bool = True

    @staticmethod
    def ranked(
        rows: Sequence[Effect], bench: EditRunner, over: str, sampled: Sequence[Effect] = (), every: bool = True
    ) -> Effects:
        ordered = sorted(rows, key=lambda one: -abs(one.effect))
        if over == "heads":
            sizes = [abs(one.effect) for one in ordered]
            ordered = [
                replace(one, rank=sum(size >= abs(one.effect) for size in sizes), of=len(sizes)) for one in ordered
            ]
        return Effects(over, str(bench.metric), bench.value, tuple(ordered), tuple(sampled), every)

    def top(self, count: int = 10) -> tuple[Effect, ...]:
        if count < 1:
            raise ArgumentError(f"top gives at least one; {count} were asked for")
        return self.rows[:count]

    def __repr__(self) -> str:
        return f"<Effects of {len(self.rows):,} {self.over} on the {self.metric}: {self.clean:.4f}>"

    def of(self, layer: int | str, head: int, query: int | None = None, key: int | None = None) -> Effect:
        """The row of one head or edge."""
        for one in self.rows:
            if (one.layer, one.head, one.query, one.key) == (layer, head, query, key):
                return one
        raise ArgumentError(f"layer {layer}, head {head}, edge {query} <- {key} was not measured")

    @property
    def agreement(self) -> float | None:
        """Spearman's correlation of the gradient's estimate and the exact effect, over random edges (all of them where
        every edge was cut); None for heads, which are all exact."""
        return self._agreement(self.rows if self.every else self.sampled)

    @property
    def agreement_of_chosen(self) -> float | None:
        """The same over the edges that were chosen for being large, by gradient or by weight: harder, for cutting those
        moves a model far."""
        return self._agreement(self.rows)

    def _agreement(self, some: Sequence[Effect]) -> float | None:
        if self.over == "heads" or len(some) < 3:
            return None
        return spearman([one.estimate or 0.0 for one in some], [one.effect for one in some])

    @property
    def weight_and_effect(self) -> WeightAndEffect:
        if self.over == "heads":
            raise ArgumentError('weights belong to edges: measure with over="edges"')
        # chosen rows were chosen for being large, and would flatter either side; a correlation is of random ones
        some = self.rows if self.every else self.sampled
        known = (*self.rows, *self.sampled)
        largest = max((abs(one.effect) for one in known), default=0.0)
        weights, sizes = [one.weight or 0.0 for one in some], [abs(one.effect) for one in some]
        useless = [one for one in known if abs(one.effect) < USELESS * largest]
        little = [one for one in known if (one.weight or 0.0) < LITTLE]
        return WeightAndEffect(
            len(some),
            self.every,
            pearson(weights, sizes),
            spearman(weights, sizes),
            tuple(sorted(useless, key=lambda one: -(one.weight or 0.0))[:5]),
            tuple(sorted(little, key=lambda one: -abs(one.effect))[:5]),
        )

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"over": self.over, "metric": self.metric, "clean": self.clean}
        told["rows"] = [one.to_json() for one in self.rows]
        if self.over == "edges":
            told |= {"agreement": self.agreement, "agreement_of_chosen": self.agreement_of_chosen}
            told["weight_and_effect"] = self.weight_and_effect.to_json()
        return told


def pearson(left: Sequence[float], right: Sequence[float]) -> float:
    """Correlation; 0 where a side does not vary."""
    if len(left) < 2:
        return 0.0
    both = torch.tensor([list(left), list(right)], dtype=torch.float64)
    both = both - both.mean(1, keepdim=True)
    size = both.norm(dim=1).prod()
    return float((both[0] * both[1]).sum() / size) if size > 0 else 0.0


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Correlation of ranks; equal numbers share the mean of theirs."""
    return pearson(_ranks(left), _ranks(right))


def _ranks(numbers: Sequence[float]) -> list[float]:
    values, places = torch.tensor(list(numbers), dtype=torch.float64).unique(return_inverse=True)
    counts = torch.bincount(places, minlength=len(values)).to(torch.float64)
    last = counts.cumsum(0)
    return (last - (counts - 1) / 2)[places].tolist()
