"""Rotations slowed down, so that a model that was trained on short texts reads longer ones.

From one position to the next each pair of numbers turns by its frequency. Pairs that turn often within the texts of the
training tell neighbours apart, and keep their pace. Pairs that did not turn once there would come to angles that the
model has never seen, and become slower. The scalings differ in what happens to those between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError


@dataclass(frozen=True)
class RotaryScaling:
    """All pairs alike: each turns ``factor`` times slower (Chen et al. 2023)."""

    factor: float

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ArgumentError(f"a scaling's factor must be a number from 1 on, not {self.factor}")

    @property
    def gain(self) -> float:
        """What turned queries and keys are multiplied by."""
        return 1.0

    def scale_frequencies(self, frequencies: Float[Tensor, " pair"], base: float) -> Float[Tensor, " pair"]:
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """By how often a pair turns within ``length`` positions, those of the training (Llama 3.1, Grattafiori et al.
    2024): up to ``slow`` times and it is slowed down by the whole factor, from ``fast`` times on it is left alone, and
    between the two evenly from one to the other."""

    length: int
    slow: float = 1.0
    fast: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1 or not 0 < self.slow < self.fast < math.inf:
            raise ArgumentError(
                f"a scaling by turns needs a length of at least 1 and 0 < slow < fast, not {self.length}, {self.slow} "
                f"and {self.fast}"
            )

    def scale_frequencies(self, frequencies: Float[Tensor, " pair"], base: float) -> Float[Tensor, " pair"]:
        kept = self.kept(frequencies, base)
        return frequencies * kept + frequencies / self.factor * (1 - kept)

    def kept(self, frequencies: Float[Tensor, " pair"], base: float) -> Float[Tensor, " pair"]:
        """How much of its pace each pair keeps: 1 all of it, 0 it is slowed down by the whole factor."""
        turns = self.length * frequencies / (2 * math.pi)
        return ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)


@dataclass(frozen=True)
class YarnScaling(Llama3Scaling):
    """As by turns, but evenly from pair to pair, which is by the logarithm of the turns; and scores become sharper, by
    ``stretch`` on queries and keys each (YaRN, Peng et al. 2023)."""

    fast: float = 32.0
    stretch: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.stretch < math.inf:
            raise ArgumentError(f"a scaling's stretch must be above 0, not {self.stretch}")

    @property
    def gain(self) -> float:
        return self.stretch

    def kept(self, frequencies: Float[Tensor, " pair"], base: float) -> Float[Tensor, " pair"]:
        width = 2 * len(frequencies)

        def place(turns: float) -> float:
            """Which pair turns so often, as a fraction; pair i of n has the frequency base ** (-i / n)."""
            return width / 2 * math.log(self.length / (2 * math.pi * turns)) / math.log(base)

        # rounded outwards, and to width - 1 although there are but half as many pairs: as checkpoints were trained
        first, last = max(math.floor(place(self.fast)), 0), min(math.ceil(place(self.slow)), width - 1)
        across = last - first or 0.001
        return 1 - ((torch.arange(len(frequencies), device=frequencies.device) - first) / across).clamp(0, 1)
