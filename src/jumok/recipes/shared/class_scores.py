"""What recipes with classes share: how often a model is right, and what it takes for what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.models import Config
from jumok.recipes.request import TrainingRequest

MOST_CLASSES = 1000
WIDEST_TABLE = 20  # classes; beyond that the most frequent mistakes are listed

Made = TypeVar("Made", bound=Config)
Found = Int[Tensor, " example"]
Table = Int[Tensor, "is called"]


def confusion(wanted: Found, found: Found, classes: int) -> Table:
    """How often each class (row) was called each class (column)."""
    return torch.bincount(wanted * classes + found, minlength=classes**2).view(classes, classes)


def accuracy(table: Table) -> float:
    return float(table.diagonal().sum() / table.sum().clamp_min(1))


def macro_f1(table: Table) -> float:
    """The mean over classes of F1, each counted the same however frequent; classes that nobody named do not count.

    >>> macro_f1(torch.tensor([[3, 1], [1, 0]]))
    0.375
    """
    right = table.diagonal().double()
    named = table.sum(0) + table.sum(1)
    return float((2 * right / named)[named > 0].mean())


def told(table: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """A confusion table as rows to print; of many classes the most frequent mistakes alone."""
    if len(names) <= WIDEST_TABLE:
        rows = zip(names, table.tolist(), strict=True)
        return [{"is": name, **dict(zip((f"called {one}" for one in names), row, strict=True))} for name, row in rows]
    wrong = table - torch.diag(table.diagonal())
    times, places = wrong.flatten().sort(descending=True, stable=True)
    return [
        {"is": names[place // len(names)], "called": names[place % len(names)], "times": count}
        for count, place in zip(times[:WIDEST_TABLE].tolist(), places[:WIDEST_TABLE].tolist(), strict=True)
        if count
    ]


def class_names(labels: Sequence[str], where: str) -> tuple[str, ...]:
    """The different labels, sorted; a sentence where they cannot be classes."""
    names = tuple(sorted(set(labels)))
    if not 2 <= len(names) <= MOST_CLASSES:
        shown = ", ".join(repr(name[:40]) for name in names[:3])
        raise ArgumentError(
            f"{where} has {len(names):,} different labels ({shown}{', ...' if len(names) > 3 else ''}); classes are "
            f"from 2 to {MOST_CLASSES:,}"
        )
    return names


def set_class_count(asked: TrainingRequest, config: Made, names: Sequence[str]) -> Made:
    """The config with as many classes as the data has; another number is refused."""
    if asked.changes.get("classes", len(names)) != len(names):
        raise ArgumentError(f"classes is {asked.changes['classes']!r}, but the data has {len(names)} of them")
    return config.replace(classes=len(names))


def compare_with_baseline(
    ours: Int[Tensor, " example"],
    theirs: Int[Tensor, " example"],
    wanted: Int[Tensor, " example"],
    names: Sequence[str],
) -> dict[str, Any]:
    """A model beside a baseline, on the same examples, as a report tells it."""
    tables = [confusion(wanted, found, len(names)) for found in (ours, theirs)]
    mine, other = (macro_f1(table) for table in tables)
    low, high = bootstrap_difference(ours, theirs, wanted, len(names))
    points = f"{abs(mine - other) * 100:.1f} points of macro-F1 {'above' if mine > other else 'below'}"
    return {
        "macro_f1": mine,
        "accuracy": accuracy(tables[0]),
        "baseline_macro_f1": other,
        "baseline_accuracy": accuracy(tables[1]),
        "difference": mine - other,
        "verdict": f"{points} the baseline, TF-IDF and logistic regression; if the texts are drawn again from "
        f"themselves, 95% of the differences lie between {low * 100:+.1f} and {high * 100:+.1f}",
        "what": f"of {len(wanted):,} held-out texts; none was learned from, and none chose a checkpoint or a setting",
        "confusion": told(tables[0], names),
        "baseline_confusion": told(tables[1], names),
    }


def bootstrap_difference(
    ours: Found, theirs: Found, wanted: Found, classes: int, times: int = 1000
) -> tuple[float, float]:
    """Between which differences of macro-F1 95% lie, if the examples are drawn again from themselves (Efron 1979)."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for _ in range(times):
        some = torch.randint(len(wanted), (len(wanted),), generator=draw)
        mine, other = (macro_f1(confusion(wanted[some], one[some], classes)) for one in (ours, theirs))
        found.append(mine - other)
    found.sort()
    return found[round(0.025 * (times - 1))], found[round(0.975 * (times - 1))]
