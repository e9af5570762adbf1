"""What ``attend()`` passes to a backend, and what a backend returns."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from jumok.attention.bias import Bias
from jumok.attention.grid import Grid, Positions
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import BackendError


@dataclass(slots=True)
class AttentionRequest:
    """The checked arguments of one ``attend()`` call; backends compute half-precision tensors in float32."""

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
        """All cells of this call; created on first use."""
        if self._grid is None:
            batch, head, _, _ = self.query.shape
            self._grid = Grid(range(batch), range(head), self.query_positions, self.key_positions, self.query.device)
        return self._grid


class AttentionOutput(NamedTuple):
    """The output of a backend, with the weights and the log-sum-exp of each row's masked scores if requested."""

    output: Tensor
    weights: Tensor | None = None
    logsumexp: Tensor | None = None


def disable_autocast(request: AttentionRequest) -> AbstractContextManager[object]:
    """Return a context in which autocast changes no dtype."""
    device = request.query.device.type
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)  # meta has no autocast


@runtime_checkable
class Backend(Protocol):
    """A way to compute a request: a module with these two functions."""

    def explain_refusal(self, request: AttentionRequest) -> str | None:
        """Return why this backend cannot compute the request and which one can, or None if it can."""

    def compute(self, request: AttentionRequest) -> AttentionOutput:
        """Compute a request that is not refused."""


def get_table_versions(mask: Mask | None) -> list[int]:
    """Return the versions of a mask's tables, which a backward pass reads again."""
    return [] if mask is None else [table._version for table in mask.tables]


def check_backward(mask: Mask | None, versions: list[int]) -> None:
    """Raise BackendError for a second derivative, or if a table of the mask has changed since the forward pass."""
    if torch.is_grad_enabled():  # create_graph=True, but the gradients that the blocked backend computes have no graph
        raise BackendError('blocked has no second derivative; use backend="explicit"')
    if versions != get_table_versions(mask):
        raise BackendError(
            "a table of the mask was changed between the forward and the backward pass; pass a copy of it"
        )
