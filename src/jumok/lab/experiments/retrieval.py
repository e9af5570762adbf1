"""Experiment ``retrieval``: answer questions about long texts, by attention to all of it or to what a search finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jumok.bilingual_text import Text, Texts
from jumok.draw import LinePanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.cost.cost_report import format_bytes
from jumok.lab.cost.measurements import FITTED
from jumok.lab.experiments.setups.passage_reader import (
    ATTENTIONS,
    FOUND,
    MEASURED_SIZES,
    TESTED,
    TRAINED,
    TRAINED_SIZES,
    SearchCost,
    WayCost,
    WayQuality,
    measure_quality,
    measure_reading,
)
from jumok.lab.experiments.setups.passage_task import VALUES
from jumok.lab.result import Cell, Result, Table, count_steps, format_range
from jumok.reporting import Progress

TEXTS = Texts(__file__)
LENGTHS = (1024, 2048, 4096, 8192, 16384)
FULL: dict[str, Any] = {"lengths": LENGTHS, "runs": 3, "steps": 1000}
CHANCE = 1 / VALUES
THEORY = {"prompt": 2.0, "found": 0.0, "fusion": 1.0, "fusion found": 0.0, "window": 1.0, "linear": 1.0}
DIFFERENT = 0.4  # a fitted exponent that differs more from the theory is reported; projections are O(n) in all ways
LEARNED = 0.9  # share of right answers at the longest texts of the training
LEAK = 0.1  # by how much a window may answer more than it can reach
NAMES = TEXTS.group("ways", found=FOUND)


@dataclass(frozen=True)
class Retrieval:
    """What the experiment measured.

    Attributes:
        passages: The numbers of passages of the held-out texts.
        reach: How many tokens before the last one the windows of all layers reach, in the trained reader.
        recall: For each number of passages, the share of questions whose passage the search finds.
    """

    seed: int
    lengths: tuple[int, ...]
    costs: tuple[WayCost, ...]
    search: SearchCost
    steps: int
    passages: tuple[int, ...]
    reach: int
    quality: tuple[WayQuality, ...]
    recall: tuple[float, ...]


def measure_retrieval(
    lengths: Sequence[int] = LENGTHS[:4],
    *,
    runs: int = 1,
    steps: int = 300,
    questions: int = 200,
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare six ways to answer a question about a text of many passages: time, memory and right answers.

    Args:
        lengths: The numbers of tokens of the texts whose cost is measured, in increasing order.
        runs: How many readers to train for each attention; each has its own seed.
        questions: The number of held-out questions for each number of passages.
    """
    if min(runs, steps, questions) < 1:
        raise ArgumentError("runs, steps and questions must be at least 1")
    count_step = count_steps(len(lengths) * (rounds + 1) + len(ATTENTIONS) * runs * steps, progress)
    costs, search = measure_reading(lengths, rounds=rounds, seed=seed, after_round=count_step)
    quality, recall = measure_quality(range(seed, seed + runs), steps=steps, questions=questions, after_step=count_step)
    reach = TRAINED_SIZES.create_reader("window").reach
    assert reach is not None
    numbers = Retrieval(seed, tuple(lengths), costs, search, steps, TESTED, reach, quality, recall)
    return describe_retrieval(numbers)


def describe_retrieval(numbers: Retrieval) -> Result:
    """Say how the costs grow, what the search costs and misses, and what each way answers."""
    tables = [_build_time_table(numbers), _build_memory_table(numbers), _build_quality_table(numbers)]
    most, reach = numbers.passages[-1], numbers.reach
    shares = {row.way: row.average(most) for row in numbers.quality}
    reached = reach / TRAINED_SIZES.passage
    sentences = [
        *_explain_costs(numbers),
        TEXTS("answers", most=most, found=FOUND, shares=shares, recall=numbers.recall[-1]),
        TEXTS("window", trained=TRAINED_SIZES, reach=reach, reached=reached, shares=shares, chance=CHANCE),
    ]
    exceptions = list(_list_exceptions(numbers, shares))
    return Result(vars(numbers), tables, sentences, exceptions, partial(_draw_ways, numbers))


def _build_time_table(numbers: Retrieval) -> Table:
    search = numbers.search
    rows: list[Sequence[Cell]] = [
        (NAMES[cost.way], *(f"{time:,.1f}" for time in cost.milliseconds), f"{cost.exponent:.2f}")
        for cost in numbers.costs
    ]
    rows += [
        (TEXTS("rows.search"), *(f"{time:,.2f}" for time in search.question_milliseconds), ""),
        (TEXTS("rows.index"), *(f"{time:,.1f}" for time in search.index_milliseconds), ""),
    ]
    title = TEXTS("titles.times", **vars(MEASURED_SIZES), fitted=FITTED)
    return Table([*_name_lengths(numbers.lengths), TEXTS("columns.exponent")], rows, title)


def _build_memory_table(numbers: Retrieval) -> Table:
    weights = [4 * MEASURED_SIZES.heads * length**2 for length in numbers.lengths]
    sizes: list[tuple[Text, Sequence[int]]] = [(NAMES[cost.way], cost.peak_bytes) for cost in numbers.costs]
    sizes += [(TEXTS("rows.index_size"), numbers.search.index_bytes), (TEXTS("rows.weights"), weights)]
    rows: list[Sequence[Cell]] = [(name, *map(format_bytes, row)) for name, row in sizes]
    return Table(_name_lengths(numbers.lengths), rows, TEXTS("titles.memory"))


