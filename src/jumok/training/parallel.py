"""Train in one process or several. All communication between processes is in this module.

ddp: every process has the full model, and gradients are averaged. fsdp: parameters, gradients and optimizer state are
sharded over the processes (FSDP2, Zhao et al. 2023). ``jumok train --processes`` or ``torchrun`` starts the processes;
they connect through the environment variables that it sets.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from jumok.errors import ArgumentError, TrainingError
from jumok.models import Model

# set by `jumok train --processes` for the processes that it starts
LAUNCHER_VARIABLE = "JUMOK_LAUNCHER"  # the id of the process that starts them
STORE_VARIABLE = "JUMOK_STORE"  # the file through which they find each other
LOST_PROCESS_CODE = 75  # their exit code after another process was lost
PR_SET_PDEATHSIG = 1  # linux/prctl.h
WATCH_SECONDS = 1.0


class LostProcessError(TrainingError):
    """Another process of the run has ended, so that this one cannot continue."""


@dataclass(frozen=True)
class World:
    """The processes of a run; by default this process alone."""

    kind: str = "none"  # or "ddp" or "fsdp"
    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    #: the group in which processes wait without a time limit, while the main process prepares data, evaluates or saves
    waiting: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """True for the process that evaluates, writes files and prints."""
        return self.rank == 0

    def wrap(self, model: Model) -> nn.Module:
        """Return the module whose forward pass trains in all processes; fsdp shards the model's parameters in place."""
        if self.kind == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        if self.kind == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for stack in model.modules():
                if isinstance(stack, nn.ModuleList):
                    for block in stack:
                        fully_shard(block)
            fully_shard(model)
        return model

    def all_reduce_sum(self, number: int | float) -> int | float:
        """Return the sum of a number over all processes."""
        return self._all_reduce(number, dist.ReduceOp.SUM)

    def all_reduce_max(self, number: int | float) -> int | float:
        """Return the maximum of a number over all processes."""
        return self._all_reduce(number, dist.ReduceOp.MAX)

    def _all_reduce(self, number: int | float, operation: dist.ReduceOp.RedOpType) -> int | float:
        if self.size == 1:
            return number
        reduced = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(reduced, operation)
        return float(reduced)

    def broadcast(self, content: Any) -> Any:
        """Return the main process's content, which JSON can represent, in all processes, however long they wait."""
        if self.size == 1:
            return content
        encoded = json.dumps(content).encode() if self.is_main else b""
        length = torch.tensor([len(encoded)])
        dist.broadcast(length, 0, self.waiting)
        buffer = torch.empty(int(length), dtype=torch.uint8)
        if self.is_main:
            buffer.copy_(torch.frombuffer(bytearray(encoded), dtype=torch.uint8))
        dist.broadcast(buffer, 0, self.waiting)
        return json.loads(bytes(buffer.tolist()))

    def barrier(self) -> None:
        """Wait until all processes have reached this line, as long as it takes."""
        if self.size > 1:
            dist.barrier(self.waiting)

    def gather_model(self, model: Model) -> Model:
        """Return the unsharded model: itself, or a copy of its gathered shards."""
        if self.kind != "fsdp":
            return model
        tensors = {name: gather_tensor(parameter.detach()) for name, parameter in model.named_parameters()}
        with torch.device("meta"):
            gathered = type(model)(model.config)  # every family is built from its config
        gathered.load_state_dict(tensors, strict=False, assign=True)
        return gathered


def gather_tensor(tensor: Tensor) -> Tensor:
    """Return a sharded tensor with all its shards, in every process; an ordinary tensor is returned as it is."""
    if not dist.is_available() or not dist.is_initialized():
        return tensor
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def distribute_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Move a full tensor to a parameter's device, and shard it as the parameter is."""
    tensor = tensor.to(parameter.device)
    if not dist.is_available() or not dist.is_initialized():
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor):
        return tensor
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)


def select_device(name: str | None = None) -> torch.device:
    """Return a device by its name in PyTorch, or the fastest one: CUDA if there is a GPU, else MPS, else the CPU."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        return torch.empty(0, device=torch.device(name)).device
    except (RuntimeError, AssertionError, NotImplementedError):
        available = ["cpu"]
        available += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        available += ["mps"] if torch.backends.mps.is_available() else []
        raise ArgumentError(f"device {name!r} is not available; choose {' or '.join(available)}") from None


@contextmanager
def connect_world(kind: str, device: torch.device) -> Iterator[World]:
    """Connect the processes that torchrun started while the context is open; without torchrun, this process alone.

    The kind "none" becomes "ddp" if there are several processes.
    """
    size = read_variable("WORLD_SIZE", 1)
    if size == 1 and kind == "none":
        yield World(device=device)
        return
    if "RANK" not in os.environ:
        raise TrainingError(
            f"parallel {kind} needs several processes; use --processes N, or from Python torchrun (see the handbook)"
        )

    if kind == "none":
        kind = "ddp"
    if device.type == "cuda":
        device = torch.device("cuda", read_variable("LOCAL_RANK", 0))
        torch.cuda.set_device(device)
    follow_launcher()
    # for a process that hangs in a step; a process that dies is detected immediately
    seconds = read_variable("JUMOK_TIMEOUT", 600, least=1)
    path = os.environ.get(STORE_VARIABLE)
    store = None if path is None else dist.FileStore(path, size)  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=seconds),
        store=store,  # None: torchrun has set the address of a server
        rank=read_variable("RANK", 0),
        world_size=size,
    )
    try:
        # what the main process does alone can take hours; gloo still reports at once that a process has died
        waiting = dist.new_group(backend="gloo", timeout=timedelta(days=365))
        yield World(kind, dist.get_rank(), dist.get_world_size(), device, waiting)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        reason = "has ended"
        if re.search("time(d )?out", str(error), re.IGNORECASE):
            reason = f"did not answer for {seconds} seconds (a larger JUMOK_TIMEOUT waits longer)"
        raise LostProcessError(f"another process of this run {reason}; the saved checkpoints are complete") from error
    finally:
        dist.destroy_process_group()


def read_variable(name: str, default: int, least: int = 0) -> int:
    """Return an integer from the environment."""
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and least <= int(text) < 2**31):
        raise ArgumentError(f"the environment variable {name} must be an integer from {least}, not {text[:40]!r}")
    return int(text)


def follow_launcher() -> None:
    """End this process when the process that started it ends, even by SIGKILL; only for ``jumok train --processes``."""
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    if launcher is None:
        return
    if sys.platform == "linux":  # immediately; the thread below needs a second
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch_parent() -> None:
        while os.getppid() == int(launcher):
            time.sleep(WATCH_SECONDS)
        os._exit(LOST_PROCESS_CODE)  # without saving: a checkpoint is never incomplete, and the folder's lock must end

    threading.Thread(target=watch_parent, daemon=True).start()
