"""Choose the dtype of the matrix products in a training step, by a rule, and compute steps in that dtype.

float16 has too little range for small gradients, so its losses are scaled (Micikevicius et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_precision(device: torch.device) -> str:
    """Return the dtype for ``precision="auto"``: it depends on the device only, so that equal commands train equally.

    bfloat16 on GPUs that have it in hardware, float32 everywhere else. On CPUs with instructions for bfloat16, it is
    slower than float32 at the recipes' sizes; without them, many times slower (bench/results).

    >>> choose_precision(torch.device("cpu"))
    'float32'
    """
    # GPUs without bfloat16 in hardware emulate it, which is slower than float32
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    return "float32"


class Precision:
    """Autocast for the forward pass, and loss scaling for the backward pass if the type is float16."""

    def __init__(self, name: str, device: torch.device, scaler_state: Mapping[str, float] | None = None) -> None:
        self.name, self.device = name, device
        self.scaler = torch.amp.GradScaler(device.type) if name == "float16" else None
        if self.scaler is not None and scaler_state:
            integers = {key: int(scaler_state[key]) for key in ("growth_interval", "_growth_tracker")}
            self.scaler.load_state_dict({**scaler_state, **integers})

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the loss is computed."""
        if self.name == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, TYPES[self.name])

    def backward(self, loss: Tensor) -> None:
        """Compute gradients, of the scaled loss if there is a scaler."""
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()

    def unscale(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Divide the gradients by the scale of the loss, before they are clipped."""
        if self.scaler is not None:
            for optimizer in optimizers:
                self.scaler.unscale_(optimizer)

    def get_state(self) -> dict[str, float]:
        """Return the state of the scaler; empty without one."""
        return {} if self.scaler is None else {name: float(value) for name, value in self.scaler.state_dict().items()}
