"""Train small GPTs to repeat the token some steps back, and test them on texts longer than those in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.models.gpt import GPT, GPTConfig

from .toy_training import IGNORED, train_steps

TRAINED = 16  # tokens of a text in training
LENGTHS = (TRAINED, 2 * TRAINED, 4 * TRAINED)  # tokens of a text in tests
KINDS = 10  # different tokens
WIDTH, LAYERS, HEADS = 32, 2, 4
# T5's last bucket must occur in training, as it does in T5, which trains on 512 tokens with a largest distance of 128
BUCKETS, MAX_DISTANCE = 8, 12
BATCH, TESTED_TEXTS = 64, 200
TEST_SEED = 2**32  # added to the seed; training seeds are below


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
        """Return the mean share of right answers at a length; None if the encoding has no such positions.

        Args:
            length: One of ``LENGTHS``.
        """
        return next((mean(score.right) for score in self.scores if score.length == length), None)


def create_repeat_examples(
    count: int, length: int, offset: int, generator: torch.Generator
) -> tuple[Int[Tensor, "example token"], Int[Tensor, "example token"]]:
    """Return random tokens, and for each the token ``offset`` steps back as its target."""
    tokens = torch.randint(KINDS, (count, length), generator=generator)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, offset:] = tokens[:, :-offset]
    return tokens, targets


def train_repeating_model(encoding: str, offset: int, seed: int, steps: int, count_step: Callable[[], None]) -> GPT:
    """Train a small GPT to repeat the token some steps back.

    Args:
        encoding: The position encoding, as in ``GPTConfig.positions``.
    """
    torch.manual_seed(seed)
    # a table longer than the trained texts would end with vectors that were never trained
    length = TRAINED if encoding == "learned" else LENGTHS[-1]
    config = GPTConfig(
        vocabulary=KINDS, length=length, width=WIDTH, layers=LAYERS, heads=HEADS, hidden=4 * WIDTH, positions=encoding
    )
    if encoding == "t5":
        config = config.replace(buckets=BUCKETS, max_distance=MAX_DISTANCE)
    model = GPT(config)
    generator = torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        tokens, targets = create_repeat_examples(BATCH, TRAINED, offset, generator)
        logits = model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    train_steps(model, compute_loss, steps=steps, learning_rate=5e-3, after_step=count_step)
    return model


@torch.no_grad()
def score_models(models: Sequence[GPT], offset: int, seed: int) -> tuple[LengthScore, ...]:
    """Test models on texts of every length that they read.

    Args:
        offset: How many steps back the repeated token is.
        seed: The seed of the texts, which differ from those of training.
    """
    scores, start = [], 0
    for length in LENGTHS:
        if length > models[0].context_length:
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
