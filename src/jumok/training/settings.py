"""How a model is trained: every number that is not the model's own, checked, as JSON in the run's folder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jumok.errors import ArgumentError
from jumok.fields import Fields, choice, flag, integer, real


@dataclass(frozen=True)
class Settings(Fields):
    """What ``jumok train --set field=value`` may change beside the model's config."""

    family: ClassVar[str] = "training"

    steps: int = integer(1000, "how many updates")
    batch: int = integer(32, "examples an update, over all processes")
    accumulate: int = integer(1, "in how many parts a process does its share of a batch: less memory, same gradients")
    learning_rate: float = real(1e-3, "the highest learning rate of AdamW", most=100.0)
    matrix_rate: float = real(2e-2, "the highest learning rate of Muon, for the matrices it has", most=100.0)
    final_rate: float = real(0.1, "the last learning rate, as a share of the highest", most=1.0)
    warmup: int = integer(100, "updates until the highest learning rate", least=0)
    optimizer: str = choice("adamw", ("adamw", "muon"), "muon: the matrices inside blocks by Muon, the rest by AdamW")
    beta1: float = real(0.9, "AdamW's memory of gradients", most=0.9999)
    beta2: float = real(0.99, "AdamW's memory of their squares", most=0.99999)
    decay: float = real(0.1, "weight decay, of matrices alone", most=10.0)
    clip: float = real(1.0, "the largest norm of the gradients; 0 = any")
    average: float = real(0.0, "memory of a running average, which is then the model; 0 = none", most=0.99999)
    evaluate_every: int = integer(250, "updates between evaluations; the last is always evaluated")
    save_every: int = integer(250, "updates between checkpoints; the last is always saved")
    log_every: int = integer(10, "updates between lines of metrics")
    keep: int = integer(2, "how many checkpoints are kept, beside the best")
    patience: int = integer(0, "stop after so many evaluations that were not better; 0 = never", least=0)
    precision: str = choice(
        "auto", ("auto", "float32", "bfloat16", "float16"), "auto: the fastest that was measured here"
    )
    checkpointing: bool = flag(False, "recompute blocks in the backward pass: less memory, same gradients")
    compiled: bool = flag(False, "torch.compile")
    threads: int = integer(0, "threads on a CPU; 0 = one where a step is too small to be worth sharing", least=0)
    seed: int = integer(1, "where every draw begins", least=0)

    def check(self) -> None:
        if self.batch % self.accumulate:
            raise ArgumentError(f"a batch of {self.batch} does not divide into {self.accumulate} parts")
        if self.warmup >= self.steps and self.steps > 1:
            object.__setattr__(self, "warmup", self.steps // 10)  # short trials of a recipe keep its shape


def compute_rate_factor(settings: Settings, step: int) -> float:
    """The learning rate before update ``step`` (from 0), as a share of the highest: up in a line, down in half a
    cosine (Loshchilov and Hutter 2017)."""
    if step < settings.warmup:
        return (step + 1) / (settings.warmup + 1)
    past = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.final_rate + (1 - settings.final_rate) * 0.5 * (1 + math.cos(math.pi * min(1.0, past)))
