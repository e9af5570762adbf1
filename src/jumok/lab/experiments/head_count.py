"""Experiment ``heads``: 1 to 16 heads of one width cost the same, and several heads look at several tokens at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import MultiHead
from jumok.bilingual_text import Text, Texts
from jumok.draw import AXIS_NAMES, save_head_grid
from jumok.errors import ArgumentError
from jumok.lab.cost.measurements import time_calls
from jumok.lab.experiments.setups.toy_training import IGNORED, Questions, train_steps
from jumok.lab.result import Result, build_table, count_steps, format_range
from jumok.models.gpt import GPT, GPTConfig
from jumok.reporting import Progress

TEXTS = Texts(__file__)

HEADS = (1, 2, 4, 8, 16)
FULL: dict[str, Any] = {"runs": 5}
LAYER_WIDTH, TOKENS = 512, 128  # of the layer whose time is measured
ROUNDS = 50
MODEL_WIDTH = 64  # of the trained models
BATCH = 32
ONE, SEVERAL = 1, 4  # look-ups of the two tasks
DRAWN_HEADS = 8  # models with more heads are not drawn
FEWEST_KINDS, MOST_KINDS = 3, 8  # fewer give too few different rows, more too many labels
LENGTH = 12  # digits of a row
TRAINING_ROWS, HELD_OUT_ROWS = 20_000, 500
SIMILAR = 1.25  # times within this factor of one head count as equal


@dataclass(frozen=True)
class TaskQuality:
    """How well trained models solve one of the two tasks.

    Attributes:
        losses: For each seed, the loss on held-out rows.
        right: For each seed, the share of right labels of held-out rows.
    """

    losses: tuple[float, ...]
    right: tuple[float, ...]

    @property
    def loss(self) -> float:
        """The loss, on average over the seeds."""
        return mean(self.losses)

    @property
    def range(self) -> str:
        """The lowest and the highest loss."""
        return format_range(self.losses, ".3f")

    @property
    def share(self) -> float:
        """The share of right labels, on average over the seeds."""
        return mean(self.right)

    def is_lower(self, other: TaskQuality) -> bool:
        """Return whether every loss is below every loss of another quality, so that seeds do not explain it."""
        return max(self.losses) < min(other.losses)

    def differs(self, other: TaskQuality) -> bool:
        """Return whether the ranges of the shares of right labels are apart."""
        return max(self.right) < min(other.right) or max(other.right) < min(self.right)


@dataclass(frozen=True)
class HeadCountRow:
    """One number of heads.

    Attributes:
        parameters: The parameters of the measured attention layer, 512 wide.
        operations: The operations of its forward pass with 128 tokens, as PyTorch counts them.
        milliseconds: The shortest measured processor time of its forward pass.
        weight_bytes: The memory of its attention weights, if they are kept.
        single_look_up: The quality of trained models whose task needs one look-up.
        four_look_ups: The quality of trained models whose task needs four look-ups.
    """

    heads: int
    parameters: int
    operations: int
    milliseconds: float
    weight_bytes: int
    single_look_up: TaskQuality
    four_look_ups: TaskQuality


def measure_head_counts(
    heads: Sequence[int] = HEADS,
    *,
    runs: int = 2,
    steps: int = 300,
    kinds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compare numbers of heads at one width: the cost of a layer, and the quality of small models on two tasks.

    In the first task a model names the digit before each token; in the second, the four digits before it at once. One
    softmax gives one mixture of tokens; with a head for each look-up, each head can attend to one token alone.

    Args:
        heads: The numbers of heads; each must divide 64.
        runs: How many models to train for each number of heads and task; each has its own seed.
        kinds: How many different digits there are, from 3 to 8.
    """
    if not heads or min(*heads, runs, steps) < 1 or any(MODEL_WIDTH % count for count in heads):
        raise ArgumentError(f"heads must divide {MODEL_WIDTH}, and runs and steps must be at least 1")
    tasks = {look_ups: create_look_up_rows(look_ups, kinds, seed) for look_ups in (ONE, SEVERAL)}
    count_step = count_steps(len(tasks) * len(heads) * runs * steps, progress)
    example = tasks[SEVERAL][1][:1, :LENGTH]
    rows, maps = [], {}
    for count, cost in zip(heads, _measure_layers(heads, seed), strict=True):
        qualities = []
        for look_ups, (train, held_out) in tasks.items():
            losses, right = [], []
            for run_seed in range(seed, seed + runs):
                model = _train_model(count, look_ups, kinds, run_seed, steps, train, count_step)
                with torch.no_grad():
                    losses.append(float(compute_label_loss(model, held_out)))
                right.append(compute_label_accuracy(model, held_out))
                if look_ups == SEVERAL and run_seed == seed and count <= DRAWN_HEADS:
                    maps[count] = _read_weights(model, example)
            qualities.append(TaskQuality(tuple(losses), tuple(right)))
        rows.append(HeadCountRow(count, *cost, *qualities))
    tokens = tuple(str(token) for token in example[0].tolist())
    return describe_head_counts(seed, steps, kinds, tuple(rows), tokens, maps)


