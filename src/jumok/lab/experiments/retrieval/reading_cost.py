"""What it costs to answer a question about a text of many passages, in six ways, as the text grows longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from jumok.errors import ArgumentError
from jumok.lab.cost.call_cost import measure_calls
from jumok.lab.cost.mixing_growth import FITTED, HEADS, WIDTH, fit_exponent

from .passage_reader import ATTENTIONS, PassageReader
from .passage_search import PassageSearch
from .passage_task import NAMES, PassageBatch, create_passages

LAYERS = 2
WINDOW = 256  # keys of a query, with its own
FEATURES = 64
PASSAGE = 64  # tokens
FOUND = 4  # passages that the search passes on

#: each way: the attention of its reader, and whether it reads only the passages that a search finds
WAYS = {
    "prompt": ("full", False),
    "found": ("full", True),
    "fusion": ("fusion", False),
    "fusion found": ("fusion", True),
    "window": ("window", False),
    "linear": ("linear", False),
}
SEARCH_STEPS = ("index", "search")  # measured beside the ways


@dataclass(frozen=True)
class WayCost:
    """What one way costs.

    Attributes:
        way: One of ``WAYS``.
        milliseconds: The processor time of an answer for each length, with the search, without its index.
        peak_bytes: The largest memory of its tensors at one time, for each length.
        exponent: The slope of log time over log length, fitted through the three longest lengths.
    """

    way: str
    milliseconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    exponent: float


@dataclass(frozen=True)
class SearchCost:
    """What the search costs.

    Attributes:
        index_milliseconds: The processor time of indexing a text, once, for each length.
        question_milliseconds: The processor time of one search, for each length.
        index_bytes: The size of the index, for each length.
    """

    index_milliseconds: tuple[float, ...]
    question_milliseconds: tuple[float, ...]
    index_bytes: tuple[int, ...]


def measure_reading(
    lengths: Sequence[int], *, rounds: int, seed: int, after_round: Callable[[], None] | None = None
) -> tuple[tuple[WayCost, ...], SearchCost]:
    """Measure one answer in each way, with untrained readers of equal width and as many layers, and one thread.

    Args:
        lengths: The numbers of tokens of the text, multiples of ``PASSAGE``, in increasing order; at least two.
        rounds: How often each answer is timed; the shortest time counts.
        after_round: Called after each round, one more than ``rounds`` for each length; default: nothing.

    Raises:
        ArgumentError: If the lengths do not fit, or bm25s is not installed.
    """
    least, most = FOUND * PASSAGE, NAMES * PASSAGE
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or not least <= lengths[0] <= lengths[-1] <= most:
        raise ArgumentError(f"lengths must be at least two increasing numbers from {least} to {most}")
    if any(length % PASSAGE for length in lengths) or rounds < 1:
        raise ArgumentError(f"lengths must be multiples of {PASSAGE}, and rounds at least 1")
    torch.manual_seed(seed)
    readers = {
        attention: PassageReader(
            attention, width=WIDTH, heads=HEADS, layers=LAYERS, window=WINDOW, features=FEATURES
        ).eval()
        for attention in ATTENTIONS
    }
    generator = torch.Generator().manual_seed(seed)
    milliseconds: dict[str, list[float]] = {name: [] for name in (*WAYS, *SEARCH_STEPS)}
    peaks: dict[str, list[int]] = {name: [] for name in milliseconds}
    index_bytes = []
    for length in lengths:
        batch = create_passages(1, length // PASSAGE, PASSAGE, generator)
        search = PassageSearch(batch.passages[0])
        index_bytes.append(search.bytes)
        calls = _create_calls(readers, batch, search)
        for name, cost in measure_calls(calls, rounds=rounds, after_round=after_round).items():
            milliseconds[name].append(cost.milliseconds)
            peaks[name].append(cost.peak_bytes)
    costs = tuple(
        WayCost(
            way,
            tuple(milliseconds[way]),
            tuple(peaks[way]),
            fit_exponent(lengths[-FITTED:], milliseconds[way][-FITTED:]),
        )
        for way in WAYS
    )
    index_times, search_times = (tuple(milliseconds[step]) for step in SEARCH_STEPS)
    return costs, SearchCost(index_times, search_times, tuple(index_bytes))


def _create_calls(
    readers: Mapping[str, PassageReader], batch: PassageBatch, search: PassageSearch
) -> dict[str, Callable[[], object]]:
    """Return the calls to measure for one text: an answer in each way, and the steps of the search."""
    passages, questions = batch.passages, batch.questions

    def find_passages() -> list[int]:
        return search.find(questions[0], FOUND)

    def create_answer(reader: PassageReader, searched: bool) -> Callable[[], object]:
        return lambda: reader(passages[:, find_passages()] if searched else passages, questions)

    calls = {way: create_answer(readers[attention], searched) for way, (attention, searched) in WAYS.items()}
    return {**calls, "index": lambda: PassageSearch(passages[0]), "search": find_passages}
