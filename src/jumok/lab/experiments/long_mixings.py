"""Experiment ``long``: seven ways to mix the tokens of a long text, what they cost, and whether they see far enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from jumok.bilingual_text import Text, Texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.cost.cost_report import format_bytes
from jumok.lab.cost.measurements import FITTED, fit_exponent, measure_lengths
from jumok.lab.experiments.setups.needle_task import DISTANCES, NEW_DISTANCES
from jumok.lab.result import Result, Table, count_steps, format_range
from jumok.layers import EncoderBlock
from jumok.models.long import Long, LongConfig
from jumok.reporting import Progress

from .setups import needle_task

TEXTS = Texts(__file__)
WIDTH, HEADS = 64, 2
WINDOW, BLOCK, RANDOM, FEATURES = 128, 64, 3, 64  # a window of 255 keys; blocks of 256 tokens
ORDERS = {
    "full": "n^2", "window": "n", "longformer": "n", "bigbird": "n", "blocks": "n", "performer": "n", "fnet": "n log n",
}  # fmt: skip
OPERATIONS: dict[str, Callable[[int], float]] = {
    "n^2": lambda n: n**2,
    "n": float,
    "n log n": lambda n: n * math.log(n),
}
MIXINGS = tuple(ORDERS)
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
FULL: dict[str, Any] = {"lengths": LENGTHS, "runs": 3}
CHANCE = 1 / needle_task.DIGITS
DIFFERENT = 0.25  # a fitted exponent that differs more from the theory is reported
LEARNED, GUESSED = 0.9, CHANCE + 0.1  # shares of right answers
WORSE = 0.1  # by how much new distances may be answered less often


@dataclass(frozen=True)
class MixingGrowth:
    """The cost of one layer of a mixing.

    Attributes:
        order: Its operations as a function of the length n.
        milliseconds: The shortest measured processor time for each length.
        peak_bytes: The largest memory of its tensors at one time, for each length.
        exponent: The slope of log time over log length, fitted through the three longest lengths.
        memory_exponent: The same for the memory.
        theory: The slope of ``order`` between the shortest and the longest of these lengths.
    """

    mixing: str
    order: str
    milliseconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    exponent: float
    memory_exponent: float
    theory: float


@dataclass(frozen=True)
class NeedleRow:
    """How one mixing finds the hidden digit.

    Attributes:
        reachable: The distances that the masks of all layers together allow, among those that are tested.
        reach: The largest distance that they allow.
        right: For each seed, the share of right answers by distance.
    """

    mixing: str
    reachable: tuple[int, ...]
    reach: int
    right: tuple[dict[int, float], ...]

    def average(self, distances: Sequence[int]) -> float | None:
        """Return the share of right answers over some distances and all seeds; None without distances."""
        return mean(scores[distance] for scores in self.right for distance in distances) if distances else None


def measure_long_mixings(
    lengths: Sequence[int] = LENGTHS[2:6],
    *,
    mixings: Sequence[str] = MIXINGS,
    runs: int = 1,
    steps: int = 300,
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare mixings: time and memory of one layer, and whether small models find a digit at a distance.

    Args:
        lengths: The numbers of tokens at which a layer is measured, in increasing order.
        mixings: The mixings; they must include "full" and "window".
        runs: How many models to train for each mixing; each has its own seed.
    """
    if not {"full", "window"} <= set(mixings) <= set(MIXINGS):
        raise ArgumentError(f"mixings must include full and window, and be among {', '.join(MIXINGS)}")
    if min(runs, steps) < 1:
        raise ArgumentError("runs and steps must be at least 1")
    count_step = count_steps(len(lengths) * (rounds + 1) + len(mixings) * runs * steps, progress)
    costs = measure_mixings(lengths, mixings=mixings, rounds=rounds, seed=seed, after_round=count_step)
    needles = []
    for mixing in mixings:
        distances = needle_task.find_reachable_distances(needle_task.create_model(mixing, seed))
        right = tuple(
            needle_task.train_and_score(mixing, steps=steps, seed=run_seed, after_step=count_step)
            for run_seed in range(seed, seed + runs)
        )
        reachable = tuple(distance for distance in (*DISTANCES, *NEW_DISTANCES) if distance in distances)
        needles.append(NeedleRow(mixing, reachable, max(distances), right))
    weight_bytes = tuple(4 * HEADS * length**2 for length in lengths)
    return describe_long_mixings(seed, tuple(lengths), costs, weight_bytes, tuple(needles), steps)


