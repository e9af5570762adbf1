"""Answer questions about texts of many passages in six ways: what an answer costs, and how often it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor
from torch.nn import functional

from jumok.errors import ArgumentError
from jumok.lab.cost.measurements import FITTED, fit_exponent, measure_calls
from jumok.threads import use_threads

from .passage_reader import ATTENTIONS, PassageReader
from .passage_task import NAMES, PassageBatch, PassageSearch, create_passages, select_found
from .toy_training import train_steps

FOUND = 4  # passages that the search passes on
TRAINED = (2, 4, 8)  # passages of a text in training
TESTED = (4, 8, 16, 32, 64)  # in tests
BATCH, LEARNING_RATE = 64, 5e-3
HELD_OUT_SEED = 2**32  # no seed of a training run


@dataclass(frozen=True)
class ReaderSizes:
    """The sizes of readers and of their passages.

    Attributes:
        passage: The number of tokens of a passage.
        window: The number of keys of a query, with its own position, in the attention "window".
        features: The number of random features of a head, in the attention "linear".
    """

    passage: int
    width: int
    heads: int
    layers: int
    window: int
    features: int

    def create_reader(self, attention: str) -> PassageReader:
        """Return an untrained reader; the attention is one of ``ATTENTIONS``."""
        return PassageReader(
            attention,
            width=self.width,
            heads=self.heads,
            layers=self.layers,
            window=self.window,
            features=self.features,
        )


MEASURED_SIZES = ReaderSizes(passage=64, width=64, heads=2, layers=2, window=256, features=64)
# two layers with a window of 32 reach 63 tokens: five passages
TRAINED_SIZES = ReaderSizes(passage=12, width=32, heads=2, layers=2, window=32, features=32)

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
        lengths: The numbers of tokens of the text, multiples of that of a passage, in increasing order; at least two.
        rounds: How often each answer is timed; the shortest time counts.
        after_round: Called after each round, one more than ``rounds`` for each length; default: nothing.
    """
    passage = MEASURED_SIZES.passage
    least, most = FOUND * passage, NAMES * passage
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or not least <= lengths[0] <= lengths[-1] <= most:
        raise ArgumentError(f"lengths must be at least two increasing numbers from {least} to {most}")
    if any(length % passage for length in lengths) or rounds < 1:
        raise ArgumentError(f"lengths must be multiples of {passage}, and rounds at least 1")
    torch.manual_seed(seed)
    readers = {attention: MEASURED_SIZES.create_reader(attention).eval() for attention in ATTENTIONS}
    generator = torch.Generator().manual_seed(seed)
    milliseconds: dict[str, list[float]] = {name: [] for name in (*WAYS, *SEARCH_STEPS)}
    peaks: dict[str, list[int]] = {name: [] for name in milliseconds}
    index_bytes = []
    for length in lengths:
        batch = create_passages(1, length // passage, passage, generator)
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


@dataclass(frozen=True)
class WayQuality:
    """How often one way answers correctly.

    Attributes:
        way: One of ``WAYS``.
        right: For each seed, the share of right answers by number of passages, in the order of ``TESTED``.
    """

    way: str
    right: tuple[tuple[float, ...], ...]

    def average(self, passages: int) -> float:
        """Return the share of right answers over all seeds, for a number of passages of ``TESTED``."""
        return mean(scores[TESTED.index(passages)] for scores in self.right)


def train_reader(
    attention: str, *, steps: int, seed: int, after_step: Callable[[], None] | None = None
) -> PassageReader:
    """Train a reader; readers with the same seed get the same questions."""
    with use_threads(1):  # the model is tiny; and the same number of threads gives the same numbers
        torch.manual_seed(seed)
        reader = TRAINED_SIZES.create_reader(attention)
        generator = torch.Generator().manual_seed(seed)

        def compute_loss() -> Tensor:
            passages = TRAINED[int(torch.randint(len(TRAINED), (), generator=generator))]
            batch = create_passages(BATCH, passages, TRAINED_SIZES.passage, generator)
            return functional.cross_entropy(reader(batch.passages, batch.questions), batch.answers)

        train_steps(reader, compute_loss, steps=steps, learning_rate=LEARNING_RATE, after_step=after_step)
        return reader


def measure_quality(
    seeds: Sequence[int], *, steps: int, questions: int, after_step: Callable[[], None] | None = None
) -> tuple[tuple[WayQuality, ...], tuple[float, ...]]:
    """Train the readers and test every way on the same held-out questions.

    Args:
        seeds: The seeds; each trains a reader for each of ``ATTENTIONS``.
        questions: The number of held-out questions for each number of passages.

    Returns:
        The right answers of each way, and the recall of the search for each number of passages.
    """
    tests = []
    for passages in TESTED:
        batch = create_passages(
            questions, passages, TRAINED_SIZES.passage, torch.Generator().manual_seed(HELD_OUT_SEED)
        )
        tests.append((batch, *select_found(batch, FOUND)))
    right: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    for seed in seeds:
        readers = {
            attention: train_reader(attention, steps=steps, seed=seed, after_step=after_step)
            for attention in ATTENTIONS
        }
        with use_threads(1), torch.no_grad():
            for way, (attention, searched) in WAYS.items():
                scores = []
                for batch, selected, _ in tests:
                    logits = readers[attention](selected if searched else batch.passages, batch.questions)
                    scores.append(float((logits.argmax(-1) == batch.answers).double().mean()))
                right[way].append(tuple(scores))
    return tuple(WayQuality(way, tuple(right[way])) for way in WAYS), tuple(recall for *_, recall in tests)
