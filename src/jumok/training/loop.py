"""The training loop, top to bottom.

for every step:  the step's examples -> loss -> gradients -> clip -> update
                 now and then: evaluate, save
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from jumok.errors import TrainingError

from .metrics_log import MetricsLog
from .optimizer import Optimizers
from .parallel import World
from .parameter_average import ParameterAverage
from .precision import Precision
from .progress import ProgressDisplay, SilentDisplay
from .resume import Progress, TrainingState, restore_checkpoint, save_checkpoint
from .settings import compute_rate_factor
from .signals import SignalListener, StopRequested
from .task import Task


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``signal``: who ended it before its last step."""

    progress: Progress
    metrics: dict[str, float]
    signal: signal.Signals | None = None


def fit(task: Task, run: Path, world: World | None = None, show: ProgressDisplay | None = None) -> Outcome:
    """Train until the last step, from the newest checkpoint in ``run`` if there is one."""
    world = World() if world is None else world
    show = SilentDisplay() if show is None or not world.is_main else show
    settings = task.settings
    parts = world.size * settings.accumulate
    if settings.batch % parts:
        raise TrainingError(f"a batch of {settings.batch} does not divide into {parts} parts; change batch")

    model = task.model.to(world.device).train()
    model.checkpointing = settings.checkpointing
    trained: nn.Module = world.wrap(model)
    if settings.compiled:
        trained = torch.compile(trained)  # type: ignore[assignment]
    optimizers = Optimizers(model, settings)
    average = ParameterAverage(model, settings.average) if settings.average else None
    precision = Precision(settings.precision, world.device)
    progress = Progress()
    state = TrainingState(task, model, optimizers, precision, average, world, progress)
    metrics = MetricsLog(run)
    torch.manual_seed(settings.seed + world.rank)
    if restore_checkpoint(state, run, show.show_message):
        show.show_message(f"going on from step {progress.step:,}")
    if world.is_main:
        metrics.forget_after(progress.step, evaluations=progress.owed)
    if progress.finished:
        return Outcome(progress, {})
    show.begin(settings.steps, progress.step)

    found: dict[str, float] = {}
    with SignalListener() as signals, _threads(task, model, world):
        clock, counted = time.perf_counter(), 0
        while progress.step < settings.steps or progress.owed:
            if not progress.owed:
                # the step's examples: the same for any number of processes and parts
                mine = range(world.rank * settings.accumulate, (world.rank + 1) * settings.accumulate)
                batches = [task.batches(progress.step, part, parts).to(world.device) for part in mine]
                count = round(world.add(sum(batch.count for batch in batches)))

                # loss and gradients, divided by the targets of the whole step
                loss = 0.0
                for number, batch in enumerate(batches):
                    with precision.autocast(), _silent(trained, number + 1 < len(batches)):
                        share = task.loss(trained, batch) * (world.size / max(1, count))
                        precision.backward(share)
                    loss += float(share.detach())
                loss = world.add(loss) / world.size
                if not math.isfinite(loss):
                    raise _lost(loss, task, progress)

                # clip and update
                precision.unscale([one for one, _ in optimizers.parts])
                norm = _norm(model, settings.clip)
                if precision.scaler is None and not math.isfinite(norm):
                    raise _lost(norm, task, progress, "the gradients' norm")
                optimizers.step(compute_rate_factor(settings, progress.step), precision.scaler)
                optimizers.clear()
                progress.step += 1
                progress.targets += count
                if average is not None:
                    average.update(progress.step)

                # tell
                counted += count
                last = progress.step == settings.steps
                progress.owed = progress.step % settings.evaluate_every == 0 or last
                if progress.step % settings.log_every == 0 or last or progress.step == 1:
                    speed = counted / max(time.perf_counter() - clock, 1e-9)
                    if world.is_main:
                        metrics.add(
                            progress.step, loss=loss, norm=norm, rate=compute_rate_factor(settings, progress.step - 1)
                        )
                        metrics.add_speed(progress.step, targets_per_second=round(speed, 1))
                    show.step(progress.step, loss, speed)
                    clock, counted = time.perf_counter(), 0

            # evaluate; one that is left in the middle stays owed
            best = False
            asked = round(world.most(signals.asked or 0))  # processes must agree on it: not all hear a signal
            if progress.owed and not asked:
                show.show_message("evaluating", transient=True)
                found = world.broadcast(_evaluated(state, signals))
                if found:
                    progress.owed = False
                    best = _judged(task, progress, found)
                    if world.is_main:
                        metrics.add(progress.step, **{f"evaluation_{name}": value for name, value in found.items()})
                    show.evaluation(progress.step, found, best)
                asked = round(world.most(signals.asked or 0))
                clock, counted = time.perf_counter(), 0

            # save, perhaps stop
            weary = 0 < settings.patience <= progress.waited
            progress.finished = (progress.step == settings.steps or weary) and not progress.owed
            if asked or best or progress.finished or progress.step % settings.save_every == 0:
                _saved(state, run, best)
                clock, counted = time.perf_counter(), 0
            if asked:
                show.end()
                return Outcome(progress, found, signal.Signals(asked))
            if weary:
                show.show_message(f"no better for {progress.waited} evaluations: stopping at step {progress.step:,}")
                break
    show.end()
    return Outcome(progress, found)


