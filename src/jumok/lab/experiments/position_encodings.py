"""Experiment ``positions``: six position encodings, trained on short texts and tested on longer ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.bilingual_text import Text, Texts, join_numbers
from jumok.draw import LinePanel, MapPanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.experiments.setups.toy_training import IGNORED, remove_masks, train_steps
from jumok.lab.result import Result, Table, build_table, count_steps, format_range
from jumok.layers import SinusoidalPositions
from jumok.models.gpt import GPT, POSITIONS, GPTConfig
from jumok.reporting import Progress

TEXTS = Texts(__file__)
FULL: dict[str, Any] = {"offsets": (1, 3), "runs": 3, "steps": 600}
EQUAL, DIFFERENT = 1e-6, 1e-3  # vectors that differ by less are equal, by more are clearly different
LEARNED, FALL = 0.9, 0.1  # right answers of a model that learned the task; a smaller fall counts as none
RELATIVE = ("rotary", "alibi", "t5")  # encodings of distances
NAMES = TEXTS.group("encodings")

WORDS = ("I", "am", "a", "boy")
OTHER_ORDER = ("boy", "am", "I", "a")
TRAINED = 16  # tokens of a text in training
LENGTHS = (TRAINED, 2 * TRAINED, 4 * TRAINED)  # tokens of a text in tests
KINDS = 10  # different tokens
WIDTH, LAYERS, HEADS = 32, 2, 4
# T5's last bucket must occur in training, as it does in T5, which trains on 512 tokens with a largest distance of 128
BUCKETS, MAX_DISTANCE = 8, 12
BATCH, TESTED_TEXTS = 64, 200
TEST_SEED = 2**32  # added to the seed; training seeds are below


@dataclass(frozen=True)
class WordOrderRow:
    """One position encoding.

    Attributes:
        encoding: The encoding, as in ``GPTConfig.positions``.
        differences: For each word, the largest difference between its vectors in the two orders, without a mask.
    """

    encoding: str
    differences: dict[str, float]
    causal_differences: dict[str, float]


@dataclass(frozen=True)
class LengthScore:
    """The models of one encoding on texts of one length.

    Attributes:
        losses: For each seed, the loss on the tokens that shorter tested texts do not have.
        right: For each seed, the share of right answers at these tokens.
    """

    length: int
    losses: tuple[float, ...]
    right: tuple[float, ...]


@dataclass(frozen=True)
class EncodingRow:
    """One position encoding on one task.

    Attributes:
        encoding: The encoding, as in ``GPTConfig.positions``.
        offset: The task: repeat the token this many steps back.
    """

    encoding: str
    offset: int
    scores: tuple[LengthScore, ...]

    def get_right(self, length: int) -> float | None:
        """Return the mean share of right answers at a length; None if the encoding has no such positions."""
        return next((mean(score.right) for score in self.scores if score.length == length), None)


Task = Mapping[str, EncodingRow]  # the rows of one task, by encoding


def measure_positions(
    offsets: Sequence[int] = (1,),
    encodings: Sequence[str] = POSITIONS,
    *,
    runs: int = 2,
    steps: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare six position encodings: words in two orders, and small GPTs on texts longer than those in training.

    Args:
        offsets: The tasks: how many steps back the token is that a model has to repeat; each from 1 to 8.
        encodings: The encodings of the trained models, as in ``GPTConfig.positions``: "none" and at least one other.
        runs: How many models to train for each encoding and task; each has its own seed.
    """
    if "none" not in encodings or len(set(encodings)) < 2 or not set(encodings) <= set(POSITIONS):
        raise ArgumentError(f"encodings must be none and at least one other of {', '.join(POSITIONS[1:])}")
    if not offsets or min(*offsets, runs, steps) < 1 or max(offsets) > TRAINED // 2:
        raise ArgumentError(f"offsets must be 1 to {TRAINED // 2}, and runs and steps at least 1")
    tasks = [(offset, encoding) for offset in dict.fromkeys(offsets) for encoding in dict.fromkeys(encodings)]
    count_step = count_steps(len(tasks) * runs * steps, progress)
    words = measure_word_order(seed)
    rows = []
    for offset, encoding in tasks:
        models = [train_repeating_model(encoding, offset, seed + run, steps, count_step) for run in range(runs)]
        rows.append(EncodingRow(encoding, offset, score_models(models, offset, seed)))
    return describe_positions(seed, words, tuple(rows))


