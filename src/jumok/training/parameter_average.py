"""A running average of the parameters, which reduces the noise of the last steps (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class ParameterAverage:
    """The exponential moving average of a model's parameters."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the current parameters."""
        # the decay rate starts low: the first parameters are random
        weight = 1 - min(self.decay, (1 + step) / (10 + step))
        parameters = dict(self.model.named_parameters())
        averages = [self.tensors[name] for name in parameters]
        torch._foreach_lerp_(averages, [parameter.detach() for parameter in parameters.values()], weight)

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Use the averaged parameters in the model while the context is open."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.model.named_parameters():
            trained = parameter.detach().clone()
            parameter.copy_(self.tensors[name])
            self.tensors[name].copy_(trained)
