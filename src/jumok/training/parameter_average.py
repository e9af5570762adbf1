"""A running average of the parameters: noise of the last steps cancels out (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class ParameterAverage:
    def __init__(self, model: nn.Module, memory: float) -> None:
        self.model, self.memory = model, memory
        self.kept = {name: one.detach().clone() for name, one in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        # young averages remember less: the first parameters were drawn, not learned
        share = 1 - min(self.memory, (1 + step) / (10 + step))
        parameters = dict(self.model.named_parameters())
        kept = [self.kept[name] for name in parameters]
        torch._foreach_lerp_(kept, [one.detach() for one in parameters.values()], share)

    @contextmanager
    def used(self) -> Iterator[None]:
        """While open, the model's parameters are the average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.model.named_parameters():
            held: Tensor = parameter.detach().clone()
            parameter.copy_(self.kept[name])
            self.kept[name].copy_(held)