def describe_positions(seed: int, words: tuple[WordOrderRow, ...], rows: tuple[EncodingRow, ...]) -> Result:
    """Say what attention knows of order without positions, which encodings work beyond the trained length, and where
    the lesson did not come out.

    Args:
        words: Two orders of the same words in an encoder, for each encoding.
        rows: The trained models, for each task and encoding.
    """
    tasks = {
        offset: {row.encoding: row for row in rows if row.offset == offset}
        for offset in dict.fromkeys(row.offset for row in rows)
    }
    tables = [_build_word_table(words), *(_build_length_table(offset, task) for offset, task in tasks.items())]
    sentences = [_explain_order(words), _explain_lengths(*next(iter(tasks.items())))]
    exceptions = [
        *_list_word_exceptions(words),
        *(text for offset, task in tasks.items() for text in _list_length_exceptions(offset, task)),
    ]
    numbers = {"seed": seed, "words": words, "rows": rows}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_positions, tasks))


def _build_word_table(words: Sequence[WordOrderRow]) -> Table:
    rows = [
        {"name": NAMES[row.encoding], **row.differences, "causal": min(row.causal_differences.values())}
        for row in words
    ]
    first, second = (f'"{" ".join(order)}"' for order in (WORDS, OTHER_ORDER))
    return build_table(TEXTS, "words", rows, first=first, second=second)


def _build_length_table(offset: int, task: Task) -> Table:
    rows = []
    for row in task.values():
        cells: list[str | Text] = [NAMES[row.encoding]]
        for length in LENGTHS:
            shares = next((score.right for score in row.scores if score.length == length), None)
            cells += [f"{mean(shares):.0%}", format_range(shares)] if shares else ["-", "-"]
        rows.append(cells)
    columns = [TEXTS("columns.positions")]
    for length in LENGTHS:
        columns += [TEXTS("columns.tokens", length=length), TEXTS("columns.range")]
    title = TEXTS(
        "lengths_title",
        steps=_count_back(offset),
        trained=TRAINED,
        runs=len(next(iter(task.values())).scores[0].right),
        chance=1 / KINDS,
        second=LENGTHS[0] + 1,
        third=LENGTHS[1] + 1,
    )
    return Table(columns, rows, title)


def _explain_order(words: Sequence[WordOrderRow]) -> Text:
    unordered = next(row for row in words if row.encoding == "none")
    ordered = [difference for row in words if row is not unordered for difference in row.differences.values()]
    return TEXTS(
        "order",
        equal=max(unordered.differences.values()),
        smallest=min(ordered),
        largest=max(ordered),
        causal=min(unordered.causal_differences.values()),
    )


def _explain_lengths(offset: int, task: Task) -> Text:
    shares = {encoding: row.get_right(TRAINED) or 0.0 for encoding, row in task.items()}
    without = shares.pop("none")
    lowest, highest = f"{min(shares.values()):.0%}", f"{max(shares.values()):.0%}"
    interval = lowest if lowest == highest else TEXTS("steps.interval", lowest=lowest, highest=highest)
    far = {}
    for encoding, row in task.items():
        share = row.get_right(LENGTHS[-1])
        if share is not None and encoding != "none":
            far[NAMES[encoding]] = share
    ranking = {name: f"{far[name]:.0%}" for name in sorted(far, key=lambda name: -far[name])}
    return TEXTS(
        "lengths",
        without=without,
        interval=interval,
        steps=_count_back(offset),
        start=LENGTHS[1] + 1,
        end=LENGTHS[2],
        shares=join_numbers(ranking) if ranking else "-",
        trained=TRAINED,
    )


def _list_word_exceptions(words: Sequence[WordOrderRow]) -> Iterator[Text]:
    for row in words:
        smallest, largest = min(row.differences.values()), max(row.differences.values())
        causal = min(row.causal_differences.values())
        if row.encoding == "none" and largest >= EQUAL:
            yield TEXTS("exceptions.not_equal", difference=largest)
        if row.encoding == "none" and causal < DIFFERENT:
            yield TEXTS("exceptions.causal", difference=causal)
        if row.encoding != "none" and smallest < DIFFERENT:
            yield TEXTS("exceptions.not_different", name=NAMES[row.encoding], difference=smallest)


def _list_length_exceptions(offset: int, task: Task) -> Iterator[Text]:
    without = task["none"].get_right(TRAINED) or 0.0
    for encoding, row in task.items():
        if encoding == "none":
            continue
        trained, far = row.get_right(TRAINED) or 0.0, row.get_right(LENGTHS[-1])
        names = []
        if trained < LEARNED:
            names.append("not_learned")
        if trained <= without:
            names.append("not_better")
        if far is not None and trained >= LEARNED:  # a model that did not learn has nothing to lose
            if encoding in RELATIVE and far < trained - FALL:
                names.append("falls")
            if encoding == "sinusoidal" and far >= trained - FALL:
                names.append("does_not_fall")
        for name in names:
            yield TEXTS(
                f"exceptions.{name}",
                name=NAMES[encoding],
                steps=_count_back(offset),
                trained=trained,
                without=without,
                far=far,
                longest=LENGTHS[-1],
            )


