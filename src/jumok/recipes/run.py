"""Start, resume and report a training run; ``jumok.train`` does all of it in one call."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from jumok import __version__
from jumok.checkpoint import load, run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError, DrawError, TrainingError
from jumok.training import Outcome, Task, World, connect_world, fit, select_device
from jumok.training.metrics_log import read_metrics
from jumok.training.outcome import REPORT_FILE
from jumok.training.progress import ProgressDisplay, SilentDisplay, select_display
from jumok.training.resume import refuse_differences
from jumok.training.trackers import add_trackers

from .recipe import get_recipe
from .report import format_markdown
from .request import TrainingRequest


def train(
    recipe: str | None = None,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    start: str | Path | None = None,
    resume: str | Path | None = None,
    skip_bad: bool = False,
    device: str | None = None,
    parallel: str | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
    display: ProgressDisplay | None = None,
    **fields: Any,
) -> Outcome:
    """Train a model with a recipe, or resume a run, and write the report.

    The first Ctrl-C (or SIGTERM) finishes the step and saves a checkpoint; then ``outcome.signal`` is set, and
    ``jumok.train(resume=outcome.folder)`` continues.

    Args:
        recipe: The name of a recipe, such as "text"; ``jumok train --list`` shows all.
        data: A file or folder of your own; None = the recipe's data.
        out: A new folder for the run; None = runs/RECIPE-1, runs/RECIPE-2, ...
        start: The model to start from (``--from``): a folder, a run or a name; None = a new model.
        resume: The folder of a run to continue, instead of ``recipe``; of the fields, only ``steps`` can be given.
        skip_bad: Skip and count lines that cannot be read, instead of raising an error.
        device: "cpu", "cuda", "cuda:1", "mps"; None = the fastest.
        parallel: "ddp" or "fsdp", in processes that torchrun started; None = "ddp" if there are several.
        tensorboard: Write TensorBoard events into the run's folder.
        wandb: Send metrics to Weights & Biases.
        display: Shows the progress; None = a bar in a terminal or a notebook, plain lines elsewhere.
        **fields: Fields of the recipe, the model config or the training settings, as ``--set`` changes them;
            ``jumok train --list RECIPE`` shows them.

    Returns:
        The outcome: ``metrics``, ``folder``, ``report``, ``model``, ``load()``, and ``signal`` if a signal stopped it.

    Raises:
        ArgumentError: If the recipe, a field or the folder is invalid.
        TrainingError: If training cannot start or continue.

    Example:
        outcome = jumok.train("text", data="book.txt", out="runs/book", steps=500)
        print(outcome.report["loss"], outcome.model.parameter_count)
    """
    if (recipe is None) == (resume is None):
        raise ArgumentError('give either a recipe or resume=FOLDER; for example jumok.train("numbers")')
    display = select_display() if display is None else display
    with connect_world(parallel or "none", select_device(device)) as world:
        if not world.is_main:
            display = SilentDisplay()
        if recipe is None:
            folder = Path(str(resume))
            refused = [name for name in fields if name != "steps"]
            if refused or data is not None or out is not None or start is not None:
                raise ArgumentError("a resumed run keeps its data and fields; only steps can be changed")
        else:
            folder = Path(world.broadcast(str(out or find_free_folder(recipe))))
        tracked = add_trackers(display, folder, tensorboard, wandb)

        is_restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # by torchrun
        if recipe is None or (is_restarted and world.broadcast(run_folder.is_run(folder))):
            outcome = resume_run(folder, fields.get("steps") if recipe is None else None, world, tracked)
            return _show_stop(outcome, display)
        request = TrainingRequest(
            recipe,
            folder,
            data=None if data is None else str(data),
            start=None if start is None else str(start),
            changes=fields,
            skip_bad=skip_bad,
            report=display.show_message,
        )
        return _show_stop(start_run(request, world, tracked), display)


def _show_stop(outcome: Outcome, display: ProgressDisplay) -> Outcome:
    """Say how to continue if a signal stopped the run, so that an unfinished run never looks like a finished one."""
    if outcome.signal is not None:
        step, folder = outcome.progress.step, outcome.folder
        display.show_message(f"stopped at step {step:,}; continue with: jumok train --resume {folder}")
    return outcome


def find_free_folder(recipe: str) -> Path:
    """Return the first of runs/RECIPE-1, runs/RECIPE-2, ... that does not exist.

    Args:
        recipe: The name of the recipe.
    """
    number = 1
    while Path(f"runs/{recipe}-{number}").exists():
        number += 1
    return Path(f"runs/{recipe}-{number}")


def start_run(request: TrainingRequest, world: World | None = None, display: ProgressDisplay | None = None) -> Outcome:
    """Train by a recipe in a new folder, and write the report.

    Args:
        request: The recipe, its folder, its data and its fields.
        world: The processes of the run; None = this process alone, on the CPU.
        display: Shows the progress; None = silent.

    Raises:
        ArgumentError: If the folder is not empty, or a field is invalid. The new folder is then removed.
    """
    world = World() if world is None else world
    with _create_folder(request.folder, world):
        task = _build_task(request, world)
    if world.is_main:
        metadata = {
            **request.to_json(),
            "version": __version__,
            "settings": task.settings.to_json(),
            "model": task.model.config.to_json(),
            "data_facts": dict(task.data),
        }
        _write_json(request.folder / run_folder.RUN_FILE, metadata)
        request.report(f"training into {request.folder}")
    world.barrier()

    outcome = fit(task, request.folder, world, display)
    _write_report_if_finished(task, request, outcome, world)
    return outcome


def resume_run(
    folder: Path, steps: int | None = None, world: World | None = None, display: ProgressDisplay | None = None
) -> Outcome:
    """Continue a run exactly as if it had not been interrupted, and write the report.

    Args:
        folder: The folder of the run.
        steps: The new number of updates; None = as before.
        world: The processes of the run; None = this process alone, on the CPU.
        display: Shows the progress; None = silent.

    Raises:
        ArgumentError: If the folder is not a run.
        TrainingError: If run.json is damaged, or the data changed.
    """
    world = World() if world is None else world
    display = SilentDisplay() if display is None else display
    request, data_facts = _read_request(folder, steps, display)
    if world.is_main:
        run_folder.remove_temporary_files(folder)
    task = _build_task(request, world)
    current_facts = json.loads(json.dumps(dict(task.data)))
    refuse_differences(data_facts, current_facts, "the data has changed since this run started")

    outcome = fit(task, folder, world, display)
    _write_report_if_finished(task, request, outcome, world)
    return outcome


@contextlib.contextmanager
def _create_folder(folder: Path, world: World) -> Iterator[None]:
    """Create the folder of a run, and remove it and its new parents if the request is invalid."""
    if not world.is_main:
        yield
        return
    if folder.exists() and any(folder.iterdir()):
        resume_hint = f"resume it: jumok train --resume {folder}"
        hint = resume_hint if run_folder.is_run(folder) else "choose another with --out"
        raise ArgumentError(f"{folder} already exists; {hint}")
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process may have created files in a parent meanwhile
            for path in new_folders:
                if path.exists():
                    path.rmdir()
        raise


def _read_request(folder: Path, steps: int | None, display: ProgressDisplay) -> tuple[TrainingRequest, dict[str, Any]]:
    """Return the request of a run, and the recorded facts about its data."""
    if not run_folder.is_run(folder):
        raise ArgumentError(f"{folder} is not the folder of a training run: it has no {run_folder.RUN_FILE}")
    metadata = read_json(folder, run_folder.RUN_FILE)
    try:
        request = TrainingRequest(
            metadata["recipe"],
            folder,
            data=metadata["data"],
            start=metadata["start"],
            changes=dict(metadata["changes"]) | ({} if steps is None else {"steps": steps}),
            skip_bad=metadata["skip_bad"],
            report=display.show_message,
        )
        data_facts: dict[str, Any] = metadata["data_facts"]
    except (KeyError, TypeError) as error:
        raise TrainingError(f"{run_folder.RUN_FILE} in {folder} is damaged: {error} is missing") from None
    checkpoints = run_folder.list_checkpoints(folder)
    if request.start is not None and checkpoints:  # the first model may no longer exist
        request = replace(request, start=str(checkpoints[0][1]))
    return request, data_facts


def _build_task(request: TrainingRequest, world: World) -> Task:
    """Build the recipe's task. The main process goes first: the others read the files that it prepares."""
    recipe = get_recipe(request.recipe)
    request.refuse_undeclared_fields(recipe)
    if not world.is_main:
        world.barrier()
    task = recipe.build(request)
    request.refuse_unused_fields(recipe)
    if world.is_main:
        world.barrier()
    return task


