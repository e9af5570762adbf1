"""AdamW, Muon for the matrices inside blocks, and a running average of the parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from jumok.attention.projection import Fused

from .muon import Muon
from .parallel import distribute_like
from .settings import Settings


class Optimizers:
    """One or two torch optimizers that update a model together. Their state is saved by parameter name."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad
        }
        matrices = find_hidden_matrices(model) if settings.optimizer == "muon" else {}
        remaining = [parameter for parameter in self.names if parameter not in matrices]
        groups = [
            {"params": [parameter for parameter in remaining if parameter.dim() >= 2], "weight_decay": settings.decay},
            {"params": [parameter for parameter in remaining if parameter.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]

        #: each optimizer with its highest learning rate
        self.parts: list[tuple[torch.optim.Optimizer, float]] = []
        if groups:
            # fused: one kernel for all parameters; it does not accept sharded parameters
            fused = all(type(parameter.data) is Tensor for parameter in remaining)
            betas = (settings.beta1, settings.beta2)
            adamw = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=fused)
            self.parts.append((adamw, settings.learning_rate))
        if matrices:
            muon = Muon(matrices, lr=settings.matrix_rate, weight_decay=settings.decay)
            self.parts.append((muon, settings.matrix_rate))

    def step(self, rate_factor: float, scaler: torch.amp.GradScaler | None = None) -> None:
        """Update the parameters by a fraction of the highest learning rate, and clear their gradients."""
        for optimizer, highest_rate in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = highest_rate * rate_factor
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        if scaler is not None:
            scaler.update()

    def iterate_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the state of all optimizers by name, such as "exp_avg.blocks.0.norm.weight"."""
        for optimizer, _ in self.parts:
            for parameter, tensors in optimizer.state.items():
                for kind, tensor in tensors.items():
                    yield f"{kind}.{self.names[parameter]}", torch.as_tensor(tensor)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that ``iterate_state`` yielded. A sharded parameter takes its shard of each tensor."""
        parameters = {name: parameter for parameter, name in self.names.items()}
        owners = {
            parameter: optimizer
            for optimizer, _ in self.parts
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for key, tensor in tensors.items():
            kind, name = key.split(".", 1)
            parameter = parameters[name]
            shard = distribute_like(tensor, parameter) if tensor.dim() else tensor
            owners[parameter].state[parameter][kind] = shard.clone()


def find_hidden_matrices(model: nn.Module) -> dict[Tensor, tuple[int, ...]]:
    """Return the matrices that map hidden vectors to hidden vectors, each with the row counts of the maps in it.

    Output layers and embeddings are excluded.
    """
    matrices: dict[Tensor, tuple[int, ...]] = {}
    matrices |= {module.joined.weight: module.widths for module in model.modules() if isinstance(module, Fused)}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "output" and module.weight.requires_grad:
            matrices.setdefault(module.weight, (module.weight.shape[0],))
    return matrices


class ParameterAverage:
    """The exponential moving average of a model's parameters: less noise of the last steps (Polyak, Juditsky 1992)."""

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
