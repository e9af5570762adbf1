"""The training loop.

for each step:   batch -> loss -> gradients -> clip -> update
periodically:    log, evaluate, save
"""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import TrainingError
from jumok.models import Model
from jumok.threads import choose_training_threads, count_cores, use_threads

from .displays import ProgressDisplay, SilentDisplay
from .metrics_log import MetricsLog, read_last_evaluation
from .optimizer import Optimizers, ParameterAverage
from .parallel import World
from .precision import Precision, choose_precision
from .resume import TrainingProgress, TrainingState, restore_checkpoint, save_checkpoint
from .settings import Settings, compute_rate_factor
from .signals import SignalListener, StopRequested
from .step import StepResult, estimate_work, train_step
from .task import TrainingTask

REPORT_FILE = "report.json"


@dataclass(frozen=True)
class Outcome:
    """How a training run ended."""

    folder: Path
    progress: TrainingProgress
    metrics: dict[str, float]
    signal: signal.Signals | None = None  # what stopped the run before its last step
    trained: bool = True  # False if the run was already complete

    @property
    def report(self) -> dict[str, Any]:
        """The content of report.json, about the best model; empty if the run is not complete."""
        return read_json(self.folder, REPORT_FILE) if (self.folder / REPORT_FILE).is_file() else {}

    @cached_property
    def model(self) -> Model:
        """The best model of the run, loaded on first use."""
        return self.load().model

    def load(self) -> Loaded:
        """Load the best model of the run, with its tokenizer and config, as ``jumok.load`` does."""
        return load(self.folder)


def fit(task: TrainingTask, run: Path, world: World | None = None, display: ProgressDisplay | None = None) -> Outcome:
    """Train a task, from the newest checkpoint in its folder if there is one.

    Args:
        run: The folder of the run; it must contain a folder ``checkpoints``.
        world: The processes of the run; None = this process alone, on the CPU.
        display: Shows the progress; None = silent.
    """
    world = World() if world is None else world
    display = display if display is not None and world.is_main else SilentDisplay()
    task = fix_settings(task, world)
    settings = task.settings

    state = _build_fresh_state(task, world)
    saved: tuple[int, bool] | None = None  # the step of the last checkpoint, and whether its evaluation is owed
    if restore_checkpoint(state, run, display.show_message):
        saved = state.progress.step, state.progress.owed
        step = state.progress.step
        is_finished = state.progress.finished
        resuming = f"resuming from step {step:,}, {describe_computation(settings, world, state.precision.name)}"
        display.show_message(f"all {step:,} steps are done" if is_finished else resuming)
    progress = state.progress
    log = MetricsLog(run)
    if world.is_main:
        for problem in log.remove_after(progress.step, progress.owed, settings):
            display.show_message(problem)
    if progress.finished:
        return Outcome(run, progress, read_last_evaluation(run), trained=False)

    metrics: dict[str, float] = {}
    stop: signal.Signals | None = None
    threads = settings.threads or torch.get_num_threads()
    with display.run(settings.steps, progress.step), SignalListener() as signals, use_threads(threads):
        targets, seconds = 0, 0.0  # of the updates since the last log line
        while progress.step < settings.steps or progress.owed:
            # update, unless the evaluation of this step was interrupted and must be repeated first
            if not progress.owed:
                started_at = time.perf_counter()
                update = train_step(state)
                targets, seconds = targets + update.targets, seconds + time.perf_counter() - started_at
                is_last = progress.step == settings.steps
                progress.owed = progress.step % settings.evaluate_every == 0 or is_last
                if progress.step % settings.log_every == 0 or is_last or progress.step == 1:
                    _log_step(state, log, display, update, targets / max(seconds, 1e-9))
                    targets, seconds = 0, 0.0

            # save, if it is due, before an evaluation: if that fails or is killed, a resumed run begins with it
            is_best = False
            stop = _receive_signal(world, signals)
            is_due = progress.step % settings.save_every == 0 or progress.step == settings.steps
            if progress.owed and stop is None and is_due and saved != (progress.step, True):
                _save(state, log, best=False)
                saved = progress.step, True

            # evaluate, unless a signal arrived; then the resumed run evaluates this step
            if progress.owed and stop is None:
                metrics, is_best = _evaluate(state, log, display, signals)
                stop = _receive_signal(world, signals)

            # save, and stop if training ends here
            is_exhausted = 0 < settings.patience <= progress.waited
            progress.finished = (progress.step == settings.steps or is_exhausted) and not progress.owed
            if (stop or is_best or is_due or progress.finished) and saved != (progress.step, progress.owed):
                _save(state, log, is_best)
                saved = progress.step, progress.owed
            if is_exhausted and stop is None:
                display.show_message(f"no improvement for {progress.waited} evaluations; stopping at {progress.step:,}")
            if stop or is_exhausted:
                break
    return Outcome(run, progress, metrics, stop)


