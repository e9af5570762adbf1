"""Training settings: every number of a training run that does not belong to the model's config."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jumok.errors import ArgumentError
from jumok.fields import Fields, choice, flag, integer, optional, real
from jumok.threads import check_threads


@dataclass(frozen=True)
class Settings(Fields):
    """The fields that ``jumok train --set FIELD=VALUE`` can change, in addition to the model's config.

    >>> Settings(steps=500, learning_rate=3e-4).batch
    32
    """

    family: ClassVar[str] = "training"

    steps: int = integer(1000, "number of updates")
    epochs: int | None = optional(integer(1, "passes over the training data, instead of steps"))
    batch: int = integer(32, "examples per update, over all processes")
    accumulate: int = integer(1, "parts in which a process computes its share of a batch: less memory, same gradients")
    learning_rate: float = real(1e-3, "highest learning rate of AdamW", most=100.0)
    matrix_rate: float = real(2e-2, "highest learning rate of Muon", most=100.0)
    final_rate: float = real(0.1, "last learning rate, as a fraction of the highest", most=1.0)
    warmup: int = integer(100, "updates until the highest learning rate; steps / 10 if steps is not larger", least=0)
    optimizer: str = choice("adamw", ("adamw", "muon"), "muon: Muon for matrices inside blocks, AdamW for the others")
    beta1: float = real(0.9, "AdamW's decay rate of the mean gradient", most=0.9999)
    beta2: float = real(0.99, "AdamW's decay rate of the mean squared gradient", most=0.99999)
    decay: float = real(0.1, "weight decay, applied to matrices only", most=10.0)
    clip: float = real(1.0, "largest norm of the gradients; 0 = no clipping")
    average: float = real(0.0, "decay rate of the parameter average, the model that is saved; 0 = none", most=0.99999)
    evaluate_every: int = integer(250, "updates between evaluations; the last update is always evaluated")
    save_every: int = integer(250, "updates between checkpoints; the last update is always saved")
    log_every: int = integer(10, "updates between lines of metrics.jsonl")
    keep: int = integer(2, "number of recent checkpoints to keep, in addition to the best")
    patience: int = integer(0, "stop after this many evaluations without improvement; 0 = never", least=0)
    precision: str = choice(
        "auto",
        ("auto", "float32", "bfloat16", "float16"),
        "dtype of matrix products; auto: bfloat16 on GPUs that have it, else float32",
    )
    checkpointing: bool = flag(False, "recompute blocks in the backward pass: less memory, same gradients")
    compiled: bool = flag(False, "use torch.compile")
    threads: int = integer(0, "threads on a CPU; 0 = all that the steps are large enough for", least=0)
    seed: int = integer(1, "seed of all random numbers", least=0)

    def check(self) -> None:
        """Raise ArgumentError if there are too many threads, or ``accumulate`` parts do not divide the batch evenly."""
        check_threads(self.threads)
        if self.batch % self.accumulate:
            raise ArgumentError(f"a batch of {self.batch} cannot be split evenly into {self.accumulate} parts")

    @property
    def effective_warmup(self) -> int:
        """The updates of the warm-up: ``warmup``, or a tenth of the steps in a run that is shorter than that."""
        is_short = self.warmup >= self.steps and self.steps > 1
        return self.steps // 10 if is_short else self.warmup


def compute_rate_factor(settings: Settings, step: int) -> float:
    """Return the learning rate of an update as a fraction of the highest: linear warm-up, then half a cosine
    (Loshchilov and Hutter 2017).

    >>> settings = Settings(steps=100, warmup=9, final_rate=0.0)
    >>> [round(compute_rate_factor(settings, step), 2) for step in (0, 9, 99)]
    [0.1, 1.0, 0.0]
    """
    warmup = settings.effective_warmup
    if step < warmup:
        return (step + 1) / (warmup + 1)
    fraction = (step - warmup) / max(1, settings.steps - warmup)
    return settings.final_rate + (1 - settings.final_rate) * 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))
