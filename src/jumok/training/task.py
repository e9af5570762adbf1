"""What is trained: a model, its batches, a loss, an evaluation. A recipe makes one of these, and the loop runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.models import Model

from .settings import Settings

IGNORE_INDEX = -100  # a target that is not asked for: padding


@dataclass(frozen=True)
class Batch:
    """Some examples. ``count`` is what the loss is divided by: targets that are asked for, over which it is summed."""

    inputs: Mapping[str, Tensor]
    targets: Tensor
    count: int

    def to(self, device: torch.device) -> Batch:
        if self.targets.device == device:
            return self
        return Batch({name: one.to(device) for name, one in self.inputs.items()}, self.targets.to(device), self.count)


#: (step, part, parts) -> that part of the step's batch. A pure function: the same examples in the same order however
#: many parts they are cut into, and whenever it is asked, so the data's position is the step and nothing else.
Batches = Callable[[int, int, int], Batch]


@dataclass(frozen=True)
class Task:
    """One training run, ready to go."""

    model: Model
    settings: Settings
    batches: Batches
    #: the loss of a batch, summed over its targets
    loss: Callable[[nn.Module, Batch], Tensor]
    #: metrics of the model as it is; called in evaluation mode, without gradients, with its own random numbers
    evaluate: Callable[[Model], dict[str, float]]
    #: the metric that says which checkpoint is best, and which way is better
    judge: str = "loss"
    better: str = "lower"
    #: what is saved with the model
    tokenizer: Any = None
    preparation: Any = None
    labels: tuple[str, ...] | None = None
    #: facts of the data (files, counts): a run goes on only with the data it began with
    data: Mapping[str, Any] = field(default_factory=dict)
    #: what is told when all is done, from the best model: goes into report.json, text and pictures into the folder
    report: Callable[[Model, Any], dict[str, Any]] | None = None


def select_part(ids: list[int], part: int, parts: int) -> list[int]:
    """One of ``parts`` equal runs of a step's examples."""
    size = len(ids) // parts
    return ids[part * size : (part + 1) * size]


def token_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of the targets, summed; targets of -100 do not count."""
    logits = model(**batch.inputs).logits
    return functional.cross_entropy(
        logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )


def number_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Squared errors, summed."""
    return functional.mse_loss(model(**batch.inputs).logits, batch.targets, reduction="sum")
