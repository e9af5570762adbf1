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
from jumok.errors import ArgumentError, TrainingError
from jumok.training import Outcome, Task, World, fit
from jumok.training.metrics_log import read_metrics
from jumok.training.progress import ProgressDisplay, SilentDisplay
from jumok.training.resume import refuse_differences

from .recipe import get_recipe
from .report import format_markdown
from .request import TrainingRequest


def start_run(asked: TrainingRequest, world: World | None = None, show: ProgressDisplay | None = None) -> Outcome:
    """Train by a recipe into a new folder."""
    folder = asked.folder
    world = World() if world is None else world
    if world.is_main and folder.exists() and any(folder.iterdir()):
        hint = (
            f"go on with it: jumok train --resume {folder}"
            if run_folder.is_run(folder)
            else "choose another with --out"
        )
        raise ArgumentError(f"{folder} is there already; {hint}")
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    if world.is_main:
        (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        task = _task(asked, world)
    except BaseException:
        if world.is_main:  # nothing was trained: nothing is left, not even runs/ where it was not there before
            shutil.rmtree(folder, ignore_errors=True)
            _remove_empty(made)
        raise
    if world.is_main:
        told = {
            **asked.to_json(),
            "version": __version__,
            "settings": task.settings.to_json(),
            "model": task.model.config.to_json(),
            "data_facts": dict(task.data),
        }
        run_folder.write_atomically(folder / run_folder.RUN_FILE, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        asked.report(f"training into {folder}")
    world.broadcast(None)
    return _trained(task, asked, folder, world, show)


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # somebody else put something there in the meantime
        for one in folders:
            if one.exists():
                one.rmdir()


def resume_run(
    folder: Path, steps: int | None = None, world: World | None = None, show: ProgressDisplay | None = None
) -> Outcome:
    """Go on with a run as if it had never stopped. ``steps``: more of them, or fewer, than were asked for at first."""
    if not run_folder.is_run(folder):
        raise ArgumentError(f"{folder} is no folder of a training run: it has no {run_folder.RUN_FILE}")
    world = World() if world is None else world
    show = SilentDisplay() if show is None else show
    told = read_json(folder, run_folder.RUN_FILE)
    try:
        changes = dict(told["changes"]) | ({} if steps is None else {"steps": steps})
        asked = TrainingRequest(
            told["recipe"], folder, told["data"], told["start"], changes, told["skip_bad"], show.show_message
        )
        facts = told["data_facts"]
    except (KeyError, TypeError) as wrong:
        raise TrainingError(f"{run_folder.RUN_FILE} in {folder} is damaged: it has no {wrong}") from None
    if world.is_main:
        run_folder.remove_temporary_files(folder)
    if asked.start is not None and run_folder.list_checkpoints(folder):
        # what it started from may be gone; what it has become is here
        asked = replace(asked, start=str(run_folder.list_checkpoints(folder)[0][1]))
    task = _task(asked, world)
    refuse_differences(facts, json.loads(json.dumps(dict(task.data))), "the data is not what this run began with")
    return _trained(task, asked, folder, world, show)


def _task(asked: TrainingRequest, world: World) -> Task:
    """What the recipe makes of what was asked. The first process goes first: its files are then there."""
    if not world.is_main:
        world.broadcast(None)
    task = get_recipe(asked.recipe).build(asked)
    asked.finish()
    if world.is_main:
        world.broadcast(None)
    return task


def _trained(task: Task, asked: TrainingRequest, folder: Path, world: World, show: ProgressDisplay | None) -> Outcome:
    outcome = fit(task, folder, world, show)
    if world.is_main and outcome.progress.finished and (outcome.metrics or not (folder / "report.json").exists()):
        write_report(task, asked, folder, outcome)
    return outcome


def write_report(task: Task, asked: TrainingRequest, folder: Path, outcome: Outcome) -> dict[str, Any]:
    """What the best model of the run can do, as JSON, as a page to read, and the losses as a picture."""
    from jumok.draw import save_line_plot
    from jumok.errors import DrawError

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
    run_folder.write_atomically(folder / "report.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    run_folder.write_atomically(folder / "report.md", format_markdown(f"jumok train {asked.recipe}", told))
    lines = read_metrics(folder)
    series = {"training": [(one["step"], one["loss"]) for one in lines if "loss" in one]}
    judged = f"evaluation_{task.judge}"
    if task.judge == "loss":
        series["evaluation"] = [(one["step"], one[judged]) for one in lines if judged in one]
    try:
        save_line_plot(series, folder / "loss.png", title=f"{asked.recipe}: loss")
    except DrawError as missing:  # pictures are an extra, and no reason to fail now
        asked.report(f"loss.png was not drawn: {missing}")
    return told
