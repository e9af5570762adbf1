"""Experiment ``parts``: what each part of a Transformer block contributes, by training models without it.

Without residual connections the tokens of a deep stack become alike (Dong et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from jumok.bilingual_text import Texts, join_texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.experiments.head_count import (
    LENGTH,
    TaskQuality,
    compute_label_accuracy,
    compute_label_loss,
    create_look_up_rows,
)
from jumok.lab.experiments.setups.toy_training import IGNORED, Questions, train_steps
from jumok.lab.result import Result, build_table, count_steps
from jumok.layers import EncoderBlock
from jumok.models.gpt import GPT, GPTConfig
from jumok.reporting import Progress

TEXTS = Texts(__file__)

DEPTHS = (1, 6)
FULL: dict[str, Any] = {"runs": 3}
PARTS = ("none", "attention", "positions", "heads", "feedforward", "norm", "residual", "norm_and_residual")
KINDS = 8  # different digits
WIDTH, HEADS = 32, 4
BATCH, RATE = 32, 2e-3
CLEAR = 0.1  # a smaller loss of accuracy counts as none


@dataclass(frozen=True)
class PartRow:
    """Models without one part.

    Attributes:
        part: The part that was removed, of ``PARTS``.
        quality: Loss and accuracy on held-out rows, for each seed.
        gradient: The norm of the gradient of the first block's parameters before training, on average over the seeds.
        similarity: The mean cosine of two tokens' vectors after the last block before training, likewise.
    """

    part: str
    layers: int
    quality: TaskQuality
    gradient: float
    similarity: float


def measure_parts(
    depths: Sequence[int] = DEPTHS,
    *,
    runs: int = 1,
    steps: int = 400,
    parts: Sequence[str] = PARTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Train a small GPT on one task, and then without each of its parts, with the same seeds and steps.

    The task: a table has a digit for each pair of digits, and the model names, at each token, the digit of the pair
    before it. This needs positions, two look-ups at once, and a memory of the table.

    Args:
        depths: Numbers of blocks.
        runs: How many models to train in each case; each has its own seed.
    """
    if not depths or min(*depths, runs, steps) < 1 or "none" not in parts or not set(parts) <= set(PARTS):
        raise ArgumentError(f"depths, runs and steps must be at least 1, and parts 'none' and others of {PARTS}")
    train, held_out = create_pair_rows(seed)
    count_step = count_steps(len(depths) * len(parts) * runs * steps, progress)
    rows = []
    for layers in depths:
        for part in parts:
            models = [build_model(part, layers, number) for number in range(seed, seed + runs)]
            gradient = mean(measure_first_gradient(model, train) for model in models)
            similarity = mean(measure_similarity(model, train) for model in models)
            for number, model in enumerate(models, seed):
                _train_model(model, number, steps, train, count_step)
            with torch.no_grad():
                losses = tuple(float(compute_label_loss(model, held_out)) for model in models)
            right = tuple(compute_label_accuracy(model, held_out) for model in models)
            rows.append(PartRow(part, layers, TaskQuality(losses, right), gradient, similarity))
    return describe_parts(seed, steps, tuple(rows))


def describe_parts(seed: int, steps: int, rows: tuple[PartRow, ...]) -> Result:
    """Say what each part contributes at each depth, and name those that the task does not need."""
    names = TEXTS.group("parts")
    complete = {row.layers: row for row in rows if row.part == "none"}
    lines = [{"row": row, "quality": row.quality, "name": names[row.part]} for row in rows]
    table = build_table(
        TEXTS,
        "table",
        lines,
        width=WIDTH,
        heads=HEADS,
        chance=1 / KINDS,
        steps=steps,
        runs=len(rows[0].quality.losses),
    )
    sentences = [
        TEXTS(f"sentences.{part}", results=join_texts([TEXTS("result", row=row) for row in rows if row.part == part]))
        for part in dict.fromkeys(row.part for row in rows)
    ]
    exceptions = [
        TEXTS(f"exceptions.{name}", name=names[row.part], row=row, complete=complete[row.layers])
        for row in rows
        for name in _list_exceptions(row, complete[row.layers])
    ]
    return Result({"seed": seed, "steps": steps, "rows": rows}, [table], sentences, exceptions, partial(_draw, rows))


def _list_exceptions(row: PartRow, complete: PartRow) -> Iterator[str]:
    """Yield the names of the sentences about what did not come out."""
    if row is complete:
        if min(row.quality.right) < 1 - CLEAR:
            yield "not_learned"
    elif complete.quality.share - row.quality.share < CLEAR:
        yield "not_needed"
    elif not row.quality.differs(complete.quality):
        yield "overlap"
    elif row.part == "residual" and row.gradient >= complete.gradient:
        yield "gradient"