def _build_fresh_state(task: TrainingTask, world: World) -> TrainingState:
    """Move the model to its device, and create the optimizers and the rest of the training state."""
    settings = task.settings
    model = task.model.to(world.device).train()
    model.checkpointing = settings.checkpointing
    wrapped: nn.Module = world.wrap(model)
    if settings.compiled:
        wrapped = torch.compile(wrapped)  # type: ignore[assignment]

    average = ParameterAverage(model, settings.average) if settings.average else None
    optimizers = Optimizers(model, settings)
    torch.manual_seed(settings.seed + world.rank)
    precision = Precision(settings.precision, world.device)
    return TrainingState(task, world, model, wrapped, optimizers, precision, average, TrainingProgress())


def _log_step(
    state: TrainingState, log: MetricsLog, display: ProgressDisplay, update: StepResult, targets_per_second: float
) -> None:
    step = state.progress.step
    if state.world.is_main:
        rate = compute_rate_factor(state.task.settings, step - 1)
        log.add(step, loss=update.loss, norm=update.norm, rate=rate)
        log.add_speed(step, targets_per_second=round(targets_per_second, 1))
    display.show_step(step, update.loss, targets_per_second)


def _receive_signal(world: World, signals: SignalListener) -> signal.Signals | None:
    """Return the signal that any process received; not all receive it, but all must stop at the same step."""
    number = round(world.all_reduce_max(signals.received or 0))
    return signal.Signals(number) if number else None


def _evaluate(
    state: TrainingState, log: MetricsLog, display: ProgressDisplay, signals: SignalListener
) -> tuple[dict[str, float], bool]:
    """Evaluate and return the metrics, and whether they are the best; there are none if a signal interrupted it."""
    display.show_message("evaluating", transient=True)
    metrics: dict[str, float] = state.world.broadcast(_compute_metrics(state, signals))
    if not metrics:
        return {}, False
    state.progress.owed = False
    is_best = _update_best(state.task, state.progress, metrics)
    if state.world.is_main:
        log.add(state.progress.step, **{f"evaluation_{name}": value for name, value in metrics.items()})
    display.show_evaluation(state.progress.step, metrics, is_best)
    return metrics, is_best


def _compute_metrics(state: TrainingState, signals: SignalListener) -> dict[str, float]:
    """Return the task's metrics, computed by the main process; empty if a signal interrupted the evaluation.

    The evaluation uses the averaged parameters, and does not change the random state of the training.
    """
    generator_state = torch.get_rng_state()
    with contextlib.nullcontext() if state.average is None else state.average.apply():
        model = state.world.gather_model(state.model)
        if not state.world.is_main:
            return {}
        torch.manual_seed(state.task.settings.seed)
        model.eval()
        try:
            with signals.interruptible(), torch.inference_mode():
                return {name: float(value) for name, value in state.task.evaluate(model).items()}
        except StopRequested:
            return {}
        finally:
            model.train()
            torch.set_rng_state(generator_state)


def _update_best(task: TrainingTask, progress: TrainingProgress, metrics: dict[str, float]) -> bool:
    """Return True if this evaluation is the best so far, and count the evaluations since the best."""
    if task.judge not in metrics:
        raise TrainingError(f"the evaluation returned no metric {task.judge!r}, only {', '.join(metrics)}")
    value = metrics[task.judge]
    if progress.best is None:
        is_better = True
    else:
        is_better = value < progress.best if task.better == "lower" else value > progress.best
    if is_better:
        progress.best, progress.best_step, progress.waited = value, progress.step, 0
    else:
        progress.waited += 1
    return is_better


def _save(state: TrainingState, log: MetricsLog, best: bool) -> None:
    run = log.folder
    if state.world.is_main:
        log.require_folder()
    try:
        save_checkpoint(state, run, best)
    except (OSError, SafetensorError) as error:  # safetensors raises its own error if the disk is full
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TrainingError(
            f"step {state.progress.step:,} could not be saved in {run}: {reason}; the checkpoint before it is "
            "unchanged. Free disk space, then continue with --resume (resume= in Python)"
        ) from error


def fix_settings(task: TrainingTask, world: World) -> TrainingTask:
    """Return the task with the number of threads and the dtype of matrix products that the rules choose, unless the
    settings name them; the main process decides for all.

    Raises TrainingError if a batch cannot be split evenly over the processes.
    """
    settings = task.settings
    parts = world.size * settings.accumulate
    if settings.batch % parts:
        raise TrainingError(f"a batch of {settings.batch} cannot be split evenly into {parts} parts; change batch")
    if not settings.threads and world.device.type == "cpu":
        limit = min(torch.get_num_threads(), count_cores())
        threads = choose_training_threads(estimate_work(task, world), limit) if limit > 1 else 1
        settings = settings.replace(threads=world.broadcast(threads))
    if settings.precision == "auto":
        settings = settings.replace(precision=world.broadcast(choose_precision(world.device)))
    return replace(task, settings=settings)


def describe_computation(settings: Settings, world: World, precision: str) -> str:
    """Return how steps are computed, for a message, such as "in float32 on cpu with 2 threads"."""
    threads = f" with {settings.threads} thread{'s' * (settings.threads > 1)}" if world.device.type == "cpu" else ""
    return f"in {precision} on {world.device.type}{threads}"
