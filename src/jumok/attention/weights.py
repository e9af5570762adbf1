"""Attention weights on request: the call of every attention, block and model takes ``weights=True``.

Nothing passes the request down. A listener requests the weights, and ``attend()`` computes those of every site that a
listener requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.tap import Listener, listen


class WeightsRecorder(Listener):
    """Requests and records the weights of every attention, as (site, weights) in the order of the calls."""

    only_reads = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, Tensor]] = []

    def accepts(self, site: str) -> bool:
        return site.endswith(".weights")

    def requests(self, site: str) -> bool:
        return self.accepts(site)

    def __call__(self, site: str, value: Tensor) -> Tensor:
        self.calls.append((site.removesuffix(".weights"), value))
        return value


@contextmanager
def record_weights() -> Iterator[list[tuple[str, Tensor]]]:
    """Record the weights of every attention inside the context, as (site, weights) in the order of the calls."""
    recorder = WeightsRecorder()
    with listen(recorder):
        yield recorder.calls


class AttentionModule(nn.Module):
    """A module whose call can return the weights of the attentions in it: ``output, weights = module(x, weights=True)``
    for one attention, ``output, (first, second) = ...`` for several."""

    def __call__(self, *inputs: Any, weights: bool = False, **settings: Any) -> Any:
        """Call ``forward``, and return the weights too if they are requested."""
        if not weights:
            return super().__call__(*inputs, **settings)
        with record_weights() as calls:
            output = super().__call__(*inputs, **settings)
        if not calls:
            raise ArgumentError(f"this {type(self).__name__} has no weights, because no attention is computed in it")
        return self.add_weights(output, calls)

    def add_weights(self, output: Any, calls: list[tuple[str, Tensor]]) -> Any:
        """Return what the call returns with ``weights=True``."""
        layer_weights = tuple(weights for _, weights in calls)
        return output, layer_weights[0] if len(layer_weights) == 1 else layer_weights
