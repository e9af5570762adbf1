"""Scores of classifiers: confusion table, accuracy, macro-F1, and the comparison with a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.models import Config
from jumok.recipes.request import TrainingRequest

MAX_CLASSES = 1000
MAX_TABLE_CLASSES = 20  # with more classes a report lists the most frequent mistakes instead of the table

ConfigType = TypeVar("ConfigType", bound=Config)
Classes = Int[Tensor, " example"]
ConfusionTable = Int[Tensor, "label prediction"]
TableRow = dict[str, str | int]


def count_confusions(labels: Classes, predictions: Classes, classes: int) -> ConfusionTable:
    """Count how often each class (row) was predicted as each class (column)."""
    return torch.bincount(labels * classes + predictions, minlength=classes**2).view(classes, classes)


def compute_accuracy(table: ConfusionTable) -> float:
    """Return the share of correct predictions in a confusion table."""
    return float(table.diagonal().sum() / table.sum().clamp_min(1))


def compute_macro_f1(table: ConfusionTable) -> float:
    """Return the mean of the classes' F1 scores; classes that are neither a label nor a prediction are left out.

    >>> compute_macro_f1(torch.tensor([[3, 1], [1, 0]]))
    0.375
    """
    correct = table.diagonal().double()
    occurrences = table.sum(0) + table.sum(1)
    return float((2 * correct / occurrences)[occurrences > 0].mean())


def format_confusions(table: ConfusionTable, names: Sequence[str]) -> list[TableRow]:
    """Return a confusion table as rows of a report; with many classes only the most frequent mistakes."""
    if len(names) <= MAX_TABLE_CLASSES:
        columns = [f"called {name}" for name in names]
        return [
            {"is": name, **dict(zip(columns, counts, strict=True))}
            for name, counts in zip(names, table.tolist(), strict=True)
        ]
    mistakes = table - torch.diag(table.diagonal())
    counts, cells = mistakes.flatten().sort(descending=True, stable=True)
    return [
        {"is": names[cell // len(names)], "called": names[cell % len(names)], "times": count}
        for count, cell in zip(counts[:MAX_TABLE_CLASSES].tolist(), cells[:MAX_TABLE_CLASSES].tolist(), strict=True)
        if count
    ]


def list_class_names(labels: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the different labels, sorted."""
    names = tuple(sorted(set(labels)))
    if not 2 <= len(names) <= MAX_CLASSES:
        examples = ", ".join(repr(name[:40]) for name in names[:3])
        raise ArgumentError(
            f"{source} has {len(names):,} different labels ({examples}{', ...' if len(names) > 3 else ''}); a "
            f"classifier needs from 2 to {MAX_CLASSES:,} classes"
        )
    return names


def set_class_count(request: TrainingRequest, config: ConfigType, names: Sequence[str]) -> ConfigType:
    """Return the config with the number of classes in the data."""
    if request.changes.get("classes", len(names)) != len(names):
        raise ArgumentError(
            f"classes is {request.changes['classes']!r}, but the data has {len(names)} classes; remove classes"
        )
    return config.replace(classes=len(names))


def compare_with_baseline(
    predictions: Classes, baseline_predictions: Classes, labels: Classes, names: Sequence[str]
) -> dict[str, float | str | list[TableRow]]:
    """Return the report fields that compare a model with the TF-IDF baseline on the same examples."""
    table, baseline_table = (
        count_confusions(labels, classes, len(names)) for classes in (predictions, baseline_predictions)
    )
    score, baseline_score = compute_macro_f1(table), compute_macro_f1(baseline_table)
    low, high = bootstrap_difference_interval(predictions, baseline_predictions, labels, len(names))
    difference = score - baseline_score
    amount = "less than 0.1" if abs(difference) < 0.0005 else f"{abs(difference) * 100:.1f}"
    relation = f"{amount} points of macro-F1 {'above' if difference > 0 else 'below'}"
    return {
        "macro_f1": score,
        "accuracy": compute_accuracy(table),
        "baseline_macro_f1": baseline_score,
        "baseline_accuracy": compute_accuracy(baseline_table),
        "difference": difference,
        "verdict": f"{relation if difference else 'the same macro-F1 as'} the baseline (TF-IDF and logistic "
        f"regression); 95% bootstrap interval of the difference: {low * 100:+.1f} to {high * 100:+.1f}",
        "what": f"{len(labels):,} held-out texts, used neither for training nor to choose a checkpoint or a setting",
        "confusion": format_confusions(table, names),
        "baseline_confusion": format_confusions(baseline_table, names),
    }


def bootstrap_difference_interval(
    predictions: Classes, baseline_predictions: Classes, labels: Classes, classes: int, samples: int = 1000
) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the difference in macro-F1 (Efron 1979)."""
    generator = torch.Generator().manual_seed(0)
    differences = []
    for _ in range(samples):
        rows = torch.randint(len(labels), (len(labels),), generator=generator)
        score = compute_macro_f1(count_confusions(labels[rows], predictions[rows], classes))
        baseline = compute_macro_f1(count_confusions(labels[rows], baseline_predictions[rows], classes))
        differences.append(score - baseline)
    differences.sort()
    return differences[round(0.025 * (samples - 1))], differences[round(0.975 * (samples - 1))]