def describe_long_mixings(
    seed: int,
    lengths: tuple[int, ...],
    costs: tuple[MixingGrowth, ...],
    weight_bytes: tuple[int, ...],
    needles: tuple[NeedleRow, ...],
    steps: int,
) -> Result:
    """Say how the costs grow and which mixings find a distant digit, and name what differs from the theory.

    Args:
        weight_bytes: For each length, the memory of the weights of full attention, if they were kept; computed.
    """
    full = next(cost for cost in costs if cost.mixing == "full")
    window = next(row for row in needles if row.mixing == "window")
    far = [distance for distance in DISTANCES if distance > window.reach]
    exponents = sorted(cost.exponent for cost in costs if cost is not full)
    sentences = [
        TEXTS(
            "growth",
            growth=lengths[-1] // lengths[-FITTED:][0],
            longest=lengths[-1],
            full=full,
            lowest=exponents[0],
            highest=exponents[-1],
            peak=format_bytes(full.peak_bytes[-1]),
            weights=format_bytes(weight_bytes[-1]),
        ),
        TEXTS(
            "window",
            window=window,
            layers=needle_task.LAYERS,
            far=(far[0], far[-1]),
            share=window.average(far),
            chance=CHANCE,
            shares=", ".join(f"{row.mixing} {row.average(far):.0%}" for row in needles if row is not window),
        ),
    ]
    exceptions = [
        *(text for cost in costs for text in _list_cost_exceptions(cost, full, lengths[-1])),
        *(text for row in needles for text in _list_needle_exceptions(row, steps)),
    ]
    tables = [*_build_cost_tables(lengths, costs, weight_bytes), _build_needle_table(needles, steps)]
    numbers = {
        "seed": seed,
        "lengths": lengths,
        "costs": costs,
        "weight_bytes": weight_bytes,
        "needles": needles,
        "steps": steps,
    }
    return Result(numbers, tables, sentences, exceptions, partial(_draw_times, lengths, costs))


def _build_cost_tables(
    lengths: Sequence[int], costs: Sequence[MixingGrowth], weight_bytes: Sequence[int]
) -> tuple[Table, Table]:
    """Return a table of times and one of memory."""
    names = TEXTS.group("columns", distance="")
    columns = [names["mixing"], *(Text(f"{length:,}", f"{length:,}") for length in lengths), names["exponent"]]
    times = [
        (
            cost.mixing,
            *(f"{number:,.1f}" for number in cost.milliseconds),
            f"{cost.exponent:.2f}",
            f"{cost.order} ({cost.theory:.2f})",
        )
        for cost in costs
    ]
    memory: list[tuple[str | Text, ...]] = [
        (cost.mixing, *map(format_bytes, cost.peak_bytes), f"{cost.memory_exponent:.2f}") for cost in costs
    ]
    memory.append((names["weights"], *map(format_bytes, weight_bytes), "2.00"))
    return (
        Table([*columns, names["theory"]], times, TEXTS("titles.times", width=WIDTH, heads=HEADS, fitted=FITTED)),
        Table(columns, memory, TEXTS("titles.memory")),
    )


def _build_needle_table(needles: Sequence[NeedleRow], steps: int) -> Table:
    columns = [
        TEXTS("columns.mixing"),
        TEXTS("columns.reach"),
        *(Text(str(distance), str(distance)) for distance in DISTANCES),
        *(TEXTS("columns.new", distance=distance) for distance in NEW_DISTANCES),
        TEXTS("columns.range"),
    ]
    rows = []
    for row in needles:
        cells = [f"{mean(scores[distance] for scores in row.right):.0%}" for distance in (*DISTANCES, *NEW_DISTANCES)]
        per_seed = [mean(scores[distance] for distance in DISTANCES) for scores in row.right]
        rows.append((row.mixing, str(row.reach), *cells, format_range(per_seed)))
    title = TEXTS(
        "titles.needles",
        length=needle_task.LENGTH,
        layers=needle_task.LAYERS,
        steps=steps,
        runs=len(needles[0].right),
        chance=CHANCE,
    )
    return Table(columns, rows, title)


def _list_cost_exceptions(cost: MixingGrowth, full: MixingGrowth, longest: int) -> Iterator[Text]:
    """Name exponents far from the theory, and mixings slower than full attention."""
    if abs(cost.exponent - cost.theory) > DIFFERENT:
        yield TEXTS("exceptions.exponent", cost=cost, longest=longest)
    ratio = cost.milliseconds[-1] / full.milliseconds[-1]
    if ratio > 1:
        yield TEXTS("exceptions.slower", cost=cost, ratio=ratio, longest=longest)