def describe_head_counts(
    seed: int,
    steps: int,
    kinds: int,
    rows: tuple[HeadCountRow, ...],
    tokens: tuple[str, ...],
    maps: dict[int, list[list[list[float]]]],
) -> Result:
    """Say what the number of heads costs and what it changes, and name numbers of heads that are not clearly better.

    Args:
        maps: For each number of heads up to 8, the weights of its heads on the tokens, with four look-ups.
    """
    first = rows[0]
    best = min(rows, key=lambda row: row.four_look_ups.loss)
    times = [row.milliseconds / first.milliseconds for row in rows]
    lines = [
        {"row": row, "ratio": ratio, "kilobytes": row.weight_bytes / 1024, "width": MODEL_WIDTH // row.heads}
        for row, ratio in zip(rows, times, strict=True)
    ]
    tables = [
        build_table(TEXTS, "cost", lines, width=LAYER_WIDTH, tokens=TOKENS, first=first),
        build_table(
            TEXTS,
            "quality",
            lines,
            width=MODEL_WIDTH,
            several=SEVERAL,
            chance=1 / kinds,
            several_chance=1 / kinds**SEVERAL,
            steps=steps,
            runs=len(first.single_look_up.losses),
        ),
    ]
    sentences = [
        TEXTS("equal_cost", first=first, shortest=min(times), longest=max(times)),
        TEXTS("several_views", several=SEVERAL, first=first, best=best),
    ]
    exceptions = [*_list_cost_exceptions(rows), *_list_quality_exceptions(rows, best)]
    numbers = {"seed": seed, "steps": steps, "kinds": kinds, "rows": rows, "tokens": tokens, "maps": maps}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_heads, tokens, maps))


def _list_cost_exceptions(rows: Sequence[HeadCountRow]) -> Iterator[Text]:
    first = rows[0]
    for row in rows[1:]:
        if (row.parameters, row.operations) != (first.parameters, first.operations):
            yield TEXTS("exceptions.cost", row=row)
        ratio = row.milliseconds / first.milliseconds
        if not 1 / SIMILAR <= ratio <= SIMILAR:
            yield TEXTS("exceptions.time", row=row, ratio=ratio, first=first)


def _list_quality_exceptions(rows: Sequence[HeadCountRow], best: HeadCountRow) -> Iterator[Text]:
    first, *later_rows = rows
    narrower_rows = [row for row in later_rows if row.heads > best.heads]
    exceptions = {
        "unclear": [row for row in later_rows if not row.four_look_ups.is_lower(first.four_look_ups)],
        "worse": narrower_rows,
        "similar": [row for row in narrower_rows if not best.four_look_ups.is_lower(row.four_look_ups)],
        "different": [row for row in later_rows if row.single_look_up.differs(first.single_look_up)],
    }
    for name, exceptional_rows in exceptions.items():
        if exceptional_rows:
            heads = ", ".join(str(row.heads) for row in exceptional_rows)
            yield TEXTS(f"exceptions.{name}", several=SEVERAL, heads=heads, first=first, best=best)


def _draw_heads(
    tokens: Sequence[str], maps: Mapping[int, list[list[list[float]]]], target: str | Path, language: str
) -> Path:
    """Draw the heads of the trained models side by side, for each number of heads up to 8."""
    labels = TEXTS.select("picture", language, several=SEVERAL, counts=", ".join(map(str, maps)))
    titles = [
        labels["head"].format(head=head, count=count) for count, tables in maps.items() for head in range(len(tables))
    ]
    patterns = [table for tables in maps.values() for table in tables]
    return save_head_grid(
        target, patterns, tokens, tokens, titles=titles, title=labels["title"], axis_names=AXIS_NAMES[language]
    )


