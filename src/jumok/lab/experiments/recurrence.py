"""Experiment ``recurrence``: LSTMs with and without attention, a CNN and Transformers copy sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from jumok.bilingual_text import Text, Texts, join_numbers
from jumok.draw import LinePanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.cost.measurements import time_calls
from jumok.lab.experiments.setups.copy_task import (
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
from jumok.lab.experiments.setups.dependent_steps import count_dependent_steps, disable_fused_lstm
from jumok.lab.experiments.setups.toy_training import train_steps
from jumok.lab.result import Cell, Result, Table, count_steps
from jumok.lens import Lens
from jumok.models import Model
from jumok.reporting import Progress
from jumok.threads import use_threads

TEXTS = Texts(__file__)
MODELS = tuple(BUILDERS)
BOTTLENECK = "lstm"  # the model whose decoder gets a single vector of the source
RECURRENT = (BOTTLENECK, "bahdanau", "luong")
SINGLE_HEAD, MULTI_HEAD = "single_head", "multi_head"
UNFUSED = "lstm_unfused"  # the model without attention, computed one operation after the other
NAMES = TEXTS.group("names", heads=HEADS)
TOKENS = (32, 64, 128, 256)  # lengths of the measured times
FULL: dict[str, Any] = {"lengths": (4, 8, 12, 16, 20, 24), "longer": (28, 32), "runs": 3, "steps": 800, "rounds": 15}
BATCH, LEARNING_RATE = 32, 5e-3
HELD_OUT = 100  # sequences of each length
VIEWED = 8  # sequences whose weights are measured
FALL = 0.1  # a share of right tokens that falls by less than this, from the shortest to the longest, counts as stable


@dataclass(frozen=True)
class QualityRow:
    """The shares of right tokens of one model on held-out sequences of one length, for each seed.

    Attributes:
        forced: Where the tokens before each token are given.
        generated: In greedily generated copies.
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
    """Where one head of an attention to the source looks; layer and head are counted from 1.

    Attributes:
        offset: The distance from the token that comes next to the source token with the most weight; 0 is that token.
        weight: The share of the head's weight at this distance.
    """

    model: str
    layer: int
    head: int
    offset: int
    weight: float


@dataclass(frozen=True)
class Recurrence:
    """What the experiment measured.

    Attributes:
        lengths: The tested lengths within those of the training.
        longer: The tested lengths beyond those of the training.
        tokens: The lengths for which times were measured.
        speed: A row for each model, and one for the LSTM without a fused kernel.
        views: A row for each head that attends to the source.
    """

    seed: int
    steps: int
    lengths: tuple[int, ...]
    longer: tuple[int, ...]
    tokens: tuple[int, ...]
    quality: tuple[QualityRow, ...]
    speed: tuple[SpeedRow, ...]
    views: tuple[ViewRow, ...]

    @property
    def models(self) -> list[str]:
        """The trained models."""
        return list(dict.fromkeys(row.model for row in self.quality))

    @property
    def attending_models(self) -> list[str]:
        """The trained models with attention."""
        return [model for model in self.models if model != BOTTLENECK]

    def find_shares(self, model: str, length: int) -> tuple[float, ...]:
        """Return the shares of right tokens in generated copies."""
        return next(row.generated for row in self.quality if (row.model, row.length) == (model, length))


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
    _check_arguments(models, [*lengths, *longer], lengths, tokens, min(runs, steps, rounds))
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
    quality = tuple(QualityRow(*key, *zip(*rows, strict=True)) for key, rows in accuracies.items())
    return describe_recurrence(
        Recurrence(seed, steps, tuple(lengths), tuple(longer), tuple(tokens), quality, tuple(speed), tuple(views))
    )


def _check_arguments(
    models: Sequence[str], tested: list[int], lengths: Sequence[int], tokens: Sequence[int], least: int
) -> None:
    if not set(models) <= set(BUILDERS) or BOTTLENECK not in models or len(set(models)) < max(2, len(models)):
        raise ArgumentError(
            f"models must be {BOTTLENECK!r} and at least one of {', '.join(BUILDERS)}, each once; not {list(models)}"
        )
    if least < 1:
        raise ArgumentError("runs, steps and rounds must be at least 1")
    for name, numbers in {"lengths and longer": tested, "tokens": list(tokens)}.items():
        if not numbers or numbers != sorted(set(numbers)):
            raise ArgumentError(f"{name} must be different numbers in ascending order, not {numbers}")
    if not lengths or tested[0] < 4 or tokens[0] < 1 or max(tested[-1], tokens[-1]) > 1024:
        raise ArgumentError("lengths must be 4 to 1,024, and tokens 1 to 1,024")


def _train_model(
    name: str, training: dict[int, Tokens], steps: int, seed: int, count_step: Callable[[], None]
) -> Model:
    torch.manual_seed(seed)
    model = BUILDERS[name]()
    batches = draw_batches(training, size=BATCH, seed=seed)

    def compute_loss() -> torch.Tensor:
        return compute_copy_loss(model, next(batches))

    train_steps(model, compute_loss, steps=steps, learning_rate=LEARNING_RATE, after_step=count_step)
    return model


