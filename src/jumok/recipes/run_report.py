"""Evaluate the best model of a finished run, and write report.json, report.md and a plot of the losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from jumok.checkpoint import load
from jumok.errors import CheckpointError, DrawError
from jumok.files import write_atomically
from jumok.training import Outcome, Task, World
from jumok.training.metrics_log import read_metrics
from jumok.training.outcome import REPORT_FILE

from .report import format_markdown
from .request import TrainingRequest
from .run_record import write_json


def write_missing_report(task: Task, request: TrainingRequest, outcome: Outcome, world: World) -> None:
    """Write the report of a finished run, unless it has an undamaged one and was not trained further."""
    if not world.is_main or not outcome.progress.finished:
        return
    if outcome.trained or not (outcome.folder / REPORT_FILE).exists():
        write_report(task, request, outcome)
        return
    try:
        is_complete = outcome.report.get("recipe") == request.recipe
    except CheckpointError:
        is_complete = False
    if not is_complete:
        request.report(f"{REPORT_FILE} in {outcome.folder} is damaged; it is written again")
        write_report(task, request, outcome)


def write_report(task: Task, request: TrainingRequest, outcome: Outcome) -> dict[str, Any]:
    """Evaluate the best model of a run and write report.json, report.md and a plot of the losses."""
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
    write_json(folder / REPORT_FILE, report)
    write_atomically(folder / "report.md", format_markdown(f"jumok train {request.recipe}", report))
    _plot_losses(task, request, folder)
    return report


def _plot_losses(task: Task, request: TrainingRequest, folder: Path) -> None:
    from jumok.draw import save_line_plot

    rows = read_metrics(folder)
    series = {"training": [(row["step"], row["loss"]) for row in rows if "loss" in row]}
    if task.judge == "loss":
        series["evaluation"] = [(row["step"], row["evaluation_loss"]) for row in rows if "evaluation_loss" in row]
    try:
        save_line_plot(series, folder / "loss.png", title=f"{request.recipe}: loss", vertical="loss")
    except DrawError as error:  # figures need an optional package
        request.report(f"loss.png was not drawn: {error}")
