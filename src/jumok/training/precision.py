"""Which number type the products of a training step are computed in; chosen by measuring, never by hope.

bfloat16 on a CPU without instructions for it is many times slower than float32; float16 has too little range for
small gradients, so its losses are scaled (Micikevicius et al. 2018).
"""

from __future__ import annotations

import functools
import time
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WORTH = 1.2  # how much faster it must be than float32 to be chosen


@functools.cache
def measure_fastest_type(device: str) -> str:
    """bfloat16, float16 or float32: the fastest for products on this device."""
    options = ["bfloat16", "float16"] if device != "cpu" else ["bfloat16"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other, which would be measured instead
    try:
        plain = _seconds("float32", device)
        for name in options:
            try:
                if _seconds(name, device, give_up=plain) * WORTH < plain:
                    return name
            except RuntimeError:  # this device does not have it
                continue
        return "float32"
    finally:
        torch.set_num_threads(threads)


def _seconds(name: str, device: str, give_up: float = float("inf")) -> float:
    # small on a CPU: one without instructions for a type takes seconds for a large product of it
    size = 256 if device == "cpu" else 4096
    matrix = torch.ones(size, size, device=device, dtype=TYPES[name])
    times = []
    small = matrix[:32, :32] @ matrix[:32, :32]  # the first product of a kind sets it up
    for _ in range(6):
        _wait(device)
        start = time.perf_counter()
        small = matrix @ matrix
        _wait(device)
        times.append(time.perf_counter() - start)
        if times[-1] > 3 * give_up:
            break
    del small
    return min(times)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Precision:
    """Autocast around the forward pass, and a scaler around the backward pass where the type is float16."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.device = device
        self._begin(measure_fastest_type(device.type) if name == "auto" else name)

    def _begin(self, name: str) -> None:
        self.name = name
        self.scaler = torch.amp.GradScaler(self.device.type) if name == "float16" else None

    def autocast(self) -> AbstractContextManager[object]:
        if self.name == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, TYPES[self.name])

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def unscale(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Gradients as they are, before they are measured and clipped."""
        if self.scaler is not None:
            for one in optimizers:
                self.scaler.unscale_(one)

    def state(self) -> dict[str, float]:
        return {} if self.scaler is None else {name: float(value) for name, value in self.scaler.state_dict().items()}

    def restore(self, name: str, told: dict[str, float]) -> None:
        """As the run began, even where a measurement would say something else today."""
        if name != self.name:
            self._begin(name)
        if self.scaler is not None and told:
            whole = {name: int(told[name]) for name in ("growth_interval", "_growth_tracker")}
            self.scaler.load_state_dict({**told, **whole})
