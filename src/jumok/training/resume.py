"""Checkpoints of a run: everything that the next step depends on, so that going on is the same as never having stopped.

A checkpoint is a folder of the model, as jumok.save writes it, with three files more: ``optimizer.safetensors`` (what
the optimizers remember), ``state.safetensors`` (random generators, and the trained parameters where an average is what
is used), ``training.json`` (step, best, the rest). The manifest over all of them is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from jumok.checkpoint import manifest, run_folder
from jumok.checkpoint.save import write_model_files
from jumok.errors import CheckpointError, TrainingError
from jumok.models import Model

from .optimizer import Optimizers
from .parallel import World, distribute_like
from .parameter_average import ParameterAverage
from .precision import Precision
from .task import Task


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0  # updates done
    best: float | None = None  # of the metric that judges
    best_step: int = 0
    waited: int = 0  # evaluations since then
    targets: int = 0  # targets seen
    owed: bool = False  # this step is still to be evaluated
    finished: bool = False


@dataclass
class TrainingState:
    """What changes while training."""

    task: Task
    model: Model
    optimizers: Optimizers
    precision: Precision
    average: ParameterAverage | None
    world: World
    progress: Progress


def save_checkpoint(state: TrainingState, run: Path, best: bool) -> Path:
    """A new checkpoint of this step, the pointers to it, and away with old ones. All processes take part."""
    world, progress = state.world, state.progress
    tensors = {name: world.whole(one.detach()) for name, one in state.model.named_parameters()}
    trained: dict[str, Tensor] = {}
    if state.average is not None:  # the average is the model that people use; what is trained goes beside it
        trained = {f"trained.{name}": one for name, one in tensors.items()}
        tensors = {name: world.whole(one) for name, one in state.average.kept.items()}
    remembered = {name: world.whole(value) for name, value in state.optimizers.state()}
    generators = gather_generators(world)
    target = run_folder.find_unused_checkpoint_folder(run, progress.step)
    if world.is_main:
        with manifest.create_folder_atomically(target) as made:
            task = state.task
            write_model_files(
                made, state.model, tensors, tokenizer=task.tokenizer, preparation=task.preparation, labels=task.labels
            )
            save_file(_plain(remembered), made / "optimizer.safetensors")
            save_file(_plain({**generators, **trained}), made / "state.safetensors")
            told = {
                "progress": asdict(progress),
                "precision": state.precision.name,
                "scaler": state.precision.state(),
                "steps": state.task.settings.steps,
            }
            (made / "training.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            manifest.write_manifest(made)
        run_folder.write_pointer(run, "last", target)
        if best:
            run_folder.write_pointer(run, "best", target)
        _prune(run, state.task.settings.keep)
    world.broadcast(None)  # nobody goes on before it is there
    return target


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().cpu().contiguous() for name, one in tensors.items()}


def _prune(run: Path, keep: int) -> None:
    best = run_folder.read_pointer(run, "best")
    steps: set[int] = set()
    for step, old in run_folder.list_checkpoints(run):
        again = step in steps  # a newer one of the same step is there
        steps.add(step)
        if old != best and (again or len(steps) > keep):
            run_folder.remove_checkpoint(old)


def restore_checkpoint(state: TrainingState, run: Path, report: Callable[[str], None]) -> bool:
    """Put the newest whole checkpoint into ``state``; whether there was one. Damaged ones are named and passed over."""
    found = state.world.broadcast(_newest(run, report) if state.world.is_main else None)
    if found is None:
        return False
    place = Path(found)
    told = json.loads((place / "training.json").read_text(encoding="utf-8"))
    _check_config(state.model, place)
    tensors = load_file(place / "model.safetensors")
    kept = load_file(place / "state.safetensors")
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            trained = kept.get(f"trained.{name}", tensors[name])
            parameter.copy_(distribute_like(trained, parameter))
            if state.average is not None:
                state.average.kept[name].copy_(distribute_like(tensors[name], parameter))
    state.optimizers.restore(load_file(place / "optimizer.safetensors"))
    state.precision.restore(told["precision"], told["scaler"])
    state.progress.__dict__.update(told["progress"])
    if told["steps"] != state.task.settings.steps:  # somebody wants more, or less
        state.progress.finished = state.progress.step >= state.task.settings.steps
    restore_generators(state.world, kept)
    if state.world.is_main:
        run_folder.write_pointer(run, "last", place)
        for step, later in run_folder.list_checkpoints(run):
            if step > state.progress.step:
                run_folder.remove_checkpoint(later)  # damaged, and named above
        _point_at_best(run, state.progress.best_step)
    return True


def _point_at_best(run: Path, step: int) -> None:
    """Whoever was killed when a checkpoint was there, but before ``best`` pointed to it, points to it now."""
    best = next((place for number, place in run_folder.list_checkpoints(run) if number == step), None)
    if best is not None and best != run_folder.read_pointer(run, "best"):
        run_folder.write_pointer(run, "best", best)


def _newest(run: Path, report: Callable[[str], None]) -> str | None:
    damaged = 0
    for step, place in run_folder.list_checkpoints(run):
        try:
            manifest.verify_manifest(place)
        except (CheckpointError, OSError) as wrong:
            damaged += 1
            report(f"the checkpoint of step {step:,} cannot be used: {wrong}")
            continue
        if damaged:
            report(f"going back to step {step:,}")
        return str(place)
    if damaged:
        raise TrainingError(f"none of the {damaged} checkpoints in {run} can be used; start the run again")
    return None


def _check_config(model: Model, place: Path) -> None:
    """A checkpoint of another model is refused, with what differs."""
    theirs = json.loads((place / "config.json").read_text(encoding="utf-8"))
    ours = json.loads(json.dumps(model.config.to_json()))
    theirs.pop("labels", None)
    refuse_differences(theirs, ours, f"the checkpoint {place.name} is of another model")


def refuse_differences(theirs: dict[str, Any], ours: dict[str, Any], what: str) -> None:
    different = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
    if different:
        first = ", ".join(f"{name} is {theirs.get(name)!r} there and {ours.get(name)!r} here" for name in different[:3])
        more = f", and {len(different) - 3} more" if len(different) > 3 else ""
        raise TrainingError(f"{what}: {first}{more}")


def gather_generators(world: World) -> dict[str, Tensor]:
    """The random generators of every process, by rank."""
    states = {"cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(world.device)
    if world.size == 1:
        return {f"generator.{name}.0": one for name, one in states.items()}
    found = {}
    for name, one in states.items():
        box = [torch.empty_like(one).to(world.device) for _ in range(world.size)]
        torch.distributed.all_gather(box, one.to(world.device))
        found.update({f"generator.{name}.{rank}": part.cpu() for rank, part in enumerate(box)})
    return found


def restore_generators(world: World, kept: dict[str, Tensor]) -> None:
    """My own, as it was; a process that was not there before begins at the first one's, moved on by its rank."""
    mine = kept.get(f"generator.cpu.{world.rank}")
    if mine is not None:
        torch.set_rng_state(mine)
    else:
        torch.set_rng_state(kept["generator.cpu.0"])
        torch.manual_seed(torch.initial_seed() + world.rank)
    card = kept.get(f"generator.cuda.{world.rank}")
    if card is not None and world.device.type == "cuda":
        torch.cuda.set_rng_state(card, world.device)
