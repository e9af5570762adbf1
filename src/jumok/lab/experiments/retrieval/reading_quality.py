"""Train the readers on the same passages and questions, and test them on more passages than in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor
from torch.nn import functional

from jumok.lab.experiments.toy_training import train_steps
from jumok.threads import use_threads

from .passage_reader import ATTENTIONS, PassageReader
from .passage_search import select_found
from .passage_task import create_passages
from .reading_cost import FOUND, WAYS

PASSAGE = 12  # tokens
TRAINED = (2, 4, 8)  # passages of a text in training
TESTED = (4, 8, 16, 32, 64)  # in tests
WIDTH, HEADS, LAYERS = 32, 2, 2
WINDOW = 32  # two layers reach 63 tokens: five passages
FEATURES = 32
BATCH, LEARNING_RATE = 64, 5e-3
HELD_OUT_SEED = 2**32  # no seed of a training run


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
        """Return the share of right answers over all seeds.

        Args:
            passages: The number of passages, one of ``TESTED``.
        """
        return mean(scores[TESTED.index(passages)] for scores in self.right)


def train_reader(
    attention: str, *, steps: int, seed: int, after_step: Callable[[], None] | None = None
) -> PassageReader:
    """Train a reader; readers with the same seed get the same questions.

    Args:
        attention: One of ``ATTENTIONS``.
        after_step: Called after each step; default: nothing.
    """
    with use_threads(1):  # the model is tiny; and the same number of threads gives the same numbers
        torch.manual_seed(seed)
        reader = create_reader(attention)
        generator = torch.Generator().manual_seed(seed)

        def compute_loss() -> Tensor:
            passages = TRAINED[int(torch.randint(len(TRAINED), (), generator=generator))]
            batch = create_passages(BATCH, passages, PASSAGE, generator)
            return functional.cross_entropy(reader(batch.passages, batch.questions), batch.answers)

        train_steps(reader, compute_loss, steps=steps, learning_rate=LEARNING_RATE, after_step=after_step)
        return reader


def create_reader(attention: str) -> PassageReader:
    """Return an untrained reader.

    Args:
        attention: One of ``ATTENTIONS``.
    """
    return PassageReader(attention, width=WIDTH, heads=HEADS, layers=LAYERS, window=WINDOW, features=FEATURES)


def measure_quality(
    seeds: Sequence[int], *, steps: int, questions: int, after_step: Callable[[], None] | None = None
) -> tuple[tuple[WayQuality, ...], tuple[float, ...]]:
    """Train the readers and test every way on the same held-out questions.

    Args:
        seeds: The seeds; each trains a reader for each of ``ATTENTIONS``.
        questions: The number of held-out questions for each number of passages.
        after_step: Called after each step; default: nothing.

    Returns:
        The right answers of each way, and the recall of the search for each number of passages.
    """
    tests = []
    for passages in TESTED:
        batch = create_passages(questions, passages, PASSAGE, torch.Generator().manual_seed(HELD_OUT_SEED))
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
