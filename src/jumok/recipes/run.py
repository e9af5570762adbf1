"""A run from its first step to its report, and a run taken up again."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from jumok import __version__
from jumok.checkpoint import load, run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError
from jumok.training import Outcome, Task, TrainingError, World, train
from jumok.training.metrics_log import read
from jumok.training.progress import Quiet, Show
from jumok.training.resume import refuse_differences

from .report import markdown
from .request import Asked


def start(asked: Asked, world: World | None = None, show: Show | None = None) -> Outcome:
    """Train by a recipe into a new folder."""
    folder = asked.folder
    world = World() if world is None else world
    if world.first and folder.exists() and any(folder.iterdir()):
        hint = (
            f"go on with it: jumok train --resume {folder}"
            if run_folder.is_run(folder)
            else "choose another with --out"
        )
        raise ArgumentError(f"{folder} is there already; {hint}")
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    if world.first:
        (folder / run_folder.CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    try:
        task = _task(asked, world)
    except BaseException:
        if world.first:  # nothing was trained: nothing is left, not even runs/ where it was not there before
            shutil.rmtree(folder, ignore_errors=True)
            _remove_empty(made)
        raise
    if world.first:
        told = {
            **asked.to_json(),
            "version": __version__,
            "settings": task.settings.to_json(),
            "model": task.model.config.to_json(),
            "data_facts": dict(task.data),
        }
        run_folder.write_whole(folder / run_folder.RUN, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        asked.report(f"training into {folder}")
    world.tell(None)
    return _trained(task, asked, folder, world, show)


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # somebody else put something there in the meantime
        for one in folders:
            if one.exists():
                one.rmdir()


def resume(folder: Path, steps: int | None = None, world: World | None = None, show: Show | None = None) -> Outcome:
    """Go on with a run as if it had never stopped. ``steps``: more of them, or fewer, than were asked for at first."""
    if not run_folder.is_run(folder):
        raise ArgumentError(f"{folder} is no folder of a training run: it has no {run_folder.RUN}")
    world = World() if world is None else world
    show = Quiet() if show is None else show
    told = read_json(folder, run_folder.RUN)
    try:
        changes = dict(told["changes"]) | ({} if steps is None else {"steps": steps})
        asked = Asked(told["recipe"], folder, told["data"], told["start"], changes, told["skip_bad"], show.say)
        facts = told["data_facts"]
    except (KeyError, TypeError) as wrong:
        raise TrainingError(f"{run_folder.RUN} in {folder} is damaged: it has no {wrong}") from None
    if world.first:
        run_folder.sweep(folder)
    if asked.start is not None and run_folder.checkpoints(folder):
        # what it started from may be gone; what it has become is here
        asked = replace(asked, start=str(run_folder.checkpoints(folder)[0][1]))
    task = _task(asked, world)
    refuse_differences(facts, json.loads(json.dumps(dict(task.data))), "the data is not what this run began with")
    return _trained(task, asked, folder, world, show)


def _task(asked: Asked, world: World) -> Task:
    """What the recipe makes of what was asked. The first process goes first: its files are then there."""
    from . import recipe

    if not world.first:
        world.tell(None)
    task = recipe(asked.recipe)(asked)
    asked.finish()
    if world.first:
        world.tell(None)
    return task


def _trained(task: Task, asked: Asked, folder: Path, world: World, show: Show | None) -> Outcome:
    outcome = train(task, folder, world, show)
    if world.first and outcome.progress.finished and (outcome.metrics or not (folder / "report.json").exists()):
        report(task, asked, folder, outcome)
    return outcome


def report(task: Task, asked: Asked, folder: Path, outcome: Outcome) -> dict[str, Any]:
    """What the best model of the run can do, as JSON, as a page to read, and the losses as a picture."""
    from jumok.draw import DrawError, curves

    model = load(folder).model.to(task.model.device)
    torch.manual_seed(task.settings.seed)
    with torch.inference_mode():
        found = task.report(model, folder) if task.report is not None else task.evaluate(model)
    told = {
        "recipe": asked.recipe,
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "parameters": model.parameter_count,
        **found,
    }
    run_folder.write_whole(folder / "report.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    run_folder.write_whole(folder / "report.md", markdown(f"jumok train {asked.recipe}", told))
    lines = read(folder)
    series = {"training": [(one["step"], one["loss"]) for one in lines if "loss" in one]}
    judged = f"evaluation_{task.judge}"
    if task.judge == "loss":
        series["evaluation"] = [(one["step"], one[judged]) for one in lines if judged in one]
    try:
        curves(series, folder / "loss.png", title=f"{asked.recipe}: loss")
    except DrawError as missing:  # pictures are an extra, and no reason to fail now
        asked.report(f"loss.png was not drawn: {missing}")
    return told
