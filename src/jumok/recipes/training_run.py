"""Start and resume a training run; ``jumok.train`` does both, and selects the device, the display and the processes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from jumok.checkpoint import run_folder
from jumok.errors import ArgumentError
from jumok.reporting import Report
from jumok.threads import use_threads
from jumok.training import Outcome, TrainingTask, World, connect_world, fit, select_device
from jumok.training.displays import ProgressDisplay, SilentDisplay, select_display
from jumok.training.loop import describe_computation, fix_settings
from jumok.training.parallel import LAUNCHER_VARIABLE, read_variable
from jumok.training.resume import refuse_differences
from jumok.training.trackers import add_trackers

from . import run_record
from .recipe import get_recipe
from .report import write_missing_report
from .request import TrainingRequest
from .run_record import RunRecord, find_free_folder, format_resume_command, write_record


def train(
    recipe: str | None = None,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    start: str | Path | None = None,
    resume: str | Path | None = None,
    skip_bad: bool = False,
    encoding: str | None = None,
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
        data: A file or folder of your own, or a name of the catalogue; None = the recipe's data.
        out: A new folder for the run; None = runs/RECIPE-1, runs/RECIPE-2, ...
        start: The model to start from (``--from``): a folder, a run or a name; None = a new model.
        resume: The folder of a run to continue, instead of ``recipe``; only the fields ``steps`` and ``threads`` can
            be given.
        skip_bad: Skip and count lines that cannot be read, instead of raising an error.
        encoding: The encoding of your text files, such as "cp949"; None = UTF-8.
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
            refused = fields.keys() - {"steps", "threads"}
            if refused or any(argument is not None for argument in (data, out, start, encoding)):
                raise ArgumentError("a resumed run keeps its data and fields; only steps and threads can be changed")
        else:
            folder = Path(world.broadcast(str(out or find_free_folder(recipe))))
        tracked = add_trackers(display, folder, tensorboard, wandb)

        is_restarted = read_variable("TORCHELASTIC_RESTART_COUNT", 0) > 0  # by torchrun or --restarts
        if recipe is None or (is_restarted and world.broadcast(run_folder.is_run(folder))):
            changes = fields if recipe is None else {}
            outcome = resume_run(folder, changes.get("steps"), world, tracked, changes.get("threads"))
        else:
            request = TrainingRequest(
                recipe,
                folder,
                data=None if data is None else str(data),
                start=None if start is None else str(start),
                changes=fields,
                skip_bad=skip_bad,
                encoding=encoding,
                show_message=display.show_message,
            )
            outcome = start_run(request, world, tracked)
        if outcome.signal is not None:  # an unfinished run must not look like a finished one
            processes = world.size if LAUNCHER_VARIABLE in os.environ else 1  # torchrun's processes need its command
            command = format_resume_command(outcome.folder, processes, world.kind)
            display.show_message(f"stopped at step {outcome.progress.step:,}; continue with: {command}")
        return outcome


def start_run(request: TrainingRequest, world: World | None = None, display: ProgressDisplay | None = None) -> Outcome:
    """Train by a recipe in a new folder, and write the report."""
    world = World() if world is None else world
    with run_record.open_new_run(request, world) as (data_files, new_folders):
        with run_record.remove_if_invalid(new_folders):
            task = _build_task(request, world)
        if world.is_main:
            write_record(request, data_files, task)
            computation = describe_computation(task.settings, world, task.settings.precision)
            request.show_message(f"training into {request.folder}, {computation}")
        return _fit_and_report(task, request, world, display)


def resume_run(
    folder: Path,
    steps: int | None = None,
    world: World | None = None,
    display: ProgressDisplay | None = None,
    threads: int | None = None,
) -> Outcome:
    """Continue a run exactly as if it had not been interrupted, and write the report.

    Another number of threads changes the last bits.
    """
    world = World() if world is None else world
    display = SilentDisplay() if display is None else display
    with run_record.open_existing_run(folder, world):
        record = run_record.read_record(folder, display.show_message)
        changes: dict[str, Any] = {} if steps is None else {"steps": steps}
        if record.precision is not None:
            changes["precision"] = record.precision
        changes |= _choose_threads(record.threads, threads, display.show_message)
        request = _adapt_request(record.request, changes)
        if world.is_main:
            _check_data(record, request)
        task = _build_task(request, world)
        if record.data_facts is not None:
            facts = json.loads(json.dumps(dict(task.data)))
            refuse_differences(record.data_facts, facts, "the data has changed since this run started")
            if world.is_main:
                run_record.store_resumed_settings(folder, task.settings.threads, steps)
        elif world.is_main:
            write_record(request, record.data_files, task)
        if not run_folder.list_checkpoints(folder):
            computation = describe_computation(task.settings, world, task.settings.precision)
            display.show_message(f"no checkpoint was saved yet: training from the first step, {computation}")
        return _fit_and_report(task, request, world, display)


def _check_data(record: RunRecord, request: TrainingRequest) -> None:
    """Report that the data has changed; raise TrainingError if the run has not stored it and must read it again."""
    change = run_record.describe_change(record.data_files, request.data)
    stored = get_recipe(request.recipe).stored
    is_stored = record.data_facts is not None and stored is not None and (request.folder / stored).is_file()
    if change is not None and is_stored:
        request.show_message(f"{change} since this run started; the run continues with the data that it has stored")
    else:
        run_record.refuse_changed_data(change, request.folder)


def _adapt_request(request: TrainingRequest, changes: dict[str, Any]) -> TrainingRequest:
    """Return the stored request with other fields, and with the newest checkpoint as its first model."""
    stored = {name: value for name, value in request.changes.items() if name != "epochs" or "steps" not in changes}
    request = replace(request, changes=stored | changes)
    checkpoints = run_folder.list_checkpoints(request.folder)
    if request.start is not None and checkpoints:  # the first model may no longer exist
        request = replace(request, start=str(checkpoints[0][1]))
    return request


def _choose_threads(stored: int | None, requested: int | None, show_message: Report) -> dict[str, int]:
    """Return the field ``threads`` of a resumed run; empty if there is neither a stored nor a requested number.

    The user may request 0 threads: as many as by the rule for new runs.
    """
    if stored is None:
        return {} if requested is None else {"threads": requested}
    threads = min(stored, os.cpu_count() or 1) if requested is None else requested
    if threads not in (0, stored):
        reason = "" if requested is not None else ", as this machine has no more cores"
        show_message(
            f"continuing with {threads} thread{'s' * (threads > 1)} instead of {stored}{reason}; "
            "the results will no longer be equal bit for bit"
        )
    return {"threads": threads}


def _build_task(request: TrainingRequest, world: World) -> TrainingTask:
    """Build the recipe's task. The main process goes first: the others read the files that it prepares."""
    if not world.is_main:
        world.barrier()
    task = get_recipe(request.recipe).build(request)
    if world.is_main:
        world.barrier()
    return fix_settings(task, world)


def _fit_and_report(
    task: TrainingTask, request: TrainingRequest, world: World, display: ProgressDisplay | None
) -> Outcome:
    world.barrier()
    outcome = fit(task, request.folder, world, display)
    if world.is_main and outcome.progress.finished:
        with use_threads(task.settings.threads or torch.get_num_threads()):  # equal runs write equal reports
            write_missing_report(task, request, outcome)
    return outcome
