"""Experiment ``heads``: 1 to 16 heads of one total width have equal parameters and operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import MultiHead
from jumok.draw import save_head_grid
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.models.gpt import GPT, GPTConfig

from .experiment_result import ExperimentResult, Progress, Table
from .toy_training import Questions, compute_answer_accuracy, compute_answer_loss, train_on_answers

HEADS = (1, 2, 4, 8, 16)
QUICK: dict[str, Any] = {"heads": HEADS, "runs": 2, "steps": 150}
FULL: dict[str, Any] = {"heads": HEADS, "runs": 5, "steps": 400}
LAYER_WIDTH, TOKENS = 512, 128  # of the layer whose time is measured
ROUNDS = 50
MODEL_WIDTH = 32  # of the trained models
DIGITS, KINDS = 6, 10  # the task: six digits, a separator, the digits in reverse
TRAINING_EXAMPLES, HELD_OUT_EXAMPLES = 4000, 300
DRAWN_HEADS = 8  # models with more heads are not drawn
SIMILAR = 1.25  # times within this factor of one head count as equal


@dataclass(frozen=True)
class HeadCountRow:
    """One number of heads.

    Attributes:
        heads: The number of heads.
        parameters: The parameters of the measured attention layer, 512 wide.
        operations: The operations of its forward pass with 128 tokens, as PyTorch counts them.
        milliseconds: The shortest measured processor time of its forward pass.
        weight_bytes: The memory of its attention weights, if they are kept.
        losses: For each seed, the loss of a trained model on held-out answers.
        right: For each seed, the share of held-out sequences that a trained model reverses without a mistake.
    """

    heads: int
    parameters: int
    operations: int
    milliseconds: float
    weight_bytes: int
    losses: tuple[float, ...]
    right: tuple[float, ...]


@dataclass(frozen=True)
class HeadCountResult(ExperimentResult):
    """The result of ``measure_head_counts``.

    Attributes:
        seed: The first seed.
        rows: One row for each number of heads.
        tokens: The tokens of the drawn example.
        maps: For each number of heads up to 8, the weights of its heads on that example.
    """

    seed: int
    rows: tuple[HeadCountRow, ...]
    tokens: tuple[str, ...]
    maps: dict[int, list[list[list[float]]]]

    def build_tables(self) -> list[Table]:
        """Return one table with a row for each number of heads."""
        base = self.rows[0].milliseconds
        rows = tuple(
            (
                str(row.heads),
                f"{row.parameters:,}",
                f"{row.operations:,}",
                f"x{row.milliseconds / base:.2f}",
                f"{row.weight_bytes / 1024:,.0f} KB",
                f"{mean(row.losses):.3f}",
                f"{min(row.losses):.3f} - {max(row.losses):.3f}",
                f"{mean(row.right):.0%}",
            )
            for row in self.rows
        )
        columns = (
            Text("heads", "헤드"),
            Text("parameters", "파라미터"),
            Text("operations", "연산"),
            Text("CPU time", "CPU 시간"),
            Text("weights", "가중치 메모리"),
            Text("loss", "손실"),
            Text("range", "범위"),
            Text("right", "정답률"),
        )
        runs = len(self.rows[0].right)
        title = Text(
            f"a layer {LAYER_WIDTH} wide with {TOKENS} tokens, 1 head: {base:.2f} ms; loss and right: "
            f"one-layer models reverse digits, {MODEL_WIDTH} wide, {runs} seeds",
            f"너비 {LAYER_WIDTH}, 토큰 {TOKENS}개인 층, 헤드 1개: {base:.2f} ms; 손실, 정답률: 숫자를 뒤집는 너비 "
            f"{MODEL_WIDTH}의 한 층 모델, 시드 {runs}개",
        )
        return [Table(columns, rows, title)]

    def explain(self) -> list[Text]:
        """Say what the number of heads costs, and what it changes."""
        first = self.rows[0]
        times = [row.milliseconds / first.milliseconds for row in self.rows]
        best = min(self.rows, key=lambda row: mean(row.losses))
        worst = max(self.rows, key=lambda row: mean(row.losses))
        means = [f"{mean(row.losses):.3f}" for row in (best, worst)]
        return [
            Text(
                f"Heads split one width, so every layer has {first.parameters:,} parameters and "
                f"{first.operations:,} operations; the times are {min(times):.2f} to {max(times):.2f} times that of "
                f"{first.heads} head(s), and only the memory of the weights grows with the heads, if they are kept.",
                f"헤드는 하나의 너비를 나누어 쓰므로 모든 층의 파라미터는 {first.parameters:,}개, 연산은 "
                f"{first.operations:,}번입니다. 시간은 헤드 {first.heads}개일 때의 {min(times):.2f}배에서 "
                f"{max(times):.2f}배이고, 가중치를 보관할 때의 메모리만 헤드 수에 따라 늘어납니다.",
            ),
            Text(
                f"More heads give more views, each narrower: on this task {best.heads} had the lowest loss "
                f"({means[0]} on average) and {worst.heads} the highest ({means[1]}).",
                f"헤드가 많으면 보는 관점이 늘지만 각각은 좁아집니다. 이 과제에서 손실이 가장 낮은 헤드 수는 "
                f"{best.heads}개(평균 {means[0]}), 가장 높은 헤드 수는 {worst.heads}개({means[1]})였습니다.",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name unequal costs, times that differ, and differences in quality that seeds alone could explain."""
        texts = []
        first = self.rows[0]
        for row in self.rows[1:]:
            if (row.parameters, row.operations) != (first.parameters, first.operations):
                texts.append(Text(f"{row.heads} heads have another cost.", f"헤드 {row.heads}개의 비용이 다릅니다."))
            ratio = row.milliseconds / first.milliseconds
            if not 1 / SIMILAR <= ratio <= SIMILAR:
                texts.append(
                    Text(
                        f"{row.heads} heads took {ratio:.2f} times as long as {first.heads}, with equal operations.",
                        f"헤드 {row.heads}개는 연산이 같지만 시간이 헤드 {first.heads}개의 {ratio:.2f}배였습니다.",
                    )
                )
        best = min(self.rows, key=lambda row: mean(row.losses))
        similar = [row for row in self.rows if row is not best and min(row.losses) <= max(best.losses)]
        if similar:
            heads = ", ".join(str(row.heads) for row in similar)
            texts.append(
                Text(
                    f"The ranges of {heads} and {best.heads} heads overlap: the difference may be due to the seeds.",
                    f"헤드 {heads}개의 범위가 {best.heads}개의 범위와 겹칩니다. 이 차이는 시드 때문일 수 있습니다.",
                )
            )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the heads of the trained models side by side, for each number of heads up to 8."""
        name = Text("of {count}", "/ {count}").select(language)
        titles = [
            f"{head} {name.format(count=count)}" for count, tables in self.maps.items() for head in range(len(tables))
        ]
        patterns = [table for tables in self.maps.values() for table in tables]
        counts = ", ".join(map(str, self.maps))
        title = Text(
            f"Heads of models that reverse digits, with {counts} heads", f"숫자를 뒤집는 모델의 헤드({counts}개)"
        ).select(language)
        return save_head_grid(target, patterns, self.tokens, self.tokens, titles=titles, title=title)


def measure_head_counts(
    heads: Sequence[int] = HEADS,
    *,
    runs: int = 2,
    steps: int = 150,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadCountResult:
    """Compare numbers of heads at one width: the cost of a layer, and the quality of small models that reverse digits.

    Args:
        heads: The numbers of heads; each must divide 32.
        runs: How many models to train for each number of heads; each has its own seed.
        steps: The training steps of each model.
        seed: The first seed.
        progress: Called with the finished and the total number of training steps; default: nothing.

    Raises:
        ArgumentError: If a number is out of range.
    """
    if not heads or min(*heads, runs, steps) < 1 or any(MODEL_WIDTH % count for count in heads):
        raise ArgumentError(f"heads must divide {MODEL_WIDTH}, and runs and steps must be at least 1")
    train, held_out = create_reverse_examples(seed)
    total, done = len(heads) * runs * steps, 0

    def count_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    layers = _measure_layers(heads, seed)
    rows, maps = [], {}
    for count, cost in zip(heads, layers, strict=True):
        losses, scores = [], []
        for run_seed in range(seed, seed + runs):
            model = _train_model(count, run_seed, steps, train, count_step)
            with torch.no_grad():
                losses.append(float(compute_answer_loss(model, held_out, DIGITS + 1)))
            scores.append(compute_answer_accuracy(model, held_out, DIGITS + 1))
            if run_seed == seed and count <= DRAWN_HEADS:
                with torch.no_grad():
                    weights = model(held_out[:1, :-1], weights=True).weights[-1][0]
                maps[count] = [[[round(cell, 4) for cell in line] for line in head] for head in weights.tolist()]
        rows.append(HeadCountRow(count, *cost, tuple(losses), tuple(scores)))
    tokens = tuple("=" if token == KINDS else str(token) for token in held_out[0, :-1].tolist())
    return HeadCountResult(seed, tuple(rows), tokens, maps)


def create_reverse_examples(
    seed: int,
) -> tuple[Int[Tensor, "training token"], Int[Tensor, "held_out token"]]:
    """Return training and held-out rows of digits, a separator and the digits in reverse; no row is in both.

    Args:
        seed: The seed of the digits.
    """
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randint(KINDS, (2 * (TRAINING_EXAMPLES + HELD_OUT_EXAMPLES), DIGITS), generator=generator)
    unique = torch.unique(sources, dim=0)
    unique = unique[torch.randperm(len(unique), generator=generator)][: TRAINING_EXAMPLES + HELD_OUT_EXAMPLES]
    separator = torch.full((len(unique), 1), KINDS)
    rows = torch.cat([unique, separator, unique.flip(1)], 1)
    return rows[:TRAINING_EXAMPLES], rows[TRAINING_EXAMPLES:]


def _measure_layers(heads: Sequence[int], seed: int) -> list[tuple[int, int, float, int]]:
    """Return parameters, operations, milliseconds and bytes of weights of a layer for each number of heads."""
    torch.manual_seed(seed)
    hidden = torch.randn(1, TOKENS, LAYER_WIDTH)
    layers = [MultiHead(LAYER_WIDTH, count).eval() for count in heads]
    seconds: list[list[float]] = [[] for _ in layers]
    operations, weight_bytes = [], []
    with torch.no_grad():
        for layer in layers:
            with FlopCounterMode(display=False) as counter:
                _, weights = layer(hidden, weights=True)
            operations.append(counter.get_total_flops())
            weight_bytes.append(weights.nbytes)
        for _ in range(ROUNDS):  # in alternation, and as processor time: other programs make a call wait
            for layer, times in zip(layers, seconds, strict=True):
                start = time.process_time()
                layer(hidden)
                times.append(time.process_time() - start)
    parameters = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    milliseconds = [1000 * min(times) for times in seconds]
    return list(zip(parameters, operations, milliseconds, weight_bytes, strict=True))


def _train_model(heads: int, seed: int, steps: int, examples: Questions, count_step: Callable[[], None]) -> GPT:
    torch.manual_seed(seed)
    config = GPTConfig(
        vocabulary=KINDS + 1, length=2 * DIGITS + 1, width=MODEL_WIDTH, layers=1, heads=heads, hidden=4 * MODEL_WIDTH
    )
    model = GPT(config)
    train_on_answers(model, examples, DIGITS + 1, steps=steps, learning_rate=5e-3, seed=seed, after_step=count_step)
    return model
