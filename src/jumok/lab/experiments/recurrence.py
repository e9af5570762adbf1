"""Experiment ``recurrence``: LSTMs with and without attention, a CNN and Transformers copy sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from jumok.draw import LinePanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text, Texts, join_numbers
from jumok.lab.result import Cell, Progress, Result, Table, count_steps
from jumok.lens import Lens
from jumok.models import Model
from jumok.threads import use_threads

from .copy_task import (
    BUILDERS,
    HEADS,
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
from .toy_training import train_steps

TEXTS = Texts(__file__)
MODELS = tuple(BUILDERS)
BOTTLENECK = "lstm"  # the model whose decoder gets a single vector of the source
RECURRENT = (BOTTLENECK, "bahdanau", "luong")
SINGLE_HEAD, MULTI_HEAD = "single_head", "multi_head"
UNFUSED = "lstm_unfused"  # the model without attention, computed one operation after the other
NAMES = TEXTS.group("names", heads=HEADS)
TOKENS = (32, 64, 128, 256)  # lengths of the measured times
QUICK: dict[str, Any] = {"lengths": (4, 6, 8, 10, 12), "longer": (16,), "runs": 2, "steps": 350, "rounds": 3}
FULL: dict[str, Any] = {"lengths": (4, 8, 12, 16, 20, 24), "longer": (28, 32), "runs": 3, "steps": 800, "rounds": 15}
BATCH, LEARNING_RATE = 32, 5e-3
HELD_OUT = 100  # sequences of each length
VIEWED = 8  # sequences whose weights are measured
FALL = 0.1  # a share of right tokens that falls by less than this, from the shortest to the longest, counts as stable


@dataclass(frozen=True)
class QualityRow:
    """One model on held-out sequences of one length.

    Attributes:
        forced: For each seed, the share of tokens that are right where the tokens before them are given.
        generated: For each seed, the share of tokens that are right in greedily generated copies.
    """

    model: str
    length: int
    forced: tuple[float, ...]
    generated: tuple[float, ...]


@dataclass(frozen=True)
class SpeedRow:
    """The cost of one model.

    Attributes:
        model: The name of the model, or ``lstm_unfused``.
        steps: For each length, the operations of a forward pass that must wait for each other.
        milliseconds: For each length, the processor time of a forward and backward pass for one sequence.
    """

    model: str
    parameters: int
    steps: tuple[int, ...]
    milliseconds: tuple[float, ...]

    @property
    def growth(self) -> float:
        """By which factor the time grows from the shortest to the longest sequence."""
        return self.milliseconds[-1] / self.milliseconds[0]


@dataclass(frozen=True)
class ViewRow:
    """Where one head of an attention to the source looks.

    Attributes:
        layer: The layer, counted from 1.
        head: The head, counted from 1.
        offset: The distance from the token that comes next to the source token with the most weight; 0 is that token.
        weight: The share of the head's weight at this distance.
    """

    model: str
    layer: int
    head: int
    offset: int
    weight: float


Quality = Mapping[tuple[str, int], QualityRow]  # by model and length


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
) -> Result:
    """Compare encoder-decoders of equal size at one training budget: how well they copy sequences, and what they cost.

    All models of a seed see the same batches. Everything is computed with one thread.

    Args:
        models: "lstm" (without attention) and others of "bahdanau", "luong", "cnn", "single_head" and "multi_head".
        lengths: The tested lengths; the models are trained on all lengths from the first to the last.
        longer: Tested lengths that are longer than in training; may be empty.
        runs: How many times to train each model; each time with another seed.
        tokens: The lengths for which times are measured, at most 1,024.
    """
    _check_arguments(models, lengths, longer, tokens, min(runs, steps, rounds))
    count_step = count_steps(len(models) * runs * steps + rounds, progress)
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
    return describe_recurrence(
        seed, steps, tuple(lengths), tuple(longer), tuple(tokens), tuple(quality), tuple(speed), tuple(views)
    )


def describe_recurrence(
    seed: int,
    steps: int,
    lengths: tuple[int, ...],
    longer: tuple[int, ...],
    tokens: tuple[int, ...],
    quality: tuple[QualityRow, ...],
    speed: tuple[SpeedRow, ...],
    views: tuple[ViewRow, ...],
) -> Result:
    """Say what happens to quality and to the operations in sequence as sequences become longer.

    Args:
        lengths: The tested lengths within those of the training.
        longer: The tested lengths beyond those of the training.
        tokens: The lengths for which times were measured.
        speed: A row for each model, and one for the LSTM without a fused kernel.
        views: A row for each head that attends to the source.
    """
    rows = {(row.model, row.length): row for row in quality}
    models = list(dict.fromkeys(row.model for row in quality))
    title = TEXTS(
        "generated.title",
        runs=len(quality[0].generated),
        plural="s" * (len(quality[0].generated) > 1),
        steps=steps,
        first=lengths[0],
        last=lengths[-1],
        longer=TEXTS("generated.longer") if longer else "",
        heads=HEADS,
    )
    marked = {length: f"{length}" if length in lengths else f"{length} *" for length in (*lengths, *longer)}
    tables = [
        _build_quality_table(marked, {key: row.generated for key, row in rows.items()}, title),
        _build_quality_table(marked, {key: row.forced for key, row in rows.items()}, TEXTS("forced.title")),
        _build_speed_table(tokens, speed),
        _build_view_table(lengths[-1], views),
    ]
    sentences = [
        _explain_quality(rows, models, lengths[0], lengths[-1]),
        _explain_speed(tokens, speed, models[-1]),
    ]
    exceptions = [
        *_list_quality_exceptions(rows, models, lengths[0], lengths[-1]),
        *_list_longer_exceptions(rows, models, lengths[-1], longer),
        *_list_speed_exceptions(speed),
        *_list_view_exceptions(rows, models, lengths[-1]),
    ]
    numbers = {
        "seed": seed,
        "steps": steps,
        "lengths": lengths,
        "longer": longer,
        "tokens": tokens,
        "quality": quality,
        "speed": speed,
        "views": views,
    }
    return Result(numbers, tables, sentences, exceptions, partial(_draw_lines, lengths[-1], tokens, rows, speed))


def _check_arguments(
    models: Sequence[str], lengths: Sequence[int], longer: Sequence[int], tokens: Sequence[int], least: int
) -> None:
    unknown = [name for name in models if name not in BUILDERS]
    if unknown or BOTTLENECK not in models or len(set(models)) < max(2, len(models)):
        raise ArgumentError(
            f"models must be {BOTTLENECK!r} and at least one of {', '.join(BUILDERS)}, each once; not {list(models)}"
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
    model = BUILDERS[name]()
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
    models = {name: BUILDERS[name]() for name in names}
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


def _build_quality_table(
    marked: Mapping[int, str], shares: Mapping[tuple[str, int], Sequence[float]], title: Text
) -> Table:
    models = list(dict.fromkeys(model for model, _ in shares))
    rows = [(label, *(_format_range(shares[model, length]) for model in models)) for length, label in marked.items()]
    return Table([TEXTS("columns.length"), *(NAMES[model] for model in models)], rows, title)


def _build_speed_table(tokens: Sequence[int], speed: Sequence[SpeedRow]) -> Table:
    columns = [
        TEXTS("columns.model"),
        TEXTS("columns.parameters"),
        *(TEXTS("columns.steps", number=count) for count in (tokens[0], tokens[-1])),
        *(TEXTS("columns.milliseconds", number=count) for count in tokens),
        TEXTS("columns.growth"),
    ]
    rows: list[Sequence[Cell]] = [
        (
            NAMES[row.model],
            f"{row.parameters:,}",
            *(f"{count:,}" for count in (row.steps[0], row.steps[-1])),
            *(f"{number:.1f}" for number in row.milliseconds),
            f"x{row.growth:.1f}",
        )
        for row in speed
    ]
    return Table(columns, rows, TEXTS("speed.title", first=tokens[0], last=tokens[-1]))


def _build_view_table(length: int, views: Sequence[ViewRow]) -> Table:
    heads = max(row.head for row in views)
    cells: dict[tuple[str, int], list[str]] = {}
    for row in views:
        cells.setdefault((row.model, row.layer), []).append(f"{row.offset}: {row.weight:.0%}")
    rows: list[Sequence[Cell]] = [
        (NAMES[model], str(layer), *weights, *[""] * (heads - len(weights)))
        for (model, layer), weights in cells.items()
    ]
    columns = [
        TEXTS("columns.model"),
        TEXTS("columns.layer"),
        *(TEXTS("columns.head", number=head) for head in range(1, heads + 1)),
    ]
    return Table(columns, rows, TEXTS("views.title", length=length))


def _explain_quality(rows: Quality, models: Sequence[str], shortest: int, longest: int) -> Text:
    low, high = (mean(rows[BOTTLENECK, length].generated) for length in (shortest, longest))
    shares = {NAMES[model]: f"{mean(rows[model, longest].generated):.0%}" for model in models if model != BOTTLENECK}
    return TEXTS("quality", low=low, high=high, shortest=shortest, longest=longest, shares=join_numbers(shares))


def _explain_speed(tokens: Sequence[int], speed: Sequence[SpeedRow], last_model: str) -> Text:
    by_model = {row.model: row for row in speed}
    lstm, other = by_model[BOTTLENECK], by_model[last_model]
    return TEXTS(
        "waiting",
        first=tokens[0],
        last=tokens[-1],
        lstm=lstm,
        lstm_last=lstm.steps[-1],
        other=other,
        other_last=other.steps[-1],
        name=TEXTS(f"full_names.{other.model}", heads=HEADS),
        growths=_join_growths(speed),
    )


def _list_quality_exceptions(rows: Quality, models: Sequence[str], shortest: int, longest: int) -> Iterator[Text]:
    """Name models with attention that are not clearly better than the one without, or not stable."""
    bottleneck = rows[BOTTLENECK, longest].generated
    low, high = mean(rows[BOTTLENECK, shortest].generated), mean(bottleneck)
    if low - high < FALL:
        yield TEXTS("exceptions.stable", low=low, high=high, shortest=shortest, longest=longest)
    for model in models:
        if model == BOTTLENECK:
            continue
        start, end = rows[model, shortest].generated, rows[model, longest].generated
        if min(end) <= max(bottleneck):
            yield TEXTS(
                "exceptions.unclear",
                name=NAMES[model],
                longest=longest,
                end=_format_range(end),
                bottleneck=_format_range(bottleneck),
            )
        elif mean(start) - mean(end) >= FALL:
            yield TEXTS(
                "exceptions.worse",
                name=NAMES[model],
                shortest=shortest,
                longest=longest,
                start=mean(start),
                end=mean(end),
            )


def _list_longer_exceptions(
    rows: Quality, models: Sequence[str], longest: int, longer: Sequence[int]
) -> Iterator[Text]:
    """Name models with attention that fail beyond the lengths of the training."""
    worse = {}
    for model in models if longer else ():
        trained, share = (mean(rows[model, length].generated) for length in (longest, longer[-1]))
        if model != BOTTLENECK and trained - share >= FALL:
            worse[NAMES[model]] = f"{share:.0%}"
    if worse:
        yield TEXTS("exceptions.longer", length=longer[-1], shares=join_numbers(worse))


def _list_speed_exceptions(speed: Sequence[SpeedRow]) -> Iterator[Text]:
    """Name LSTMs whose time does not grow faster than that of the other models."""
    parallel = [row for row in speed if row.model not in (*RECURRENT, UNFUSED)]
    if not parallel:
        return
    slowest = max(parallel, key=lambda row: row.growth)
    quick = [row for row in speed if row.model in RECURRENT and row.growth <= slowest.growth]
    if quick:
        yield TEXTS("exceptions.times", growths=_join_growths(quick), name=NAMES[slowest.model], slowest=slowest)


def _list_view_exceptions(rows: Quality, models: Sequence[str], length: int) -> Iterator[Text]:
    """Say so if several heads are not clearly better than one."""
    if SINGLE_HEAD not in models or MULTI_HEAD not in models:
        return
    single, multi = (rows[model, length].generated for model in (SINGLE_HEAD, MULTI_HEAD))
    if min(multi) <= max(single):
        yield TEXTS(
            "exceptions.views",
            name=NAMES[MULTI_HEAD],
            length=length,
            multi=_format_range(multi),
            single=_format_range(single),
        )


def _draw_lines(
    longest: int, tokens: Sequence[int], rows: Quality, speed: Sequence[SpeedRow], target: str | Path, language: str
) -> Path:
    """Draw the share of right digits over the length, and the operations in sequence and times over the tokens."""
    labels = TEXTS.select("picture", language)
    names = {model: name.select(language) for model, name in NAMES.items()}
    quality: dict[str, list[tuple[float, float]]] = {}
    for (model, length), row in sorted(rows.items(), key=lambda item: item[0][1]):
        quality.setdefault(names[model], []).append((length, 100 * mean(row.generated)))
    steps = {
        names[row.model]: list(zip(tokens, row.steps, strict=True))
        for row in speed
        if row.model != UNFUSED  # the operations of the LSTM once more
    }
    times = {names[row.model]: list(zip(tokens, row.milliseconds, strict=True)) for row in speed}
    panels = [
        LinePanel(quality, labels["copied"], labels["digits"], labels["percent"], from_zero=True, mark=longest),
        LinePanel(
            steps, labels["sequence"], labels["tokens"], labels["operations"], log_across=True, log_vertical=True
        ),
        LinePanel(
            times, labels["training"], labels["tokens"], labels["milliseconds"], log_across=True, log_vertical=True
        ),
    ]
    return save_panel_row(target, panels)


def _join_growths(rows: Sequence[SpeedRow]) -> Text:
    return join_numbers({NAMES[row.model]: f"x{row.growth:.1f}" for row in rows})


def _format_range(shares: Sequence[float]) -> str:
    """Return the mean in percent, and the range in parentheses unless all are equal when rounded."""
    average, lowest, highest = (f"{100 * share:.0f}" for share in (mean(shares), min(shares), max(shares)))
    return average if lowest == highest else f"{average} ({lowest}-{highest})"