def _draw(rows: Sequence[PartRow], target: str | Path, language: str) -> Path:
    """Draw the accuracy of each part's removal; the parts are numbered in the order of the table."""
    labels, names = TEXTS.select("picture", language), TEXTS.select("parts", language)
    parts = list(dict.fromkeys(row.part for row in rows))
    lines = {
        labels["layers"].format(layers=layers): [
            (parts.index(row.part) + 1, row.quality.share) for row in rows if row.layers == layers
        ]
        for layers in dict.fromkeys(row.layers for row in rows)
    }
    across = ", ".join(f"{number} {names[part]}" for number, part in enumerate(parts, 1))
    return save_line_plot(lines, target, title=labels["title"], across=across, vertical=labels["vertical"])


def create_pair_rows(seed: int) -> tuple[Int[Tensor, "training token"], Int[Tensor, "held_out token"]]:
    """Return training and held-out rows: 12 random digits, and for each the entry of the two digits before it."""
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randperm(KINDS**2, generator=generator) % KINDS
    train, held_out = create_look_up_rows(2, KINDS, seed)
    for rows in (train, held_out):
        pairs = rows[:, LENGTH:]
        rows[:, LENGTH:] = torch.where(pairs == IGNORED, IGNORED, entries[pairs.clamp_min(0)])
    return train, held_out


def build_model(part: str, layers: int, seed: int) -> GPT:
    """Return an untrained GPT without one part; the parts that are left begin with the same parameters."""
    torch.manual_seed(seed)
    config = GPTConfig(
        vocabulary=KINDS,
        length=LENGTH,
        width=WIDTH,
        layers=layers,
        heads=1 if part == "heads" else HEADS,
        hidden=4 * WIDTH,
        tied=False,
    )
    model = GPT(config)
    if part == "positions":
        model.positions = None
    if part in ("norm", "norm_and_residual"):
        model.set_submodule("norm", nn.Identity())
    for index, block in enumerate(list(model.blocks)):
        assert isinstance(block, EncoderBlock)
        if part in ("attention", "feedforward"):
            setattr(block, part, ZeroLayer())
        if part in ("norm", "norm_and_residual"):
            block.attention_norm = block.feedforward_norm = nn.Identity()
        if part in ("residual", "norm_and_residual"):
            model.blocks[index] = BlockWithoutResidual(block)
    return model


class ZeroLayer(nn.Module):
    """A layer that adds nothing to the residual stream."""

    def forward(self, inputs: Tensor, **_: object) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(inputs)


class BlockWithoutResidual(nn.Module):
    """The layers of a block, one after the other, with the norms before them."""

    def __init__(self, block: EncoderBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, inputs: Tensor, **settings: Any) -> Tensor:
        """Return the output of the feed-forward network alone, as in ``BareBlock``."""
        block = self.block
        mixed = block.attention(block.attention_norm(inputs), **settings)
        output: Tensor = block.feedforward(block.feedforward_norm(mixed))
        return output


def measure_first_gradient(model: GPT, rows: Questions) -> float:
    """Return the norm of the gradient of the first block's parameters, on a batch of rows."""
    parameters = list(model.blocks[0].parameters())
    gradients = torch.autograd.grad(compute_label_loss(model, rows[:256]), parameters, allow_unused=True)
    return float(torch.cat([part.flatten() for part in gradients if part is not None]).norm())


@torch.no_grad()
def measure_similarity(model: GPT, rows: Questions) -> float:
    """Return the mean cosine of the vectors of different tokens of a row after the last block."""
    outputs: list[Tensor] = []
    handle = model.blocks[-1].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    model(rows[:256, :LENGTH])
    handle.remove()
    # vectors that many layers made small are not 0
    vectors = torch.nn.functional.normalize(outputs[0].double(), dim=-1, eps=1e-300)
    return float((vectors.sum(1).square().sum(-1) - LENGTH).mean()) / (LENGTH * (LENGTH - 1))


def _train_model(model: GPT, seed: int, steps: int, rows: Questions, count_step: Callable[[], None]) -> None:
    generator = torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        return compute_label_loss(model, rows[torch.randint(len(rows), (BATCH,), generator=generator)])

    train_steps(model, compute_loss, steps=steps, learning_rate=RATE, after_step=count_step)