def _write_report_if_finished(task: Task, request: TrainingRequest, outcome: Outcome, world: World) -> None:
    is_new = bool(outcome.metrics) or not (outcome.folder / REPORT_FILE).exists()
    if world.is_main and outcome.progress.finished and is_new:
        write_report(task, request, outcome)


def write_report(task: Task, request: TrainingRequest, outcome: Outcome) -> dict[str, Any]:
    """Evaluate the best model of a run and write report.json, report.md and a plot of the losses.

    Args:
        task: The task that was trained.
        request: The recipe's name, and the function that receives messages.
        outcome: The folder and the progress of the run.

    Returns:
        The content of report.json.
    """
    folder = outcome.folder
    model = load(folder).model.to(task.model.device)
    torch.manual_seed(task.settings.seed)
    with torch.inference_mode():
        results = task.report(model, folder) if task.report is not None else task.evaluate(model)
    report = {
        "recipe": request.recipe,
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "parameters": model.parameter_count,
        **results,
    }
    _write_json(folder / REPORT_FILE, report)
    run_folder.write_atomically(folder / "report.md", format_markdown(f"jumok train {request.recipe}", report))
    _plot_losses(task, request, folder)
    return report


def _plot_losses(task: Task, request: TrainingRequest, folder: Path) -> None:
    from jumok.draw import save_line_plot

    rows = read_metrics(folder)
    series = {"training": [(row["step"], row["loss"]) for row in rows if "loss" in row]}
    if task.judge == "loss":
        series["evaluation"] = [(row["step"], row["evaluation_loss"]) for row in rows if "evaluation_loss" in row]
    try:
        save_line_plot(series, folder / "loss.png", title=f"{request.recipe}: loss")
    except DrawError as error:  # figures need an optional package
        request.report(f"loss.png was not drawn: {error}")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    run_folder.write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
