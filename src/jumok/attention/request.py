"""What the door hands to a backend, and what a backend hands back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from .bias import Bias
from .grid import Grid, Positions
from .mask import Mask
from .score import Score


@dataclass
class Request:
    """One call of ``attend``, checked. Half-precision tensors come as they are; backends compute in float32."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | None
    bias: Bias | None
    score: Score
    query_positions: Positions
    key_positions: Positions
    dropout: float
    weights: bool
    logsumexp: bool

    @cached_property
    def grid(self) -> Grid:
        batch, head = self.query.shape[:2]
        return Grid(range(batch), range(head), self.query_positions, self.key_positions, self.query.device)


class Answer(NamedTuple):
    output: Tensor
    weights: Tensor | None = None
    logsumexp: Tensor | None = None  # of each row's masked scores: with query and key, enough for any tile


@runtime_checkable
class Backend(Protocol):
    """A way to compute a request. A module with these two functions is one."""

    def refuses(self, request: Request) -> str | None:
        """Why it cannot do this, and which backend can; None where it can."""

    def compute(self, request: Request) -> Answer: ...
