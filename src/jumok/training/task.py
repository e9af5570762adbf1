"""A training task: a model, its batches, a loss and an evaluation. A recipe builds a task, and ``fit`` runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.models import Model

from .settings import Settings

IGNORE_INDEX = -100  # a target that does not count, such as padding


@dataclass(frozen=True)
class Batch:
    """Examples of one step, or a part of them."""

    inputs: Mapping[str, Tensor]  # the model's arguments by name
    targets: Tensor  # the expected predictions; IGNORE_INDEX at positions without a target
    count: int  # the number of targets that count; the summed loss is divided by it

    def to(self, device: torch.device) -> Batch:
        """Return this batch on a device."""
        if self.targets.device == device:
            return self
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return Batch(inputs, self.targets.to(device), self.count)


#: (step, part, parts) -> that part of the step's batch. It must be a pure function that returns the same examples in
#: the same order for any number of parts, so that the step determines the position in the data.
Batches = Callable[[int, int, int], Batch]
#: (model, batch) -> the loss, summed over the targets of the batch
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class DataSummary:
    """What a dry run shows of the data."""

    counts: Mapping[str, int] = field(default_factory=dict)  # such as {"training texts": 90, "held-out texts": 10}
    examples: Sequence[Mapping[str, str]] = ()  # the first training examples, each as texts by name


@dataclass(frozen=True)
class TrainingTask:
    """Everything that ``fit`` needs to train one model."""

    loaded: Loaded  # the model, and the files that are saved with it
    settings: Settings
    batches: Batches
    loss: Loss
    #: returns metrics; called in evaluation mode, without gradients, with its own random numbers
    evaluate: Callable[[Model], dict[str, float]]
    judge: str = "loss"  # the metric that decides which checkpoint is best
    better: str = "lower"  # or "higher": which value of that metric is better
    data: Mapping[str, Any] = field(default_factory=dict)  # a run resumes only with the data it started with
    #: returns the report on the best model and writes figures into the folder; None: the metrics of ``evaluate``
    build_report: Callable[[Model, Path], dict[str, Any]] | None = None
    summary: DataSummary = DataSummary()
    examples: int | None = None  # in one epoch; None if they are generated anew at each step

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.loaded.model


def apply_epochs(task: TrainingTask) -> TrainingTask:
    """Return a task whose number of steps follows from its number of epochs; without epochs, the task itself."""
    epochs, batch = task.settings.epochs, task.settings.batch
    if epochs is None:
        return task
    if task.examples is None:
        raise ArgumentError("this recipe generates new examples at each step and has no epochs; give steps instead")
    steps = math.ceil(epochs * task.examples / batch)
    return replace(task, settings=task.settings.replace(steps=steps))


def select_part(ids: list[int], part: int, parts: int) -> list[int]:
    """Return one of several equal slices of a step's examples.

    >>> select_part([7, 8, 9, 10], 1, 2)
    [9, 10]
    """
    size = len(ids) // parts
    return ids[part * size : (part + 1) * size]


def compute_mean_loss(model: Model, batches: Iterable[Batch]) -> float:
    """Return the cross-entropy per target over some batches."""
    total = count = 0.0
    for batch in batches:
        total += float(compute_token_loss(model, batch.to(model.device)))
        count += batch.count
    return total / count


def compute_token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of the logits, summed over targets other than IGNORE_INDEX."""
    logits = model(**batch.inputs).logits
    return functional.cross_entropy(
        logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