def _measure_speed(
    names: Sequence[str], tokens: Sequence[int], rounds: int, seed: int, count_step: Callable[[], None]
) -> list[SpeedRow]:
    """Return what each model costs for one sequence, as only its own tokens could then be computed at the same time."""
    torch.manual_seed(seed)
    models = {name: BUILDERS[name]() for name in names}
    sources = {length: create_held_out_sequences(1, length, seed) for length in tokens}
    position = names.index(BOTTLENECK) + 1
    measured = {**{name: name for name in names[:position]}, UNFUSED: BOTTLENECK}
    measured |= {name: name for name in names[position:]}

    def train_once(name: str, length: int) -> None:
        with disable_fused_lstm() if name == UNFUSED else nullcontext():
            compute_copy_loss(models[measured[name]], sources[length]).backward()

    calls = {(name, length): partial(train_once, name, length) for name in measured for length in tokens}
    time_calls(calls, rounds=1)  # warms up
    seconds = time_calls(calls, rounds=rounds, after_round=count_step)
    rows = []
    for name, builder in measured.items():
        model = models[builder]
        chains = [count_dependent_steps(partial(model, source, shift_target(source))) for source in sources.values()]
        times = [1000 * median(seconds[name, length]) for length in tokens]
        rows.append(SpeedRow(name, model.parameter_count, tuple(chains), tuple(times)))
    return rows


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


def describe_recurrence(numbers: Recurrence) -> Result:
    """Say what happens to quality and to the operations in sequence as sequences become longer."""
    runs = len(numbers.quality[0].generated)
    title = TEXTS(
        "generated.title",
        runs=runs,
        plural="s" * (runs > 1),
        steps=numbers.steps,
        first=numbers.lengths[0],
        last=numbers.lengths[-1],
        longer=TEXTS("generated.longer") if numbers.longer else "",
        heads=HEADS,
    )
    tables = [
        _build_quality_table(numbers, "generated", title),
        _build_quality_table(numbers, "forced", TEXTS("forced.title")),
        _build_speed_table(numbers),
        _build_view_table(numbers),
    ]
    sentences = [_explain_quality(numbers), _explain_speed(numbers)]
    exceptions = [*_list_quality_exceptions(numbers), *_list_speed_exceptions(numbers), *_list_view_exceptions(numbers)]
    return Result(vars(numbers), tables, sentences, exceptions, partial(_draw_lines, numbers))


def _build_quality_table(numbers: Recurrence, kind: str, title: Text) -> Table:
    shares = {(row.model, row.length): getattr(row, kind) for row in numbers.quality}
    rows = []
    for length in (*numbers.lengths, *numbers.longer):
        label = f"{length} *" if length in numbers.longer else f"{length}"
        rows.append((label, *(_format(shares[model, length]) for model in numbers.models)))
    return Table([TEXTS("columns.length"), *(NAMES[model] for model in numbers.models)], rows, title)


def _build_speed_table(numbers: Recurrence) -> Table:
    first, last = numbers.tokens[0], numbers.tokens[-1]
    columns = [
        *(TEXTS(f"columns.{name}") for name in ("model", "parameters")),
        *(TEXTS("columns.steps", number=count) for count in (first, last)),
        *(TEXTS("columns.milliseconds", number=count) for count in numbers.tokens),
        TEXTS("columns.growth"),
    ]
    rows: list[Sequence[Cell]] = []
    for row in numbers.speed:
        steps = (f"{count:,}" for count in (row.steps[0], row.steps[-1]))
        times = (f"{number:.1f}" for number in row.milliseconds)
        rows.append((NAMES[row.model], f"{row.parameters:,}", *steps, *times, f"x{row.growth:.1f}"))
    return Table(columns, rows, TEXTS("speed.title", first=first, last=last))


def _build_view_table(numbers: Recurrence) -> Table:
    heads = max(row.head for row in numbers.views)
    cells: dict[tuple[str, int], list[str]] = {}
    for row in numbers.views:
        cells.setdefault((row.model, row.layer), []).append(f"{row.offset}: {row.weight:.0%}")
    rows: list[Sequence[Cell]] = [
        (NAMES[model], str(layer), *weights, *[""] * (heads - len(weights)))
        for (model, layer), weights in cells.items()
    ]
    columns = [TEXTS("columns.model"), TEXTS("columns.layer")]
    columns += [TEXTS("columns.head", number=head) for head in range(1, heads + 1)]
    return Table(columns, rows, TEXTS("views.title", length=numbers.lengths[-1]))


def _explain_quality(numbers: Recurrence) -> Text:
    shortest, longest = numbers.lengths[0], numbers.lengths[-1]
    low, high = (mean(numbers.find_shares(BOTTLENECK, length)) for length in (shortest, longest))
    shares = {NAMES[model]: f"{mean(numbers.find_shares(model, longest)):.0%}" for model in numbers.attending_models}
    return TEXTS("quality", low=low, high=high, shortest=shortest, longest=longest, shares=join_numbers(shares))


