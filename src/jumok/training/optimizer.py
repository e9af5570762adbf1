"""AdamW, and Muon for the matrices inside blocks. State is kept by parameter name, so that it can be saved by name."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from jumok.attention.projection import Fused

from .muon import Muon
from .parallel import distribute_like
from .settings import Settings


class Optimizers:
    """One or two torch optimizers that step together."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        named = model.named_parameters()
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in named if parameter.requires_grad}
        matrices = find_hidden_matrices(model) if settings.optimizer == "muon" else {}
        rest = [parameter for parameter in self.names if parameter not in matrices]
        groups = [
            {"params": [one for one in rest if one.dim() >= 2], "weight_decay": settings.decay},
            {"params": [one for one in rest if one.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self.parts: list[tuple[torch.optim.Optimizer, float]] = []
        if groups:
            betas = (settings.beta1, settings.beta2)
            # one kernel for all parameters; a sharded parameter is not a plain tensor, and takes the other way
            fused = all(type(one.data) is Tensor for one in rest)
            adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=fused)
            self.parts.append((adamw, settings.learning_rate))
        if matrices:
            muon = Muon(matrices, lr=settings.matrix_rate, weight_decay=settings.decay)
            self.parts.append((muon, settings.matrix_rate))

    def step(self, share: float, scaler: torch.amp.GradScaler | None = None) -> None:
        """One update, at this share of the highest learning rates. A scaler skips it where gradients overflowed."""
        for optimizer, highest in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = highest * share
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if scaler is not None:
            scaler.update()

    def clear(self) -> None:
        for optimizer, _ in self.parts:
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything the optimizers remember: "exp_avg.blocks.0.norm.weight" and the like."""
        for optimizer, _ in self.parts:
            for parameter, kept in optimizer.state.items():
                for what, value in kept.items():
                    yield f"{what}.{self.names[parameter]}", torch.as_tensor(value)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """As ``state`` gave it. Sharded parameters take their own share of each tensor."""
        places = {name: parameter for parameter, name in self.names.items()}
        owners = {one: part for part, _ in self.parts for group in part.param_groups for one in group["params"]}
        for key, value in tensors.items():
            what, name = key.split(".", 1)
            parameter = places[name]
            if value.dim():
                value = distribute_like(value, parameter)
            owners[parameter].state[parameter][what] = value.clone()


def find_hidden_matrices(model: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """The matrices that map hidden vectors to hidden vectors, each with the heights of the maps joined in it."""
    found: dict[Tensor, tuple[int, ...]] = {}
    outputs = {id(module) for name, module in model.named_children() if name == "output"}
    for module in model.modules():
        if isinstance(module, Fused):
            found[module.joined.weight] = module.widths
    for module in model.modules():
        if isinstance(module, nn.Linear) and id(module) not in outputs and module.weight.requires_grad:
            found.setdefault(module.weight, (module.weight.shape[0],))
    return found
