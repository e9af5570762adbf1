"""Experiment ``heads``: 1 to 16 heads of one width cost the same, and several heads look at several tokens at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import MultiHead
from jumok.draw import AXIS_NAMES, save_head_grid
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.models.gpt import GPT, GPTConfig

from .experiment_result import ExperimentResult, Progress, Table
from .look_up_task import LENGTH, compute_label_accuracy, compute_label_loss, create_look_up_rows
from .toy_training import Questions, train_steps

HEADS = (1, 2, 4, 8, 16)
QUICK: dict[str, Any] = {"heads": HEADS, "runs": 2}
FULL: dict[str, Any] = {"heads": HEADS, "runs": 5}
LAYER_WIDTH, TOKENS = 512, 128  # of the layer whose time is measured
ROUNDS = 50
MODEL_WIDTH = 64  # of the trained models
BATCH = 32
ONE, SEVERAL = 1, 4  # look-ups of the two tasks
DRAWN_HEADS = 8  # models with more heads are not drawn
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


@dataclass(frozen=True)
class HeadCountResult(ExperimentResult):
    """The result of ``measure_head_counts``.

    Attributes:
        rows: One row for each number of heads.
        maps: For each number of heads up to 8, the weights of its heads on that example, with four look-ups.
    """

    seed: int
    steps: int
    kinds: int
    rows: tuple[HeadCountRow, ...]
    tokens: tuple[str, ...]
    maps: dict[int, list[list[list[float]]]]

    def build_tables(self) -> list[Table]:
        """Return a table of costs and one of quality, each with a row for each number of heads."""
        return [self._build_cost_table(), self._build_quality_table()]

    def _build_cost_table(self) -> Table:
        base = self.rows[0].milliseconds
        rows = tuple(
            (
                str(row.heads),
                f"{row.parameters:,}",
                f"{row.operations:,}",
                f"x{row.milliseconds / base:.2f}",
                f"{row.weight_bytes / 1024:,.0f} KB",
            )
            for row in self.rows
        )
        columns = (
            Text("heads", "헤드"),
            Text("parameters", "파라미터"),
            Text("operations", "연산"),
            Text("CPU time", "CPU 시간"),
            Text("weights", "가중치 메모리"),
        )
        title = Text(
            f"a layer {LAYER_WIDTH} wide with {TOKENS} tokens; {self.rows[0].heads} head(s): {base:.2f} ms",
            f"너비 {LAYER_WIDTH}, 토큰 {TOKENS}개인 층; 헤드 {self.rows[0].heads}개: {base:.2f} ms",
        )
        return Table(columns, rows, title)

    def _build_quality_table(self) -> Table:
        rows = tuple(
            (
                str(row.heads),
                str(MODEL_WIDTH // row.heads),
                *_format_quality(row.single_look_up),
                *_format_quality(row.four_look_ups),
            )
            for row in self.rows
        )
        columns = (
            Text("heads", "헤드"),
            Text("width of a head", "헤드 너비"),
            *(Text("1 look-up: loss", "1곳: 손실"), Text("range", "범위"), Text("right", "정답률")),
            *(Text(f"{SEVERAL} look-ups: loss", f"{SEVERAL}곳: 손실"), Text("range", "범위"), Text("right", "정답률")),
        )
        runs = len(self.rows[0].single_look_up.losses)
        title = Text(
            f"one-layer models, {MODEL_WIDTH} wide, name the digit before a token (1 look-up) or the {SEVERAL} digits "
            f"before it (guessing: {1 / self.kinds:.0%} and {1 / self.kinds**SEVERAL:.1%} right); {self.steps} steps, "
            f"{runs} seed(s), held out",
            f"토큰 바로 앞의 숫자 1개(1곳) 또는 앞의 숫자 {SEVERAL}개({SEVERAL}곳)를 한 번에 맞히는 너비 "
            f"{MODEL_WIDTH}의 한 층 모델(찍으면 {1 / self.kinds:.0%}, {1 / self.kinds**SEVERAL:.1%}); "
            f"{self.steps}스텝, 시드 {runs}개, 학습에 쓰지 않은 예",
        )
        return Table(columns, rows, title)

    def explain(self) -> list[Text]:
        """Say what the number of heads costs, and what it changes."""
        first = self.rows[0]
        times = [row.milliseconds / first.milliseconds for row in self.rows]
        best = min(self.rows, key=lambda row: row.four_look_ups.loss)
        losses = [
            f"{quality.loss:.3f}"
            for quality in (first.four_look_ups, best.four_look_ups, first.single_look_up, best.single_look_up)
        ]
        rights = [f"{mean(row.four_look_ups.right):.0%}" for row in (first, best)]
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
                f"One softmax gives one mixture of tokens, so several heads help where several tokens are needed at "
                f"once: with {SEVERAL} look-ups, {first.heads} head(s) have the loss {losses[0]} ({rights[0]} right) "
                f"and {best.heads} the lowest, {losses[1]} ({rights[1]} right); with one look-up they have "
                f"{losses[2]} and {losses[3]}.",
                f"소프트맥스 하나는 토큰의 혼합 하나만 만들므로, 여러 토큰이 동시에 필요할 때 여러 헤드가 도움이 "
                f"됩니다. {SEVERAL}곳을 보아야 할 때 헤드 {first.heads}개의 손실은 {losses[0]}(정답률 {rights[0]}), "
                f"가장 낮은 것은 헤드 {best.heads}개의 {losses[1]}({rights[1]})입니다. 한 곳만 보면 될 때는 "
                f"{losses[2]}와 {losses[3]}입니다.",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name unequal costs, times that differ, and numbers of heads that are not clearly better."""
        return [*self._list_cost_exceptions(), *self._list_quality_exceptions()]

    def _list_cost_exceptions(self) -> list[Text]:
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
        return texts

    def _list_quality_exceptions(self) -> list[Text]:
        texts = []
        first, *later_rows = self.rows
        best = min(self.rows, key=lambda row: row.four_look_ups.loss)
        narrower_rows = [row for row in later_rows if row.heads > best.heads]
        if unclear := _join_heads(row for row in later_rows if not row.four_look_ups.is_lower(first.four_look_ups)):
            texts.append(
                Text(
                    f"{SEVERAL} look-ups: {unclear} heads are not better than {first.heads} with every seed.",
                    f"{SEVERAL}곳: 헤드 {unclear}개는 헤드 {first.heads}개보다 낫지 않은 시드가 있었습니다.",
                )
            )
        if worse := _join_heads(narrower_rows):
            texts.append(
                Text(
                    f"{SEVERAL} look-ups: more heads are not always better: {worse} heads, which are narrower, have a "
                    f"higher loss than {best.heads} on average.",
                    f"{SEVERAL}곳: 헤드가 많을수록 좋은 것은 아닙니다. 더 좁은 헤드 {worse}개는 평균 손실이 헤드 "
                    f"{best.heads}개보다 높습니다.",
                )
            )
        if similar := _join_heads(row for row in narrower_rows if not best.four_look_ups.is_lower(row.four_look_ups)):
            texts.append(
                Text(
                    f"{SEVERAL} look-ups: the ranges of {similar} and {best.heads} heads overlap: the difference "
                    "may be due to the seeds.",
                    f"{SEVERAL}곳: 헤드 {similar}개와 {best.heads}개의 범위가 겹칩니다. 이 차이는 시드 "
                    "때문일 수 있습니다.",
                )
            )
        if different := _join_heads(row for row in later_rows if row.single_look_up.differs(first.single_look_up)):
            texts.append(
                Text(
                    f"1 look-up: one view is enough, but the shares of right labels of {different} and {first.heads} "
                    "heads differ with every seed.",
                    f"1곳: 한 곳만 보면 되는데도 모든 시드에서 헤드 {different}개와 {first.heads}개의 정답률이 "
                    "다릅니다.",
                )
            )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the heads of the trained models side by side, for each number of heads up to 8."""
        name = Text("head {head} of {count}", "헤드 {head} / {count}").select(language)
        titles = [
            name.format(head=head, count=count) for count, tables in self.maps.items() for head in range(len(tables))
        ]
        patterns = [table for tables in self.maps.values() for table in tables]
        counts = ", ".join(map(str, self.maps))
        title = Text(
            f"Heads of models that name the {SEVERAL} digits before each token, with {counts} heads",
            f"각 토큰 앞의 숫자 {SEVERAL}개를 맞히는 모델의 헤드({counts}개)",
        ).select(language)
        return save_head_grid(
            target, patterns, self.tokens, self.tokens, titles=titles, title=title, axis_names=AXIS_NAMES[language]
        )


def measure_head_counts(
    heads: Sequence[int] = HEADS,
    *,
    runs: int = 2,
    steps: int = 300,
    kinds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadCountResult:
    """Compare numbers of heads at one width: the cost of a layer, and the quality of small models on two tasks.

    In the first task a model names the digit before each token; in the second, the four digits before it at once.

    Args:
        heads: The numbers of heads; each must divide 64.
        runs: How many models to train for each number of heads and task; each has its own seed.
        kinds: How many different digits there are, from 3 to 8.
        progress: Called with the finished and the total number of training steps; default: nothing.

    Raises:
        ArgumentError: If a number is out of range.
    """
    if not heads or min(*heads, runs, steps) < 1 or any(MODEL_WIDTH % count for count in heads):
        raise ArgumentError(f"heads must divide {MODEL_WIDTH}, and runs and steps must be at least 1")
    tasks = {look_ups: create_look_up_rows(look_ups, kinds, seed) for look_ups in (ONE, SEVERAL)}
    total, done = len(tasks) * len(heads) * runs * steps, 0

    def count_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

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
    return HeadCountResult(seed, steps, kinds, tuple(rows), tokens, maps)


def _join_heads(rows: Iterable[HeadCountRow]) -> str:
    return ", ".join(str(row.heads) for row in rows)


def _format_quality(quality: TaskQuality) -> tuple[str, str, str]:
    losses = quality.losses
    return f"{quality.loss:.3f}", f"{min(losses):.3f} - {max(losses):.3f}", f"{mean(quality.right):.0%}"


def _read_weights(model: GPT, tokens: Questions) -> list[list[list[float]]]:
    with torch.no_grad():
        weights = model(tokens, weights=True).weights[-1][0]
    return [[[round(cell, 4) for cell in line] for line in head] for head in weights.tolist()]


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
