"""The base class of attention layers: the settings of a layer, and its call of ``attend()``."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from jumok.errors import ArgumentError, BackendError

from .attend import BACKENDS, attend
from .bias import Bias
from .grid import Positions
from .mask import Mask
from .score import ScaledDot, Score


class AttentionLayer(nn.Module):
    """The settings that ``Head`` and ``MultiHead`` pass to ``attend()``."""

    score: Score
    sink: nn.Parameter | None
    dropout: float
    backend: str
    site: str

    def _configure(self, score: Score | None, dropout: float, backend: str, site: str) -> None:
        self.score = ScaledDot() if score is None else score
        check_settings(self.score, dropout, backend)
        # Registered here, because the score that holds a learned sink is not a module.
        self.sink = self.score.sink if isinstance(self.score.sink, nn.Parameter) else None
        self.dropout, self.backend, self.site = dropout, backend, site

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Mask | None,
        bias: Bias | None,
        weights: bool,
        query_positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Call ``attend()`` with the settings of this layer; the weights are None unless requested."""
        score = self.score
        if self.sink is not None and isinstance(score, ScaledDot):
            score = dataclasses.replace(score, sink=self.sink)
        attended = attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            score=score,
            query_positions=query_positions,
            key_positions=key_positions,
            dropout=self.dropout if self.training else 0.0,  # attend() has no training mode
            backend=self.backend,
            site=self.site,
            weights=weights,
        )
        return attended if isinstance(attended, tuple) else (attended, None)


def check_settings(score: object, dropout: float, backend: str) -> None:
    """Raise an error for settings that ``attend()`` would refuse when the model first runs.

    Args:
        score: Must be a ``Score``.
        dropout: Must be at least 0 and below 1.
        backend: Must be "auto" or a name in ``BACKENDS``.
    """
    if not isinstance(score, Score):
        raise ArgumentError(f"score must be a Score of jumok.attention.score, such as ScaledDot(), not {score!r}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be at least 0 and below 1, not {dropout}")
    if backend != "auto" and backend not in BACKENDS:
        raise BackendError(f"unknown backend {backend!r}; choose one of auto, {', '.join(BACKENDS)}")
