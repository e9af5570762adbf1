"""The task of the experiment ``heads``: name several earlier digits at once, which takes several look-ups in one layer.

The label of a position is the number that the digits 1, 2, ... positions before it form. One softmax gives one mixture
of the tokens that it attends to; with a head for each look-up, each head can attend to one of them alone.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.models.gpt import GPT

from .toy_training import IGNORED, Questions

FEWEST_KINDS, MOST_KINDS = 3, 8  # fewer give too few different rows, more too many labels
LENGTH = 12  # digits of a row
TRAINING_ROWS, HELD_OUT_ROWS = 20_000, 500


def create_look_up_rows(
    look_ups: int, kinds: int, seed: int
) -> tuple[Int[Tensor, "training token"], Int[Tensor, "held_out token"]]:
    """Return training and held-out rows: 12 random digits and their 12 labels. No digits are in both.

    The label at position i is the number with the digits ``row[i - 1]``, ``row[i - 2]``, ... in base ``kinds``; the
    first positions have no label.

    Args:
        look_ups: How many earlier digits a label consists of.
        kinds: How many different digits there are.

    Raises:
        ArgumentError: If ``look_ups`` is below 1 or leaves no position with a label, or ``kinds`` is out of range.
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
    """Return the mean cross-entropy of the labels.

    Args:
        rows: Digits and labels, as ``create_look_up_rows`` returns them.
    """
    logits = model(rows[:, :LENGTH]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, LENGTH:].flatten(), ignore_index=IGNORED)


@torch.no_grad()
def compute_label_accuracy(model: GPT, rows: Questions) -> float:
    """Return the share of labels that the model gives the largest logit.

    Args:
        rows: Digits and labels, as ``create_look_up_rows`` returns them.
    """
    labels: Int[Tensor, "example position"] = rows[:, LENGTH:]
    is_right = model(rows[:, :LENGTH]).logits.argmax(-1) == labels
    return float(is_right[labels != IGNORED].double().mean())