def _list_needle_exceptions(row: NeedleRow, steps: int) -> Iterator[Text]:
    """Name where a mixing does not find what it can reach, or finds what it cannot reach."""
    usual = row.average([distance for distance in DISTANCES if distance in row.reachable])
    beyond = row.average([distance for distance in DISTANCES if distance not in row.reachable])
    new = row.average([distance for distance in NEW_DISTANCES if distance in row.reachable])
    if usual is not None and usual < LEARNED:
        yield TEXTS("exceptions.not_learned", mixing=row.mixing, share=usual, steps=steps)
    if beyond is not None and beyond > GUESSED:
        yield TEXTS("exceptions.leak", mixing=row.mixing, share=beyond)
    if new is not None and usual is not None and new < usual - WORSE:
        yield TEXTS("exceptions.new_distances", mixing=row.mixing, share=new, usual=usual)


def _draw_times(lengths: Sequence[int], costs: Sequence[MixingGrowth], target: str | Path, language: str) -> Path:
    """Draw the times over the lengths, both logarithmic."""
    series = {
        f"{cost.mixing} ({cost.exponent:.2f})": list(zip(lengths, cost.milliseconds, strict=True)) for cost in costs
    }
    return save_line_plot(series, target, log_across=True, log_vertical=True, **TEXTS.select("picture", language))


def measure_mixings(
    lengths: Sequence[int],
    *,
    mixings: Sequence[str] = MIXINGS,
    rounds: int = 3,
    seed: int = 0,
    after_round: Callable[[], None] | None = None,
) -> tuple[MixingGrowth, ...]:
    """Measure one layer of each mixing, without its feed-forward network, on one text of each length.

    The layers are those of ``Long``, with the backend that ``attend()`` selects, and one thread.

    Args:
        lengths: The numbers of tokens, in increasing order; at least two.
        after_round: Called after each round, one more than ``rounds`` for each length.
    """
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or lengths[0] < 2 or rounds < 1:
        raise ArgumentError("lengths must be at least two increasing numbers from 2, and rounds at least 1")
    torch.manual_seed(seed)
    models = {mixing: _build_model(mixing) for mixing in mixings}

    def create_calls(length: int) -> dict[str, Callable[[], object]]:
        hidden = torch.randn(1, length, WIDTH)
        return {mixing: _create_call(model, hidden) for mixing, model in models.items()}

    milliseconds, peaks = measure_lengths(lengths, create_calls, rounds=rounds, after_round=after_round)
    return tuple(summarize_growth(mixing, lengths, milliseconds[mixing], peaks[mixing]) for mixing in mixings)


def summarize_growth(
    mixing: str, lengths: Sequence[int], milliseconds: Sequence[float], peak_bytes: Sequence[int]
) -> MixingGrowth:
    """Fit the exponents of measured times and sizes, one for each length.

    >>> growth = summarize_growth("full", (256, 512, 1024), (1.0, 4.0, 16.0), (8, 16, 32))
    >>> growth.exponent, growth.memory_exponent, growth.theory
    (2.0, 1.0, 2.0)
    """
    fitted = lengths[-FITTED:]
    ends = [fitted[0], fitted[-1]]
    order = ORDERS[mixing]
    return MixingGrowth(
        mixing,
        order,
        tuple(milliseconds),
        tuple(peak_bytes),
        exponent=fit_exponent(fitted, milliseconds[-FITTED:]),
        memory_exponent=fit_exponent(fitted, peak_bytes[-FITTED:]),
        theory=fit_exponent(ends, [OPERATIONS[order](length) for length in ends]),
    )


def _build_model(mixing: str) -> Long:
    config = LongConfig(
        vocabulary=2,
        length=2,
        width=WIDTH,
        layers=2,
        heads=HEADS,
        hidden=WIDTH,
        mixing=mixing,
        window=2 * WINDOW if mixing == "blocks" else WINDOW,
        random=RANDOM,
        block=BLOCK,
        features=FEATURES,
    )
    return Long(config).eval()


def _create_call(model: Long, hidden: torch.Tensor) -> Callable[[], object]:
    mask = model.build_mask(hidden.shape[1], layer=1)  # of blocks, the shifted ones
    block = model.blocks[1]
    assert isinstance(block, EncoderBlock)
    layer = block.attention
    return lambda: layer(hidden, mask=mask)
