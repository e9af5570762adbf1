"""Experiment ``recurrence``: LSTMs with and without attention, a CNN and Transformers copy sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from jumok.errors import ArgumentError
from jumok.lab.experiments.experiment_result import Progress
from jumok.lab.experiments.toy_training import train_steps
from jumok.lens import Lens
from jumok.models import Model
from jumok.threads import use_threads

from .copy_task import (
    Accuracy,
    Tokens,
    compute_copy_loss,
    create_held_out_sequences,
    create_training_sequences,
    draw_batches,
    measure_accuracy,
    shift_target,
)
from .dependent_steps import count_dependent_steps, disable_fused_lstm
from .recurrence_models import BOTTLENECK, NAMES, build_model
from .recurrence_result import UNFUSED, RecurrenceResult
from .recurrence_rows import QualityRow, SpeedRow, ViewRow

MODELS = tuple(NAMES)
TOKENS = (32, 64, 128, 256)  # lengths of the measured times
QUICK: dict[str, Any] = {"lengths": (4, 6, 8, 10, 12), "longer": (16,), "runs": 2, "steps": 350, "rounds": 3}
FULL: dict[str, Any] = {"lengths": (4, 8, 12, 16, 20, 24), "longer": (28, 32), "runs": 3, "steps": 800, "rounds": 15}
BATCH, LEARNING_RATE = 32, 5e-3
HELD_OUT = 100  # sequences of each length
VIEWED = 8  # sequences whose weights are measured


def measure_recurrence(
    models: Sequence[str] = MODELS,
    *,
    lengths: Sequence[int] = (4, 6, 8, 10, 12),
    longer: Sequence[int] = (16,),
    runs: int = 2,
    steps: int = 350,
    tokens: Sequence[int] = TOKENS,
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> RecurrenceResult:
    """Compare encoder-decoders of equal size at one training budget: how well they copy sequences, and what they cost.

    All models of a seed see the same batches. Everything is computed with one thread.

    Args:
        models: "lstm" (without attention) and others of "bahdanau", "luong", "cnn", "single_head" and "multi_head".
        lengths: The tested lengths; the models are trained on all lengths from the first to the last.
        longer: Tested lengths that are longer than in training; may be empty.
        runs: How many times to train each model; each time with another seed.
        tokens: The lengths for which times are measured, at most 1,024.
        progress: Called with the finished and the total number of steps; default: nothing.

    Raises:
        ArgumentError: If a model is unknown or missing, or a number is out of range.
    """
    _check_arguments(models, lengths, longer, tokens, min(runs, steps, rounds))
    total, done = len(models) * runs * steps + rounds, 0

    def count_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    accuracies: dict[tuple[str, int], list[Accuracy]] = {}
    views: list[ViewRow] = []
    with use_threads(1):
        speed = _measure_speed(models, tokens, rounds, seed, count_step)
        for run_seed in range(seed, seed + runs):
            training = create_training_sequences(lengths[0], lengths[-1], run_seed)
            held_out = {length: create_held_out_sequences(HELD_OUT, length, run_seed) for length in (*lengths, *longer)}
            for name in models:
                model = _train_model(name, training, steps, run_seed, count_step)
                for length, sources in held_out.items():
                    accuracies.setdefault((name, length), []).append(measure_accuracy(model, sources))
                if run_seed == seed and name != BOTTLENECK:
                    views += _measure_views(name, model, held_out[lengths[-1]][:VIEWED])
    quality = [
        QualityRow(name, length, *(tuple(numbers) for numbers in zip(*rows, strict=True)))
        for (name, length), rows in accuracies.items()
    ]
    return RecurrenceResult(
        seed, steps, tuple(lengths), tuple(longer), tuple(tokens), tuple(quality), tuple(speed), tuple(views)
    )


def _check_arguments(
    models: Sequence[str], lengths: Sequence[int], longer: Sequence[int], tokens: Sequence[int], least: int
) -> None:
    unknown = [name for name in models if name not in NAMES]
    if unknown or BOTTLENECK not in models or len(set(models)) < max(2, len(models)):
        raise ArgumentError(
            f"models must be {BOTTLENECK!r} and at least one of {', '.join(NAMES)}, each once; not {list(models)}"
        )
    if least < 1:
        raise ArgumentError("runs, steps and rounds must be at least 1")
    for name, numbers in {"lengths and longer": [*lengths, *longer], "tokens": list(tokens)}.items():
        if not numbers or numbers != sorted(set(numbers)):
            raise ArgumentError(f"{name} must be different numbers in ascending order, not {numbers}")
    if not lengths or lengths[0] < 4 or tokens[0] < 1 or max(*longer, lengths[-1], tokens[-1]) > 1024:
        raise ArgumentError("lengths must be 4 to 1,024, and tokens 1 to 1,024")


def _train_model(
    name: str, training: dict[int, Tokens], steps: int, seed: int, count_step: Callable[[], None]
) -> Model:
    torch.manual_seed(seed)
    model = build_model(name)
    batches = draw_batches(training, size=BATCH, seed=seed)
    train_steps(
        model,
        lambda: compute_copy_loss(model, next(batches)),
        steps=steps,
        learning_rate=LEARNING_RATE,
        after_step=count_step,
    )
    return model


def _measure_speed(
    names: Sequence[str], tokens: Sequence[int], rounds: int, seed: int, count_step: Callable[[], None]
) -> list[SpeedRow]:
    """Return what each model costs for one sequence, as only its own tokens could then be computed at the same time."""
    torch.manual_seed(seed)
    models = {name: build_model(name) for name in names}
    sources = [create_held_out_sequences(1, length, seed) for length in tokens]
    measured = [*names[: names.index(BOTTLENECK) + 1], UNFUSED, *names[names.index(BOTTLENECK) + 1 :]]
    seconds: dict[tuple[str, int], list[float]] = {}
    for round_number in range(rounds + 1):  # in alternation, and as processor time: other programs make a call wait
        for name in measured:
            for source in sources:
                elapsed = _time_step(models, name, source)
                if round_number:  # the first round warms up
                    seconds.setdefault((name, source.shape[1]), []).append(elapsed)
        if round_number:
            count_step()
    rows = []
    for name in measured:
        model = models[BOTTLENECK if name == UNFUSED else name]
        chains = tuple(_count_steps(model, source) for source in sources)
        times = tuple(1000 * median(seconds[name, length]) for length in tokens)
        rows.append(SpeedRow(name, model.parameter_count, chains, times))
    return rows


def _time_step(models: dict[str, Model], name: str, source: Tokens) -> float:
    """Return the processor time of one forward and backward pass, in seconds."""
    if name == UNFUSED:
        with disable_fused_lstm():
            return _time_step(models, BOTTLENECK, source)
    start = time.process_time()
    compute_copy_loss(models[name], source).backward()
    return time.process_time() - start


def _count_steps(model: Model, source: Tokens) -> int:
    return count_dependent_steps(lambda: model(source, shift_target(source)))


def _measure_views(name: str, model: Model, sources: Tokens) -> list[ViewRow]:
    """Return where each head looks that attends to the source, as a distance from the token that comes next."""
    with Lens(model) as lens:
        capture = lens.run(sources, shift_target(sources))
    sites = [site for site in capture.attentions if capture.sites.get_sides(site) == ("target", "source")]
    length = sources.shape[1]
    rows = []
    for layer, site in enumerate(sites, 1):
        weights = torch.stack([capture.weights(site, batch=row) for row in range(len(sources))]).mean(0)
        for head, pattern in enumerate(weights, 1):
            shares = {offset: float(pattern.diagonal(offset).sum()) / length for offset in range(1 - length, length)}
            offset = max(shares, key=lambda distance: shares[distance])
            rows.append(ViewRow(name, layer, head, offset, shares[offset]))
    return rows