def _explain_speed(numbers: Recurrence) -> Text:
    by_model = {row.model: row for row in numbers.speed}
    lstm, other = by_model[BOTTLENECK], by_model[numbers.models[-1]]
    return TEXTS(
        "waiting",
        first=numbers.tokens[0],
        last=numbers.tokens[-1],
        lstm=lstm,
        lstm_last=lstm.steps[-1],
        other=other,
        other_last=other.steps[-1],
        name=TEXTS(f"full_names.{other.model}", heads=HEADS),
        growths=_join_growths(numbers.speed),
    )


def _list_quality_exceptions(numbers: Recurrence) -> Iterator[Text]:
    """Name models with attention that are not clearly better than the one without, that are not stable, or that fail
    beyond the lengths of the training."""
    lengths = {"shortest": numbers.lengths[0], "longest": numbers.lengths[-1]}
    start, end = (numbers.find_shares(BOTTLENECK, length) for length in lengths.values())
    if mean(start) - mean(end) < FALL:
        yield TEXTS("exceptions.stable", low=mean(start), high=mean(end), **lengths)
    bottleneck = end
    for model in numbers.attending_models:
        start, end = (numbers.find_shares(model, length) for length in lengths.values())
        if min(end) <= max(bottleneck):
            shares = {"end": _format(end), "bottleneck": _format(bottleneck)}
            yield TEXTS("exceptions.unclear", name=NAMES[model], longest=lengths["longest"], **shares)
        elif mean(start) - mean(end) >= FALL:
            yield TEXTS("exceptions.worse", name=NAMES[model], start=mean(start), end=mean(end), **lengths)

    worse = {}
    for model in numbers.attending_models if numbers.longer else ():
        share = mean(numbers.find_shares(model, numbers.longer[-1]))
        if mean(numbers.find_shares(model, lengths["longest"])) - share >= FALL:
            worse[NAMES[model]] = f"{share:.0%}"
    if worse:
        yield TEXTS("exceptions.longer", length=numbers.longer[-1], shares=join_numbers(worse))


def _list_speed_exceptions(numbers: Recurrence) -> Iterator[Text]:
    """Name LSTMs whose time does not grow faster than that of the other models."""
    parallel = [row for row in numbers.speed if row.model not in (*RECURRENT, UNFUSED)]
    slowest = max(parallel, key=lambda row: row.growth, default=None)
    if slowest is None:
        return
    quick = [row for row in numbers.speed if row.model in RECURRENT and row.growth <= slowest.growth]
    if quick:
        yield TEXTS("exceptions.times", growths=_join_growths(quick), name=NAMES[slowest.model], slowest=slowest)


def _list_view_exceptions(numbers: Recurrence) -> Iterator[Text]:
    """Say so if several heads are not clearly better than one."""
    if not {SINGLE_HEAD, MULTI_HEAD} <= set(numbers.models):
        return
    length = numbers.lengths[-1]
    single, multi = (numbers.find_shares(model, length) for model in (SINGLE_HEAD, MULTI_HEAD))
    if min(multi) <= max(single):
        shares = {"multi": _format(multi), "single": _format(single)}
        yield TEXTS("exceptions.views", name=NAMES[MULTI_HEAD], length=length, **shares)


def _draw_lines(numbers: Recurrence, target: str | Path, language: str) -> Path:
    """Draw the share of right digits over the length, and the operations in sequence and times over the tokens."""
    labels = TEXTS.select("picture", language)
    names = {model: name.select(language) for model, name in NAMES.items()}
    quality: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(numbers.quality, key=lambda row: row.length):
        quality.setdefault(names[row.model], []).append((row.length, 100 * mean(row.generated)))
    times = {names[row.model]: list(zip(numbers.tokens, row.milliseconds, strict=True)) for row in numbers.speed}
    steps = {names[row.model]: list(zip(numbers.tokens, row.steps, strict=True)) for row in numbers.speed}
    del steps[names[UNFUSED]]  # the operations of the LSTM once more
    logarithmic: dict[str, Any] = {"log_across": True, "log_vertical": True}
    mark = numbers.lengths[-1]
    panels = [
        LinePanel(quality, labels["copied"], labels["digits"], labels["percent"], from_zero=True, mark=mark),
        LinePanel(steps, labels["sequence"], labels["tokens"], labels["operations"], **logarithmic),
        LinePanel(times, labels["training"], labels["tokens"], labels["milliseconds"], **logarithmic),
    ]
    return save_panel_row(target, panels)


def _join_growths(rows: Sequence[SpeedRow]) -> Text:
    return join_numbers({NAMES[row.model]: f"x{row.growth:.1f}" for row in rows})


def _format(shares: Sequence[float]) -> str:
    """Return the mean in percent, and the range in parentheses unless all are equal when rounded."""
    average, lowest, highest = (f"{100 * share:.0f}" for share in (mean(shares), min(shares), max(shares)))
    return average if lowest == highest else f"{average} ({lowest}-{highest})"