def _draw_positions(tasks: Mapping[int, Task], target: str | Path, language: str) -> Path:
    """Draw the right answers by length for each task, and the sinusoids as a heat map."""
    labels = TEXTS.select("picture", language)
    panels: list[LinePanel | MapPanel] = []
    for offset, task in tasks.items():
        series = {
            NAMES[encoding].select(language): [(score.length, mean(score.right)) for score in row.scores]
            for encoding, row in task.items()
        }
        title = TEXTS("picture_title", steps=_count_back(offset), trained=TRAINED).select(language)
        panels.append(LinePanel(series, title, labels["across"], labels["right"], log_across=True, limits=(0.0, 1.04)))
    sinusoids = SinusoidalPositions(WIDTH)(range(LENGTHS[-1])).numpy()
    panels.append(MapPanel(labels["sinusoids"], sinusoids, labels["dimension"], labels["position"]))
    return save_panel_row(target, panels)


def _count_back(offset: int) -> Text:
    return TEXTS("steps.singular") if offset == 1 else TEXTS("steps.plural", offset=offset)


def create_model(encoding: str, seed: int, tokens: int = KINDS) -> GPT:
    """Return an untrained GPT with a position encoding; ``tokens`` is the number of different tokens."""
    torch.manual_seed(seed)
    # a table longer than the trained texts would end with vectors that were never trained
    length = TRAINED if encoding == "learned" else LENGTHS[-1]
    config = GPTConfig(
        vocabulary=tokens, length=length, width=WIDTH, layers=LAYERS, heads=HEADS, hidden=4 * WIDTH, positions=encoding
    )
    if encoding == "t5":
        config = config.replace(buckets=BUCKETS, max_distance=MAX_DISTANCE)
    return GPT(config)


def create_word_model(encoding: str, seed: int) -> GPT:
    """Return a GPT with random parameters, so large that the order of words can be seen in its vectors."""
    model = create_model(encoding, seed, len(WORDS)).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return model.double()  # sums in another order differ by rounding, in float32 by up to 1e-6


@torch.no_grad()
def encode_words(model: GPT, words: Sequence[str]) -> Float[Tensor, "word width"]:
    """Return the vector of each word; the words are some of ``WORDS``, in any order."""
    vectors: Tensor = model(torch.tensor([[WORDS.index(word) for word in words]])).hidden[0]
    return vectors


def measure_word_order(seed: int = 0) -> tuple[WordOrderRow, ...]:
    """Compare the vectors of "I am a boy" and "boy am I a" with each encoding, without a mask and with a causal one."""
    rows = []
    for encoding in POSITIONS:
        model = create_word_model(encoding, seed)
        with remove_masks():
            differences = _compare_orders(model)
        rows.append(WordOrderRow(encoding, differences, _compare_orders(model)))
    return tuple(rows)


def _compare_orders(model: GPT) -> dict[str, float]:
    first, second = encode_words(model, WORDS), encode_words(model, OTHER_ORDER)
    return {word: float((first[WORDS.index(word)] - second[OTHER_ORDER.index(word)]).abs().max()) for word in WORDS}


def create_repeat_examples(
    count: int, length: int, offset: int, generator: torch.Generator
) -> tuple[Int[Tensor, "example token"], Int[Tensor, "example token"]]:
    """Return random tokens, and for each the token ``offset`` steps back as its target."""
    tokens = torch.randint(KINDS, (count, length), generator=generator)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, offset:] = tokens[:, :-offset]
    return tokens, targets


def train_repeating_model(encoding: str, offset: int, seed: int, steps: int, count_step: Callable[[], None]) -> GPT:
    """Train a small GPT to repeat the token ``offset`` steps back."""
    model = create_model(encoding, seed)
    generator = torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        tokens, targets = create_repeat_examples(BATCH, TRAINED, offset, generator)
        logits = model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    train_steps(model, compute_loss, steps=steps, learning_rate=5e-3, after_step=count_step)
    return model


@torch.no_grad()
def score_models(models: Sequence[GPT], offset: int, seed: int) -> tuple[LengthScore, ...]:
    """Test models on texts of every length that they read, which differ from those of training."""
    scores, start = [], 0
    for length in LENGTHS:
        if length > models[0].config.length:
            break
        generator = torch.Generator().manual_seed(seed + TEST_SEED)
        tokens, targets = create_repeat_examples(TESTED_TEXTS, length, offset, generator)
        losses, right = [], []
        for model in models:
            logits = model(tokens).logits[:, start:]
            is_target = targets[:, start:] != IGNORED
            expected, answers = targets[:, start:][is_target], logits[is_target]
            losses.append(float(torch.nn.functional.cross_entropy(answers, expected)))
            right.append(float((answers.argmax(-1) == expected).double().mean()))
        scores.append(LengthScore(length, tuple(losses), tuple(right)))
        start = length
    return tuple(scores)
