"""Muon: momentum with orthogonalised updates (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

The update of a matrix is the nearest matrix with orthogonal rows or columns, approximated by a few Newton-Schulz
iterations. They run in float32: bfloat16 is slow on most CPUs, and was not better in any measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .parallel import distribute_like, gather_tensor

# Coefficients of x, x^3 and x^5 (Jordan et al.): steep at 0, so that a few iterations bring every singular value near
# 1. The paper iterates five times; four cost a fifth less and were not worse (bench/results).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """The Muon optimizer, for matrices only: ``matrices`` are the parameters, each with the numbers of rows of the
    linear maps that are concatenated in it. Each map is orthogonalised separately."""

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
        """Update all matrices that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            maps = []
            for parameter in parameters:
                direction = gather_tensor(self._compute_direction(parameter, group["momentum"]))
                maps += direction.split(self.heights[parameter])

            updates = iter(orthogonalize_all(maps, group["steps"]))
            for parameter in parameters:
                update = torch.cat([next(updates) for _ in self.heights[parameter]])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(distribute_like(update.to(parameter.dtype), parameter), alpha=-group["lr"])

    def _compute_direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """Update the momentum and return Nesterov's direction."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        grad = parameter.grad
        assert grad is not None
        state["momentum"].lerp_(grad, 1 - momentum)
        return grad.lerp(state["momentum"], momentum)


def orthogonalize_all(matrices: list[Tensor], steps: int) -> list[Tensor]:
    """Orthogonalise matrices, those of one shape in one batched product. The results are scaled so that the root mean
    square of an update does not depend on the shape.
    """
    # transpose tall matrices: the iteration then multiplies by the smaller of the two Gram matrices
    wide = [matrix.T if matrix.shape[0] > matrix.shape[1] else matrix for matrix in matrices]
    indices_by_shape: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(wide):
        indices_by_shape.setdefault(matrix.shape, []).append(index)

    orthogonal = list(matrices)
    for indices in indices_by_shape.values():
        stacked = orthogonalize(torch.stack([wide[index] for index in indices]), steps)
        for index, matrix in zip(indices, stacked, strict=True):
            rows, columns = matrices[index].shape
            orthogonal[index] = (matrix.T if rows > columns else matrix) * max(1.0, rows / columns) ** 0.5
    return orthogonal


def orthogonalize(stacked: Tensor, steps: int) -> Tensor:
    """Return matrices [count, rows, columns], rows <= columns, with nearly orthogonal rows (singular values near 1)."""
    first, third, fifth = COEFFICIENTS
    x = stacked.float()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = first * x + torch.baddbmm(third * square, square, square, alpha=fifth) @ x
    return x
