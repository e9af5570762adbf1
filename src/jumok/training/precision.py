"""Choose the dtype of the matrix products in a training step, by measurement.

bfloat16 is many times slower than float32 on a CPU without instructions for it. float16 has too little range for small
gradients, so its losses are scaled (Micikevicius et al. 2018).
"""

from __future__ import annotations

import functools
import time
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MINIMUM_SPEEDUP = 1.2  # over float32


@functools.cache
def measure_fastest_type(device: str) -> str:
    """Return the fastest type for matrix products: "bfloat16", "float16" or "float32".

    Args:
        device: The device type, such as "cpu" or "cuda".
    """
    candidates = ["bfloat16", "float16"] if device != "cpu" else ["bfloat16"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with several threads on a busy machine, the waiting times would dominate the measurement
    try:
        float32_seconds = _time_product("float32", device)
        for name in candidates:
            try:
                if _time_product(name, device, limit=3 * float32_seconds) * MINIMUM_SPEEDUP < float32_seconds:
                    return name
            except RuntimeError:  # the device does not support this type
                continue
        return "float32"
    finally:
        torch.set_num_threads(threads)


def _time_product(name: str, device: str, limit: float = float("inf")) -> float:
    """Return the seconds of the fastest of six matrix products; stop after three if all take longer than ``limit``."""
    # small on a CPU: without instructions for the type a large product takes seconds
    size = 256 if device == "cpu" else 4096
    matrix = torch.ones(size, size, device=device, dtype=TYPES[name])
    torch.mm(matrix[:32, :32], matrix[:32, :32])  # warm-up: the first product of a dtype includes its initialisation
    times = []
    for _ in range(6):
        _synchronize(device)
        start = time.perf_counter()
        torch.mm(matrix, matrix)
        _synchronize(device)
        times.append(time.perf_counter() - start)
        if len(times) == 3 and min(times) > limit:  # one slow product may be another program's fault
            break
    return min(times)


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Precision:
    """Autocast for the forward pass, and loss scaling for the backward pass if the type is float16.

    Args:
        name: "float32", "bfloat16" or "float16".
        device: Where the model is.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.device = device
        self._set_type(name)

    def _set_type(self, name: str) -> None:
        self.name = name
        self.scaler = torch.amp.GradScaler(self.device.type) if name == "float16" else None

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the loss is computed."""
        if self.name == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, TYPES[self.name])

    def backward(self, loss: Tensor) -> None:
        """Compute gradients, of the scaled loss if there is a scaler.

        Args:
            loss: A scalar.
        """
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()

    def unscale(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Divide the gradients by the scale of the loss, before they are clipped.

        Args:
            optimizers: The optimizers whose parameters have gradients.
        """
        if self.scaler is not None:
            for optimizer in optimizers:
                self.scaler.unscale_(optimizer)

    def get_state(self) -> dict[str, float]:
        """Return the state of the scaler; empty without one."""
        return {} if self.scaler is None else {name: float(value) for name, value in self.scaler.state_dict().items()}

    def restore(self, name: str, scaler_state: dict[str, float]) -> None:
        """Continue with the dtype that the run started with, even if a new measurement would choose another.

        Args:
            name: The name of the dtype.
            scaler_state: What ``state`` returned.
        """
        if name != self.name:
            self._set_type(name)
        if self.scaler is not None and scaler_state:
            integers = {key: int(scaler_state[key]) for key in ("growth_interval", "_growth_tracker")}
            self.scaler.load_state_dict({**scaler_state, **integers})
