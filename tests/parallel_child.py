"""Train the toy task in one of several processes: python parallel_child.py JOBS, a JSON list of jobs.

A job has "run" (a folder), "kind" ("none", "ddp" or "fsdp"), and optionally "config", "fields", "stop" (a step) and
"timeout" (seconds that collectives wait; the main process then evaluates for longer).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import distributed, nn

from jumok.models import Model
from jumok.training import TrainingTask, World, connect_world, fit, step
from jumok.training.parallel import gather_tensor
from toys import CONFIG, StopAt, toy


def train_job(job: dict[str, Any], world: World) -> None:
    """Train one job, and save the gradients of all its steps in the run's folder."""
    run, stop = Path(job["run"]), job.get("stop")
    task = toy(CONFIG.replace(**job.get("config", {})), **job.get("fields", {}))
    if "timeout" in job:
        task = evaluate_slowly(task, job["timeout"])
    gradients: list[dict[str, torch.Tensor]] = []
    clip_gradients = step.clip_gradients

    def record_gradients(model: nn.Module, clip: float) -> float:
        step_gradients = {}
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            step_gradients[name] = gather_tensor(parameter.grad).detach().clone()
        gradients.append(step_gradients)
        return clip_gradients(model, clip)

    step.clip_gradients = record_gradients
    try:
        fit(task, run, replace(world, kind=job["kind"]), StopAt(stop) if stop else None)
    finally:
        step.clip_gradients = clip_gradients
    if world.is_main:
        tensors = {f"{index}.{name}": grad for index, grads in enumerate(gradients) for name, grad in grads.items()}
        save_file(tensors, run / "gradients.safetensors")


def evaluate_slowly(task: TrainingTask, seconds: float) -> TrainingTask:
    """Let collectives wait only so long, and let the main process evaluate for longer."""
    distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))

    def evaluate(model: Model) -> dict[str, float]:
        time.sleep(seconds + 1)
        return task.evaluate(model)

    return replace(task, evaluate=evaluate)


def main() -> None:
    torch.set_num_threads(1)
    with connect_world("ddp", torch.device("cpu")) as world:
        for job in json.loads(sys.argv[1]):
            train_job(job, world)


if __name__ == "__main__":
    main()