# operations a step; below that two threads wait for each other longer than they work (LOG.md). A rule and not a
# measurement: the number of threads can change the last bit, and a run must go on as it began.
WORTH_SHARING = 5e8


@contextlib.contextmanager
def _threads(task: Task, model: nn.Module, world: World) -> Iterator[None]:
    """As many threads as this model's steps are worth, until the run ends."""
    before, wanted = torch.get_num_threads(), task.settings.threads
    if not wanted and world.device.type == "cpu":
        size = sum(parameter.numel() for parameter in model.parameters())
        work = 6 * size * task.batches(0, 0, world.size * task.settings.accumulate).targets.numel()
        wanted = 1 if work < WORTH_SHARING else 0
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _evaluated(state: TrainingState, signals: SignalListener) -> dict[str, float]:
    """The task's metrics of the model as people would use it, computed by the first process; nothing where somebody
    asked to stop. The training's random numbers are left alone."""
    before = torch.get_rng_state()
    with contextlib.nullcontext() if state.average is None else state.average.used():
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
            torch.set_rng_state(before)


def _judged(task: Task, progress: Progress, found: dict[str, float]) -> bool:
    """Whether this is the best so far; counts the evaluations since."""
    if task.judge not in found:
        raise TrainingError(f"the evaluation gave no {task.judge!r}, only {', '.join(found)}")
    value = found[task.judge]
    if progress.best is None or (value < progress.best if task.better == "lower" else value > progress.best):
        progress.best, progress.best_step, progress.waited = value, progress.step, 0
        return True
    progress.waited += 1
    return False


def _saved(state: TrainingState, run: Path, best: bool) -> None:
    try:
        save_checkpoint(state, run, best)
    except (OSError, SafetensorError) as wrong:  # safetensors has its own error for a full disk
        why = getattr(wrong, "strerror", None) or str(wrong)
        raise TrainingError(
            f"step {state.progress.step:,} could not be saved in {run}: {why}; the checkpoint "
            "before it is untouched. Make room, then go on with --resume"
        ) from wrong


def _norm(model: nn.Module, clip: float) -> float:
    gradients = [one for one in model.parameters() if one.grad is not None]
    norm: Any = nn.utils.clip_grad_norm_(gradients, clip if clip else math.inf)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def _silent(trained: nn.Module, more: bool) -> Any:
    """Gradients are exchanged once, after the last part."""
    if isinstance(trained, nn.parallel.DistributedDataParallel) and more:
        return trained.no_sync()
    return contextlib.nullcontext()


def _lost(value: float, task: Task, progress: Progress, what: str = "the loss") -> TrainingError:
    saved = "no checkpoint was saved before it" if not progress.step else "the last checkpoint is untouched"
    return TrainingError(
        f"{what} is {value} at step {progress.step + 1:,} (batch {progress.step}, {task.settings.batch} examples, "
        f"seed {task.settings.seed}): stopped before the update; {saved}. Lower learning_rate, or look at that batch"
    )
