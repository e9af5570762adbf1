"""Small models that read passages and answer a question: what an answer costs in six ways, and how often it is right.

Only the attention differs. "full", "window" and "linear" are a prompt: all passages, then the question, in one causal
stack as in GPT-2; the last token answers. "fusion" is Fusion-in-Decoder (Izacard and Grave 2021): each passage is
encoded apart, with the question, and the decoder, which reads the question, attends to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.attention import MultiHead, mask, score
from jumok.attention.feature_maps import FavorPlus
from jumok.attention.mask import Mask
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError
from jumok.lab.cost.measurements import FITTED, fit_exponent, measure_lengths
from jumok.layers import EncoderBlock, FeedForward, LayerNorm
from jumok.threads import use_threads

from .passage_task import (
    NAMES,
    VALUES,
    VOCABULARY,
    PassageBatch,
    Passages,
    PassageSearch,
    Questions,
    create_passages,
    select_found,
)
from .toy_training import train_steps

ATTENTIONS = ("full", "fusion", "window", "linear")
FOUND = 4  # passages that the search passes on
TRAINED = (2, 4, 8)  # passages of a text in training
TESTED = (4, 8, 16, 32, 64)  # in tests
BATCH, LEARNING_RATE = 64, 5e-3
HELD_OUT_SEED = 2**32  # no seed of a training run


class PassageReader(nn.Module):
    """A reader of passages.

    Args:
        attention: One of ``ATTENTIONS``.
        layers: The number of blocks of the prompt's stack, of fusion's encoder, and of fusion's decoder.
        window: "window": the number of keys of a query, its own position included.
        features: "linear": the number of random features of a head.
    """

    def __init__(self, attention: str, *, width: int, heads: int, layers: int, window: int, features: int) -> None:
        super().__init__()
        if attention not in ATTENTIONS:
            raise ArgumentError(f"unknown attention {attention!r}; choose one of {', '.join(ATTENTIONS)}")
        self.attention = attention
        self.layers, self.window = layers, window
        self.embedding = nn.Embedding(VOCABULARY, width)
        # Every token also carries the one before it (token shift; Peng et al. 2023), so that a value knows its name
        # and no other position information is needed.
        self.shift = nn.Linear(width, width, bias=False)
        formula = score.Kernel(FavorPlus(features)) if attention == "linear" else None
        self.blocks = nn.ModuleList(_build_block(width, MultiHead(width, heads, score=formula)) for _ in range(layers))
        is_fusion = attention == "fusion"
        self.source_norm = LayerNorm(width) if is_fusion else None
        self.decoder = nn.ModuleList(
            _build_block(width, MultiHead(width, heads)) for _ in range(layers if is_fusion else 0)
        )
        self.norm = LayerNorm(width)
        self.output = nn.Linear(width, VALUES)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Let equal names attract each other from the beginning, which saves most of the training steps."""
        nn.init.eye_(self.shift.weight)
        for module in self.modules():
            if isinstance(module, Fused):
                query, key, _ = module.joined.weight.split(module.widths)
                key.copy_(query)

    @property
    def mask(self) -> Mask | None:
        """Which tokens of its input a token may attend to; None = all."""
        if self.attention == "fusion":
            return None  # a passage is a row of its own; equal to documents(ids) on one row
        return mask.causal & mask.window(self.window) if self.attention == "window" else mask.causal

    @property
    def reach(self) -> int | None:
        """How many tokens before the last one can change the answer; None = all."""
        # the token shift carries one more
        return self.layers * (self.window - 1) + 1 if self.attention == "window" else None

    def forward(self, passages: Passages, questions: Questions) -> Float[Tensor, "batch value"]:
        """Return the logits of the answers."""
        batch, count, _ = passages.shape
        if self.attention != "fusion":
            hidden = self._run_blocks(torch.cat([passages.flatten(1), questions], 1))
            return self._compute_logits(hidden[:, -1])

        repeated = questions[:, None].expand(-1, count, -1)
        source = self._run_blocks(torch.cat([repeated, passages], 2).flatten(0, 1))
        source = source[:, questions.shape[1] :]  # the decoder knows the question; copies of it are no answers
        assert self.source_norm is not None
        source = self.source_norm(source).unflatten(0, (batch, count)).flatten(1, 2)
        hidden = self._embed(questions)[:, -1:]
        for block in self.decoder:
            hidden = block(hidden, source=source)
        return self._compute_logits(hidden[:, 0])

    def _embed(self, tokens: Int[Tensor, "row token"]) -> Float[Tensor, "row token width"]:
        vectors: Tensor = self.embedding(tokens)
        before = functional.pad(vectors[:, :-1], (0, 0, 1, 0))
        output: Tensor = vectors + self.shift(before)
        return output

    def _run_blocks(self, tokens: Int[Tensor, "row token"]) -> Float[Tensor, "row token width"]:
        hidden = self._embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, mask=self.mask)
        return hidden

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(self.norm(hidden))
        return logits


def _build_block(width: int, attention: MultiHead) -> EncoderBlock:
    return EncoderBlock(attention, FeedForward(width, 4 * width), norm=lambda: LayerNorm(width), order="pre")


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
        after_round: Called after each round, one more than ``rounds`` for each length.
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
    index_bytes = []

    def create_calls(length: int) -> dict[str, Callable[[], object]]:
        batch = create_passages(1, length // passage, passage, generator)
        search = PassageSearch(batch.passages[0])
        index_bytes.append(search.bytes)
        return _create_calls(readers, batch, search)

    milliseconds, peaks = measure_lengths(lengths, create_calls, rounds=rounds, after_round=after_round)
    fitted = lengths[-FITTED:]
    costs = tuple(
        WayCost(way, milliseconds[way], peaks[way], fit_exponent(fitted, milliseconds[way][-FITTED:])) for way in WAYS
    )
    return costs, SearchCost(milliseconds["index"], milliseconds["search"], tuple(index_bytes))


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
