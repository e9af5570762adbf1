"""The rows of the experiment ``recurrence``: quality by length, cost by length, and where each head looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QualityRow:
    """One model on held-out sequences of one length.

    Attributes:
        forced: For each seed, the share of tokens that are right where the tokens before them are given.
        generated: For each seed, the share of tokens that are right in greedily generated copies.
    """

    model: str
    length: int
    forced: tuple[float, ...]
    generated: tuple[float, ...]


@dataclass(frozen=True)
class SpeedRow:
    """The cost of one model.

    Attributes:
        model: The name of the model, or ``lstm_unfused``.
        steps: For each length, the operations of a forward pass that must wait for each other.
        milliseconds: For each length, the processor time of a forward and backward pass for one sequence.
    """

    model: str
    parameters: int
    steps: tuple[int, ...]
    milliseconds: tuple[float, ...]

    @property
    def growth(self) -> float:
        """By which factor the time grows from the shortest to the longest sequence."""
        return self.milliseconds[-1] / self.milliseconds[0]


@dataclass(frozen=True)
class ViewRow:
    """Where one head of an attention to the source looks.

    Attributes:
        layer: The layer, counted from 1.
        head: The head, counted from 1.
        offset: The distance from the token that comes next to the source token with the most weight; 0 is that token.
        weight: The share of the head's weight at this distance.
    """

    model: str
    layer: int
    head: int
    offset: int
    weight: float
