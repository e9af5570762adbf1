"""One process or many: who I am, how the model is wrapped, how numbers are added up. Nothing else knows of it.

ddp: every process has the whole model, gradients are averaged. fsdp: parameters, gradients and optimizer state are cut
into shards (FSDP2, Zhao et al. 2023). ``torchrun`` starts the processes; they find each other by its variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from jumok.errors import TrainingError
from jumok.models import Model

PARALLEL_KINDS = ("none", "ddp", "fsdp")


@dataclass
class World:
    """The processes of one run; by default this one alone."""

    kind: str = "none"
    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Whether this process speaks for all: it evaluates, writes and prints."""
        return self.rank == 0

    def wrap(self, model: Model) -> nn.Module:
        if self.kind == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        if self.kind == "fsdp":
            _shard(model)
        return model

    def add(self, number: int | float) -> int | float:
        """The sum over all processes."""
        if self.size == 1:
            return number
        told = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(told)
        return float(told)

    def most(self, number: int | float) -> int | float:
        """The largest over all processes."""
        if self.size == 1:
            return number
        told = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return float(told)

    def broadcast(self, told: Any) -> Any:
        """What the first process says, in all of them: anything that JSON can write."""
        if self.size == 1:
            return told
        letters = json.dumps(told).encode() if self.is_main else b""
        length = torch.tensor([len(letters)], device=self.device)
        dist.broadcast(length, 0)
        box = torch.empty(int(length), dtype=torch.uint8, device=self.device)
        if self.is_main:
            box.copy_(torch.frombuffer(bytearray(letters), dtype=torch.uint8))
        dist.broadcast(box, 0)
        return json.loads(bytes(box.tolist()))

    def whole(self, tensor: Tensor) -> Tensor:
        """All shards of a tensor put together, in every process."""
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

    def gather_model(self, model: Model) -> Model:
        """The model in one piece: itself, or a copy of its shards put together."""
        if self.kind != "fsdp":
            return model
        tensors = {name: self.whole(one.detach()) for name, one in model.named_parameters()}
        with torch.device("meta"):
            made = type(model)(model.config)  # every family is built from its config
        made.load_state_dict(tensors, strict=False, assign=True)
        return made


def distribute_like(whole: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor on the parameter's device, cut as the parameter is."""
    whole = whole.to(parameter.device)
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, mesh, getattr(parameter, "placements", None))


def _shard(model: Model) -> None:
    from torch.distributed.fsdp import fully_shard

    for stack in (one for one in model.modules() if isinstance(one, nn.ModuleList)):
        for block in stack:
            fully_shard(block)
    fully_shard(model)


@contextmanager
def connect_world(kind: str, device: torch.device) -> Iterator[World]:
    """The processes that torchrun started, connected while this is open; or this one alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and kind == "none":
        yield World(device=device)
        return
    if "RANK" not in os.environ:
        raise TrainingError(
            f"--parallel {kind} needs processes: start them with --processes N, or with torchrun (see the handbook)"
        )
    if kind == "none":
        kind = "ddp"
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    # a process that hangs is noticed after this; one that dies, at once
    limit = timedelta(seconds=int(os.environ.get("JUMOK_TIMEOUT", "600")))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=limit)
    try:
        yield World(kind, dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
