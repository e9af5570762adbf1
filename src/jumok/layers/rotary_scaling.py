"""Scaling of rotary positions, so that a model trained on short texts can read longer ones.

Each pair of numbers rotates by its frequency from one position to the next. Pairs that turn often within the training
length distinguish neighbours and keep their frequency. Pairs that did not complete one turn would reach angles never
seen in training; they are slowed down. The scalings differ in the pairs between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError

Frequencies = Float[Tensor, " pair"]


@dataclass(frozen=True)
class RotaryScaling:
    """Linear scaling: every pair rotates ``factor`` times slower (Chen et al. 2023).

    Args:
        factor: Divisor of the frequencies, at least 1.
    """

    factor: float

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ArgumentError(f"factor must be a finite number of at least 1, not {self.factor}")

    @property
    def gain(self) -> float:
        """Factor of the rotated queries and keys."""
        return 1.0

    def scale_frequencies(self, frequencies: Frequencies, base: float) -> Frequencies:
        """Return the scaled frequencies.

        Args:
            frequencies: Angle per position of each pair.
            base: Base of the rotary positions.
        """
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Scaling by the number of turns within the training length (Llama 3.1, Grattafiori et al. 2024).

    Args:
        factor: Divisor of the slowest frequencies, at least 1.
        length: Training length in positions.
        slow: Pairs with at most this many turns are divided by ``factor``.
        fast: Pairs with at least this many turns are not scaled; between the two, the scaling is interpolated.
    """

    length: int
    slow: float = 1.0
    fast: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1 or not 0 < self.slow < self.fast < math.inf:
            raise ArgumentError(
                f"length must be at least 1 and 0 < slow < fast; not length {self.length}, slow {self.slow}, "
                f"fast {self.fast}"
            )

    def scale_frequencies(self, frequencies: Frequencies, base: float) -> Frequencies:
        unscaled = self.compute_unscaled_share(frequencies, base)
        return frequencies * unscaled + frequencies / self.factor * (1 - unscaled)

    def compute_unscaled_share(self, frequencies: Frequencies, base: float) -> Frequencies:
        """Return for each pair the share of its unscaled frequency: 1 is not scaled, 0 is divided by ``factor``.

        Args:
            frequencies: Angle per position of each pair.
            base: Base of the rotary positions.
        """
        turns = self.length * frequencies / (2 * math.pi)
        return ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)


@dataclass(frozen=True)
class YarnScaling(Llama3Scaling):
    """Llama3Scaling interpolated over the index of the pair, with sharper scores (YaRN, Peng et al. 2023).

    Args:
        factor: Divisor of the slowest frequencies, at least 1.
        length: Training length in positions.
        slow: Pairs with at most this many turns are divided by ``factor``.
        fast: Pairs with at least this many turns are not scaled.
        stretch: Factor of the rotated queries and of the rotated keys.
    """

    fast: float = 32.0
    stretch: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.stretch < math.inf:
            raise ArgumentError(f"stretch must be a finite number above 0, not {self.stretch}")

    @property
    def gain(self) -> float:
        return self.stretch

    def compute_unscaled_share(self, frequencies: Frequencies, base: float) -> Frequencies:
        width = 2 * len(frequencies)

        def find_pair(turns: float) -> float:
            """Return the fractional index of the pair with this many turns; its frequency is base ** (-2i / width)."""
            return width / 2 * math.log(self.length / (2 * math.pi * turns)) / math.log(base)

        # Rounded outwards, and clamped to width - 1 although there are only width / 2 pairs, as in published models.
        first = max(math.floor(find_pair(self.fast)), 0)
        last = min(math.ceil(find_pair(self.slow)), width - 1)
        distance = last - first or 0.001
        indices = torch.arange(len(frequencies), device=frequencies.device)
        return 1 - ((indices - first) / distance).clamp(0, 1)
