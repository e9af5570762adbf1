"""Save and restore checkpoints of a run, so that a resumed run is identical to an uninterrupted one.

A checkpoint is a model folder as ``jumok.save`` writes it, with three more files: ``optimizer.safetensors`` (the state
of the optimizers), ``state.safetensors`` (random generators, and the trained parameters if their average is the saved
model) and ``training.json`` (the progress). The manifest of all files is written last.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from jumok.checkpoint import manifest, run_folder
from jumok.checkpoint.save import write_model_files, write_tensors
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import CheckpointError, TrainingError, shorten
from jumok.files import create_folder_atomically
from jumok.models import Model
from jumok.reporting import Report

from .optimizer import Optimizers, ParameterAverage
from .parallel import World, distribute_like, gather_tensor
from .precision import Precision
from .task import TrainingTask


@dataclass
class TrainingProgress:
    """The progress of a run. The names of the attributes are keys in training.json."""

    step: int = 0  # the number of updates so far
    best: float | None = None  # the best value of the task's judging metric; None before the first evaluation
    best_step: int = 0
    waited: int = 0  # the number of evaluations since then
    targets: int = 0
    owed: bool = False  # the evaluation of this step was interrupted and must be repeated
    finished: bool = False


@dataclass
class TrainingState:
    """The model, the optimizers and everything else that a training step uses or changes."""

    task: TrainingTask
    world: World
    model: Model
    wrapped: nn.Module  # the module whose forward pass trains in all processes
    optimizers: Optimizers
    precision: Precision
    average: ParameterAverage | None  # None if the settings have none
    progress: TrainingProgress


def save_checkpoint(state: TrainingState, run: Path, best: bool) -> Path:
    """Save this step as a new checkpoint, update the pointers, and remove old checkpoints. All processes take part."""
    world, task = state.world, state.task
    tensors = {name: gather_tensor(parameter.detach()) for name, parameter in state.model.named_parameters()}
    trained: dict[str, Tensor] = {}
    if state.average is not None:  # it is saved as the model, and the trained parameters in state.safetensors
        trained = {f"trained.{name}": tensor for name, tensor in tensors.items()}
        tensors = {name: gather_tensor(tensor) for name, tensor in state.average.tensors.items()}
    optimizer_state = {name: gather_tensor(tensor) for name, tensor in state.optimizers.iterate_state()}
    generators = gather_generators(world)

    target = run_folder.find_unused_checkpoint_folder(run, state.progress.step, state.progress.owed)
    if world.is_main:
        metadata = {
            "progress": asdict(state.progress),
            "precision": state.precision.name,
            "scaler": state.precision.get_state(),
            "steps": task.settings.steps,
        }
        with create_folder_atomically(target) as folder:
            write_model_files(folder, task.loaded, tensors)
            write_tensors(folder / "optimizer.safetensors", optimizer_state)
            write_tensors(folder / "state.safetensors", {**generators, **trained})
            (folder / "training.json").write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")
            manifest.write_manifest(folder)
        run_folder.write_pointer(run, "last", target)
        if best:
            run_folder.write_pointer(run, "best", target)
        _remove_old_checkpoints(run, task.settings.keep, state.progress.best_step)
    world.barrier()  # no process continues before the checkpoint is complete
    return target


def _remove_old_checkpoints(run: Path, keep: int, best_step: int) -> None:
    """Keep the newest checkpoints of ``keep`` steps, and the best."""
    best = _find_checkpoint(run, best_step)  # best.json could be damaged
    steps: set[int] = set()
    for step, checkpoint in run_folder.list_checkpoints(run):
        is_replaced = step in steps  # a newer checkpoint of the same step exists
        steps.add(step)
        if checkpoint != best and (is_replaced or len(steps) > keep):
            run_folder.remove_checkpoint(checkpoint)


def restore_checkpoint(state: TrainingState, run: Path, show_message: Report) -> bool:
    """Restore the newest undamaged checkpoint."""
    newest = state.world.broadcast(_find_newest(run, show_message) if state.world.is_main else None)
    if newest is None:
        return False
    checkpoint = Path(newest)
    metadata = read_json(checkpoint, "training.json")
    saved = {name: value for name, value in read_json(checkpoint, "config.json").items() if name != "labels"}
    current = json.loads(json.dumps(state.model.config.to_json()))
    refuse_differences(saved, current, f"the checkpoint {checkpoint.name} is of a different model")

    tensors = load_file(checkpoint / "model.safetensors")
    state_tensors = load_file(checkpoint / "state.safetensors")
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            trained = state_tensors.get(f"trained.{name}", tensors[name])
            parameter.copy_(distribute_like(trained, parameter))
            if state.average is not None:
                state.average.tensors[name].copy_(distribute_like(tensors[name], parameter))
    state.optimizers.restore(load_file(checkpoint / "optimizer.safetensors"))
    # the dtype that the run started with, even if it now trains on another device
    state.precision = Precision(metadata["precision"], state.world.device, metadata["scaler"])
    restore_generators(state.world, state_tensors)

    state.progress = TrainingProgress(**metadata["progress"])
    steps = state.task.settings.steps
    if metadata["steps"] != steps:  # the number of steps was changed
        state.progress.finished = state.progress.step >= steps
    _replace_lost_best(state, run, show_message)
    if state.world.is_main:
        _restore_pointers(run, checkpoint, state.progress, show_message)
        for step, later in run_folder.list_checkpoints(run):  # damaged, or the run would have resumed from them
            if step > state.progress.step:
                run_folder.remove_checkpoint(later)
    return True


def _replace_lost_best(state: TrainingState, run: Path, show_message: Report) -> None:
    """If the best checkpoint is gone, let the restored one count as the best until the next evaluation."""
    progress = state.progress
    is_lost = progress.best is not None and _find_checkpoint(run, progress.best_step) is None
    if state.world.broadcast(is_lost):  # all processes must agree on which evaluation is the best
        if state.world.is_main:
            lost, step = progress.best_step, progress.step
            show_message(f"the best checkpoint, of step {lost:,}, is gone; that of step {step:,} replaces it for now")
        progress.best, progress.best_step = None, progress.step


def _restore_pointers(run: Path, checkpoint: Path, progress: TrainingProgress, show_message: Report) -> None:
    """Point ``last`` and ``best`` at their checkpoints: a process may have been killed before it did so."""
    _restore_pointer(run, "last", checkpoint, show_message)
    best = _find_checkpoint(run, progress.best_step)
    if best is not None:
        _restore_pointer(run, "best", best, show_message)
    elif (run / "best.json").is_file():
        show_message(f"best.json in {run} was removed: no step up to {progress.step:,} was evaluated")
        (run / "best.json").unlink()


def _restore_pointer(run: Path, pointer: str, checkpoint: Path, show_message: Report) -> None:
    """Point ``last`` or ``best`` at a checkpoint; report if its file is missing, damaged or names no checkpoint."""
    problem, current = None, None
    try:
        current = run_folder.read_pointer(run, pointer)
    except CheckpointError as error:
        problem = str(error)
    if current == checkpoint:
        return
    if problem is None and current is None:
        has_file = (run / f"{pointer}.json").is_file()
        problem = f"{pointer}.json in {run} {'names a checkpoint that is gone' if has_file else 'is missing'}"
    if problem is not None:
        show_message(f"{problem}; it was repaired and now names {checkpoint.name}")
    run_folder.write_pointer(run, pointer, checkpoint)


def _find_checkpoint(run: Path, step: int) -> Path | None:
    return next((folder for number, folder in run_folder.list_checkpoints(run) if number == step), None)


def _find_newest(run: Path, show_message: Report) -> str | None:
    damaged = 0
    for step, checkpoint in run_folder.list_checkpoints(run):
        try:
            manifest.verify_manifest(checkpoint)
        except (CheckpointError, OSError) as error:
            damaged += 1
            show_message(f"the checkpoint of step {step:,} cannot be used: {error}")
            continue
        if damaged:
            show_message(f"going back to step {step:,}")
        return str(checkpoint)
    if damaged:
        raise TrainingError(f"none of the {damaged} checkpoints in {run} can be used; start a new run")
    return None


def refuse_differences(saved: dict[str, Any], current: dict[str, Any], problem: str) -> None:
    """Raise TrainingError if two dictionaries differ; the message names the first three differences."""
    differences = describe_differences(saved, current)
    if differences:
        raise TrainingError(f"{problem}: {differences}")


def describe_differences(saved: dict[str, Any], current: dict[str, Any]) -> str:
    """Return the first three differences of two dictionaries; an empty text if they are equal.

    >>> describe_differences({"steps": 20, "seed": 1}, {"steps": 30, "seed": 1})
    'steps was 20 and is now 30'
    """
    different = [name for name in sorted({*saved, *current}) if saved.get(name) != current.get(name)]
    shown = [
        f"{name} was {shorten(repr(saved.get(name)))} and is now {shorten(repr(current.get(name)))}"
        for name in different[:3]
    ]
    return ", ".join(shown) + (f", and {len(different) - 3} more" if len(different) > 3 else "")


def gather_generators(world: World) -> dict[str, Tensor]:
    """Return the states of the random generators of all processes, by device and rank."""
    states = {"cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(world.device)
    gathered = {}
    for device, state in states.items():
        buffers = [state]
        if world.size > 1:
            buffers = [torch.empty_like(state).to(world.device) for _ in range(world.size)]
            torch.distributed.all_gather(buffers, state.to(world.device))
        gathered.update({f"generator.{device}.{rank}": buffer.cpu() for rank, buffer in enumerate(buffers)})
    return gathered


def restore_generators(world: World, states: dict[str, Tensor]) -> None:
    """Restore this process's random generators. A new process starts from the first one's seed plus its rank."""
    cpu_state = states.get(f"generator.cpu.{world.rank}")
    if cpu_state is not None:
        torch.set_rng_state(cpu_state)
    else:
        torch.set_rng_state(states["generator.cpu.0"])
        torch.manual_seed(torch.initial_seed() + world.rank)
    cuda_state = states.get(f"generator.cuda.{world.rank}")
    if cuda_state is not None and world.device.type == "cuda":
        torch.cuda.set_rng_state(cuda_state, world.device)
