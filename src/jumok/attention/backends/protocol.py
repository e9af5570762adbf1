"""What the door hands to a backend, and what a backend hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from jumok.attention.bias import Bias
from jumok.attention.grid import Grid, Positions
from jumok.attention.mask import Mask
from jumok.attention.score import Score


@dataclass(slots=True)
class AttentionRequest:
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

    _grid: Grid | None = None

    @property
    def grid(self) -> Grid:
        """All cells of this call; made when first asked for."""
        if self._grid is None:
            batch, head, _, _ = self.query.shape
            self._grid = Grid(range(batch), range(head), self.query_positions, self.key_positions, self.query.device)
        return self._grid


class AttentionOutput(NamedTuple):
    output: Tensor
    weights: Tensor | None = None
    logsumexp: Tensor | None = None  # of each row's masked scores: with query and key, enough for any tile


@runtime_checkable
class Backend(Protocol):
    """A way to compute a request. A module with these two functions is one."""

    def explain_refusal(self, request: AttentionRequest) -> str | None:
        """Why it cannot do this, and which backend can; None where it can."""

    def compute(self, request: AttentionRequest) -> AttentionOutput: ...