def _name_lengths(lengths: Sequence[int]) -> list[Text]:
    return [TEXTS("columns.way"), *(Text(f"{length:,}", f"{length:,}") for length in lengths)]


def _build_quality_table(numbers: Retrieval) -> Table:
    least, most = min(TRAINED), max(TRAINED)
    columns = [TEXTS("columns.passages", passages=count, new="*" * (count > most)) for count in numbers.passages]
    rows: list[Sequence[Cell]] = []
    for row in numbers.quality:
        ends = [scores[TESTED.index(most)] for scores in row.right]
        cells = [f"{row.average(count):.0%}" for count in numbers.passages]
        rows.append((NAMES[row.way], *cells, format_range(ends)))
    rows.append((TEXTS("rows.recall"), *(f"{share:.0%}" for share in numbers.recall), ""))
    title = TEXTS(
        "titles.quality",
        trained=TRAINED_SIZES,
        steps=numbers.steps,
        least=least,
        most=most,
        runs=len(numbers.quality[0].right),
        chance=CHANCE,
    )
    return Table([TEXTS("columns.way"), *columns, TEXTS("columns.range")], rows, title)


def _explain_costs(numbers: Retrieval) -> Iterator[Text]:
    costs = {cost.way: cost for cost in numbers.costs}
    prompt, selected, fusion = (costs[way] for way in ("prompt", "found", "fusion"))
    yield TEXTS(
        "costs",
        longest=numbers.lengths[-1],
        prompt=prompt,
        prompt_time=prompt.milliseconds[-1],
        prompt_memory=format_bytes(prompt.peak_bytes[-1]),
        found=FOUND,
        found_time=selected.milliseconds[-1],
        found_memory=format_bytes(selected.peak_bytes[-1]),
        ratio=prompt.milliseconds[-1] / selected.milliseconds[-1],
        search_time=numbers.search.question_milliseconds[-1],
        index_time=numbers.search.index_milliseconds[-1],
    )
    exponents = [costs[way].exponent for way in ("fusion", "window", "linear")]
    speedup = prompt.milliseconds[-1] / fusion.milliseconds[-1]
    yield TEXTS("fusion", speedup=speedup, lowest=min(exponents), highest=max(exponents))


def _list_exceptions(numbers: Retrieval, shares: Mapping[str, float]) -> Iterator[Text]:
    """Name costs that do not grow as in theory, readers that did not learn, searches that cost right answers, and a
    window that sees too far."""
    for cost in numbers.costs:
        theory = THEORY[cost.way]
        if abs(cost.exponent - theory) > DIFFERENT:
            longest = numbers.lengths[-1]
            yield TEXTS("exceptions.exponent", name=NAMES[cost.way], longest=longest, cost=cost, theory=theory)
    quality = {row.way: row for row in numbers.quality}
    most = numbers.passages[-1]
    usual = max(TRAINED)
    for way in ("prompt", "fusion", "linear"):
        share = quality[way].average(usual)
        if share < LEARNED:
            yield TEXTS("exceptions.not_learned", name=NAMES[way], share=share, passages=usual, steps=numbers.steps)
    for way, baseline in (("found", "prompt"), ("fusion found", "fusion")):
        share, without = shares[way], shares[baseline]
        if share < without:
            yield TEXTS("exceptions.missed", name=NAMES[way], passages=most, share=share, without=without)
    reachable = min(1.0, numbers.reach / (TRAINED_SIZES.passage * most))
    if shares["window"] > reachable + CHANCE + LEAK:
        yield TEXTS("exceptions.leak", share=shares["window"], passages=most)


def _draw_ways(numbers: Retrieval, target: str | Path, language: str) -> Path:
    """Draw time and memory over the length of the text, and the right answers over its passages."""
    labels = TEXTS.select("picture", language, most=max(TRAINED))
    names = {way: name.select(language) for way, name in NAMES.items()}
    times = {names[cost.way]: list(zip(numbers.lengths, cost.milliseconds, strict=True)) for cost in numbers.costs}
    memory = {}
    for cost in numbers.costs:
        megabytes = [size / 2**20 for size in cost.peak_bytes]
        memory[names[cost.way]] = list(zip(numbers.lengths, megabytes, strict=True))
    right = {
        names[row.way]: [(count, 100 * row.average(count)) for count in numbers.passages] for row in numbers.quality
    }
    right[TEXTS("rows.recall").select(language)] = [
        (count, 100 * share) for count, share in zip(numbers.passages, numbers.recall, strict=True)
    ]
    tokens = labels["tokens"]
    panels = [
        LinePanel(times, labels["time"], tokens, labels["milliseconds"], log_across=True, log_vertical=True),
        LinePanel(memory, labels["memory"], tokens, "MB", log_across=True, log_vertical=True),
        LinePanel(
            right, labels["right"], labels["passages"], "%", log_across=True, limits=(0.0, 103.0), mark=max(TRAINED)
        ),
    ]
    return save_panel_row(target, panels)
