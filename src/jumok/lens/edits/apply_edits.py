"""Edits carried out: a listener that gives back changed masks, scores and outputs at the sites they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.tap import Listener

from .edit_types import Ablate, Edit, KnockOut, Patch, Remask, Scale, as_tuple

Which = Callable[[Edit], frozenset[str]]  # the sites that an edit means


class EditListener(Listener):
    """A listener for a list of edits, in their order."""

    def __init__(self, edits: Sequence[Edit], which: Which, mlp_of: Callable[[str], str]) -> None:
        self.work: dict[str, list[Edit]] = {}
        for edit in edits:
            for site in which(edit):
                self.work.setdefault(_tap_of(edit, site, mlp_of), []).append(edit)
        self.done: set[str] = set()
        self.rows: dict[str, int] = {}  # how many rows each tap has seen: decoding comes in pieces

    def accepts(self, site: str) -> bool:
        return site in self.work

    def __call__(self, site: str, value: Any) -> Any:
        self.done.add(site)
        word = site.rpartition(".")[2]
        if word in ("mask", "score"):
            for edit in self.work[site]:
                value = _changed_value(edit, value)
            return value
        begin = self.rows.get(site, 0)
        self.rows[site] = begin + value.shape[-2]
        for edit in self.work[site]:
            value = _changed_tensor(edit, value, site, begin)
        return value

    def check_done(self) -> None:
        """An edit that met no tap changed nothing, and must not look as if it had."""
        missed = sorted(set(self.work) - self.done)
        if missed:
            raise ArgumentError(f"no value passed {missed[0]}, so {self.work[missed[0]][0]} changed nothing")


def _tap_of(edit: Edit, site: str, mlp_of: Callable[[str], str]) -> str:
    if isinstance(edit, Remask | KnockOut):
        return f"{site}.mask"
    if isinstance(edit, Scale):
        return f"{site}.score"
    if isinstance(edit, Ablate | Patch) and edit.part == "mlp":
        return f"{mlp_of(site)}.feedforward_output"
    if isinstance(edit, Ablate) and edit.head is None:
        return f"{site}.block_output"
    return f"{site}.output"


def _changed_value(edit: Edit, value: Any) -> Any:
    if isinstance(edit, KnockOut):
        return edit.mask if value is None else value & edit.mask
    if isinstance(edit, Remask):
        if edit.head is None:
            return edit.mask
        here = masks.edge(head=as_tuple(edit.head))
        everything = masks.edge()
        before, after = (everything if one is None else one for one in (value, edit.mask))
        return (before & ~here) | (after & here)
    assert isinstance(edit, Scale)
    return TemperatureScore(value, as_tuple(edit.head), edit.temperature)


def _changed_tensor(edit: Edit, value: Tensor, site: str, begin: int) -> Tensor:
    changed = value.clone()
    heads: Any = slice(None)
    headed = site.endswith(".output")  # [batch, head, query, width]; the others are [batch, query, width]
    if headed:
        assert isinstance(edit, Ablate | Patch)
        heads = slice(None) if edit.head is None else list(as_tuple(edit.head) or ())
        if edit.head is not None and max(heads) >= value.shape[1]:
            where = site.removesuffix(".output")
            raise ArgumentError(f"{where} has {value.shape[1]} heads, counted from 0; {max(heads)} is none of them")
    if isinstance(edit, Ablate):
        part = value[:, heads] if headed else value
        new = ablate_tensor(edit, part, site, heads if headed else None)
        if headed:
            changed[:, heads] = new
            return changed
        return new
    assert isinstance(edit, Patch)
    source = _kept(edit.source, site)
    rows = range(begin, begin + value.shape[-2])
    wanted = rows if edit.positions is None else [one for one in as_tuple(edit.positions) or () if one in rows]
    if wanted and max(wanted) >= source.shape[-2]:
        raise ArgumentError(f"the run to take from has {source.shape[-2]} positions; {max(wanted)} is none of them")
    here = torch.tensor([one - begin for one in wanted], dtype=torch.long, device=value.device)
    there = torch.tensor(list(wanted), dtype=torch.long, device=source.device)
    taken = source.index_select(-2, there).to(value)
    if headed:
        some = changed[:, heads]
        changed[:, heads] = some.index_copy(-2, here, taken[:, heads].expand_as(some.index_select(-2, here)))
        return changed
    return changed.index_copy(-2, here, taken.expand_as(changed.index_select(-2, here)))


def ablate_tensor(edit: Ablate, part: Tensor, site: str, heads: Any) -> Tensor:
    if edit.by == "zero":
        return torch.zeros_like(part)
    source = part
    if edit.source is not None:
        kept = _kept(edit.source, site)
        source = (kept if heads is None else kept[:, heads]).to(part)
    if edit.source is None and source.shape[0] == source.shape[-2] == 1:
        # of one place the mean is itself, and there is no other: the head would stay, and look useless
        raise ArgumentError(
            f"{site.rpartition('.')[0]} gives one position at a time, and {edit.by!r} needs others: give "
            'source=lens.run(..., keep=("output",))'
        )
    if edit.by == "mean":
        axes = (0, source.dim() - 2)
        return source.mean(axes, keepdim=True).expand_as(part)
    draw = torch.Generator().manual_seed(edit.seed)
    own = edit.source is None
    rows = _others(source.shape[-2], part.shape[-2], own and source.shape[-2] > 1, draw)
    texts = _others(source.shape[0], part.shape[0], own and source.shape[-2] == 1, draw)
    return source.index_select(0, texts.to(source.device)).index_select(-2, rows.to(source.device))


def _others(there: int, wanted: int, own: bool, draw: torch.Generator) -> Tensor:
    """Of so many places one for each that wants one, drawn; of its own places, never itself."""
    if own:
        return (torch.arange(wanted) + torch.randint(1, there, (wanted,), generator=draw)) % there
    return torch.randint(there, (wanted,), generator=draw)


def _kept(run: Any, site: str) -> Tensor:
    kept: Tensor | None = run.kept.get(site)
    if kept is None:
        word = site.rpartition(".")[2]
        raise ArgumentError(f"the run to take from did not keep {site}; make it with keep=({word!r},)")
    return kept


@dataclass(frozen=True, eq=False)
class TemperatureScore(Score):
    """Another score, divided by a temperature at some heads."""

    inner: Score
    heads_at: tuple[int, ...] | None
    temperature: int | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sink", self.inner.sink)

    def check(self, query: Tensor, key: Tensor) -> None:
        if self.heads_at is not None and self.heads_at[-1] >= query.shape[1]:
            raise ArgumentError(f"Scale names head {self.heads_at[-1]}, but there are {query.shape[1]}, from 0")
        self.inner.check(query, key)

    @property
    def heads(self) -> int:
        """More than 1: whoever cuts out a head must ask for all of them."""
        return 1 if self.heads_at is None else 2

    def _factor(self, query: Tensor) -> Tensor:
        factor = query.new_ones(query.shape[1], 1, 1)
        factor[slice(None) if self.heads_at is None else list(self.heads_at)] = 1 / self.temperature
        return factor

    def evaluate(self, query: Tensor, key: Tensor) -> Tensor:
        return self.inner.evaluate(query, key) * self._factor(query)

    def as_dot(self, query: Tensor) -> tuple[Tensor, float] | None:
        dotted = self.inner.as_dot(query)
        return None if dotted is None else (dotted[0] * self._factor(query), dotted[1])

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return self.inner.gradient_tensors()
