"""One update: batch -> loss -> gradients -> clip -> update."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor, nn

from jumok.errors import TrainingError

from .parallel import World, gather_tensor
from .resume import TrainingState
from .settings import compute_rate_factor
from .task import TrainingTask


@dataclass(frozen=True)
class StepResult:
    """What an update reports: the mean loss, the norm of the gradients and the number of targets."""

    loss: float
    norm: float
    targets: int


def train_step(state: TrainingState) -> StepResult:
    """Update the model once."""
    task, world, precision, progress = state.task, state.world, state.precision, state.progress
    settings = task.settings

    # this process's parts of the batch; all parts together are the same examples for any number of processes
    parts = world.size * settings.accumulate
    first = world.rank * settings.accumulate
    batches = [task.batches(progress.step, first + part, parts).to(world.device) for part in range(settings.accumulate)]
    targets = round(world.all_reduce_sum(sum(batch.count for batch in batches)))

    # loss and gradients, divided by the number of targets of all parts
    loss = 0.0
    for part, batch in enumerate(batches):
        is_last = part == len(batches) - 1
        with precision.autocast(), _delay_gradient_exchange(state.wrapped, is_last):
            part_loss = task.loss(state.wrapped, batch) * (world.size / max(1, targets))
            precision.backward(part_loss)
        loss += float(part_loss.detach())
    loss = world.all_reduce_sum(loss) / world.size
    if not math.isfinite(loss):
        raise _make_not_finite_error("loss", loss, state)

    # clip and update
    precision.unscale([optimizer for optimizer, _ in state.optimizers.parts])
    norm = clip_gradients(state.model, settings.clip)
    if precision.scaler is None and not math.isfinite(norm):
        raise _make_not_finite_error("norm of the gradients", norm, state)
    state.optimizers.step(compute_rate_factor(settings, progress.step), precision.scaler)

    progress.step += 1
    progress.targets += targets
    if state.average is not None:
        state.average.update(progress.step)
    return StepResult(loss, norm, targets)


def _delay_gradient_exchange(wrapped: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """Return a context in which ddp averages gradients after the last part only."""
    if isinstance(wrapped, nn.parallel.DistributedDataParallel) and not is_last:
        return wrapped.no_sync()
    return contextlib.nullcontext()


def clip_gradients(model: nn.Module, clip: float) -> float:
    """Clip the gradients to a maximum norm (0 = no clipping), and return the norm before clipping."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = nn.utils.clip_grad_norm_(parameters, clip if clip else math.inf)
    return float(gather_tensor(norm))


def _make_not_finite_error(name: str, number: float, state: TrainingState) -> TrainingError:
    step, settings = state.progress.step, state.task.settings
    saved = "the last checkpoint is unchanged" if step else "no checkpoint was saved before"
    return TrainingError(
        f"the {name} is {number} at step {step + 1:,} (batch {step}, {settings.batch} examples, seed {settings.seed}); "
        f"training stopped before the update, and {saved}. Lower learning_rate, or check that batch"
    )


def estimate_work(task: TrainingTask, world: World) -> float:
    """Return about how many floating-point operations the forward and backward pass of one part of a batch take.

    Each parameter of a matrix takes six operations for each row: two in the forward pass, four in the backward pass.
    """
    batch = task.batches(0, 0, world.size * task.settings.accumulate)
    parameters = sum(
        parameter.numel()
        for module in task.model.modules()
        if not isinstance(module, nn.Embedding)  # looking up a row costs nothing
        for parameter in module.parameters(recurse=False)
        if parameter.dim() > 1
    )
    rows = (
        tensor.numel() // (tensor.shape[-1] if tensor.is_floating_point() else 1)  # vectors, or token ids
        for tensor in batch.inputs.values()
        if isinstance(tensor, Tensor) and tensor.numel()
    )
    return 6.0 * parameters * max(rows, default=1)
