"""Muon: momentum whose directions are made equally long (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

A matrix's update is the nearest matrix with orthogonal rows or columns, found without a decomposition by a few steps
of a polynomial (Newton and Schulz). Done in float32: bfloat16 is slow on most CPUs, and no better anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .parallel import distribute_like

# the polynomial of Jordan et al.: steep at 0, so that a few steps bring every singular value near 1. They take five;
# four are a fifth cheaper, and no worse (LOG.md)
FIFTH = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """For matrices only. ``matrices``: each with the heights of the maps that are joined in it, which are made
    orthogonal one by one."""

    def __init__(
        self,
        matrices: dict[Tensor, tuple[int, ...]],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 4,
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps})
        self.heights = matrices

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [one for one in group["params"] if one.grad is not None]
            directions = [self._direction(one, group["momentum"]) for one in parameters]
            both = zip(parameters, directions, strict=True)
            pieces = [piece for one, direction in both for piece in self._cut(one, direction)]
            made = iter(orthogonalize_all(pieces, group["steps"]))
            for parameter in parameters:
                update = torch.cat([next(made) for _ in self.heights[parameter]])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(distribute_like(update.to(parameter.dtype), parameter), alpha=-group["lr"])

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """Nesterov's: the gradient, and where the momentum will be."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        grad = parameter.grad
        assert grad is not None
        state["momentum"].lerp_(grad, 1 - momentum)
        return grad.lerp(state["momentum"], momentum)

    def _cut(self, parameter: Tensor, direction: Tensor) -> list[Tensor]:
        whole = direction.full_tensor() if hasattr(direction, "full_tensor") else direction
        return list(whole.split(self.heights[parameter]))


def orthogonalize_all(matrices: list[Tensor], steps: int) -> list[Tensor]:
    """Every matrix made orthogonal; those of one shape in one product. Scaled so that the root mean square of a step
    does not depend on the shape."""
    found: dict[int, Tensor] = {}
    shapes: dict[tuple[int, int], list[int]] = {}
    for place, one in enumerate(matrices):
        rows, columns = one.shape
        shapes.setdefault((min(rows, columns), max(rows, columns)), []).append(place)
    for places in shapes.values():
        tall = [matrices[place].shape[0] > matrices[place].shape[1] for place in places]
        stacked = torch.stack([matrices[p].T if t else matrices[p] for p, t in zip(places, tall, strict=True)])
        for place, made, turned in zip(places, orthogonalize(stacked, steps), tall, strict=True):
            rows, columns = matrices[place].shape
            found[place] = (made.T if turned else made) * max(1.0, rows / columns) ** 0.5
    return [found[place] for place in range(len(matrices))]


def orthogonalize(stacked: Tensor, steps: int) -> Tensor:
    """[count, rows, columns] with rows <= columns: nearly orthogonal rows, singular values about 1."""
    first, third, fifth = FIFTH
    made = stacked.float()
    made = made / made.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        square = made @ made.mT
        made = first * made + torch.baddbmm(third * square, square, square, alpha=fifth) @ made
    return made