def _read_weights(model: GPT, tokens: Questions) -> list[list[list[float]]]:
    with torch.no_grad():
        weights = model(tokens, weights=True).weights[-1][0]
    return [[[round(cell, 4) for cell in line] for line in head] for head in weights.tolist()]


def _measure_layers(heads: Sequence[int], seed: int) -> list[tuple[int, int, float, int]]:
    """Return parameters, operations, milliseconds and bytes of weights of a layer for each number of heads."""
    torch.manual_seed(seed)
    hidden = torch.randn(1, TOKENS, LAYER_WIDTH)
    layers = [MultiHead(LAYER_WIDTH, count).eval() for count in heads]
    operations, weight_bytes = [], []
    with torch.no_grad():
        for layer in layers:
            with FlopCounterMode(display=False) as counter:
                _, weights = layer(hidden, weights=True)
            operations.append(counter.get_total_flops())
            weight_bytes.append(weights.nbytes)
        seconds = time_calls({count: partial(layer, hidden) for count, layer in enumerate(layers)}, rounds=ROUNDS)
    parameters = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    milliseconds = [1000 * min(times) for times in seconds.values()]
    return list(zip(parameters, operations, milliseconds, weight_bytes, strict=True))


def _train_model(
    heads: int, look_ups: int, kinds: int, seed: int, steps: int, rows: Questions, count_step: Callable[[], None]
) -> GPT:
    torch.manual_seed(seed)
    config = GPTConfig(
        vocabulary=kinds**look_ups,  # a label for each combination of digits
        length=LENGTH,
        width=MODEL_WIDTH,
        layers=1,
        heads=heads,
        hidden=4 * MODEL_WIDTH,
        tied=False,
    )
    model = GPT(config)

    generator = torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        return compute_label_loss(model, rows[torch.randint(len(rows), (BATCH,), generator=generator)])

    train_steps(model, compute_loss, steps=steps, learning_rate=5e-3, after_step=count_step)
    return model


def create_look_up_rows(
    look_ups: int, kinds: int, seed: int
) -> tuple[Int[Tensor, "training token"], Int[Tensor, "held_out token"]]:
    """Return training and held-out rows: 12 random digits and their 12 labels. No digits are in both.

    The label at position i is the number with the digits ``row[i - 1]``, ``row[i - 2]``, ... in base ``kinds``; the
    first positions have no label.

    Args:
        look_ups: How many earlier digits a label consists of.
        kinds: How many different digits there are.
    """
    if not 1 <= look_ups < LENGTH:
        raise ArgumentError(f"look_ups must be from 1 to {LENGTH - 1}, not {look_ups}")
    if not FEWEST_KINDS <= kinds <= MOST_KINDS:
        raise ArgumentError(f"kinds must be from {FEWEST_KINDS} to {MOST_KINDS}, not {kinds}")
    generator = torch.Generator().manual_seed(seed)
    count = TRAINING_ROWS + HELD_OUT_ROWS
    drawn = torch.randint(kinds, (count + count // 10, LENGTH), generator=generator)
    unique = torch.unique(drawn, dim=0)
    digits = unique[torch.randperm(len(unique), generator=generator)][:count]
    labels = torch.full_like(digits, IGNORED)
    labels[:, look_ups:] = 0
    for distance in range(1, look_ups + 1):
        labels[:, look_ups:] = kinds * labels[:, look_ups:] + digits[:, look_ups - distance : LENGTH - distance]
    rows = torch.cat([digits, labels], 1)
    return rows[:TRAINING_ROWS], rows[TRAINING_ROWS:]


def compute_label_loss(model: GPT, rows: Questions) -> Tensor:
    """Return the mean cross-entropy of the labels."""
    logits = model(rows[:, :LENGTH]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, LENGTH:].flatten(), ignore_index=IGNORED)


@torch.no_grad()
def compute_label_accuracy(model: GPT, rows: Questions) -> float:
    """Return the share of labels that the model gives the largest logit."""
    labels: Int[Tensor, "example position"] = rows[:, LENGTH:]
    is_right = model(rows[:, :LENGTH]).logits.argmax(-1) == labels
    return float(is_right[labels != IGNORED].double().mean())
