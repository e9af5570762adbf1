"""A task that needs distance: the last token of a text must name a digit that is hidden somewhere among letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from jumok.models.long import Long, LongConfig
from jumok.threads import use_threads

from .toy_training import train_steps

LENGTH = 64
DIGITS, LETTERS = 8, 8  # token ids: digits, letters, then the token that asks
ASK = DIGITS + LETTERS
DISTANCES = (2, 4, 6, 8, 12, 16, 32, 62)  # between the digit and the last token, in training
NEW_DISTANCES = (24, 48)  # only in the evaluation
WIDTH, LAYERS, HEADS = 32, 2, 2
WINDOW = 4  # two layers reach 2 x 3 = 6 tokens
BATCH = 32
HELD_OUT = 200  # examples for each distance
HELD_OUT_SEED = 2**32  # no seed of a training run

Texts = Int[Tensor, "batch length"]
Answers = Int[Tensor, " batch"]


def create_model(mixing: str, seed: int) -> Long:
    """Return an untrained model with two layers and one of the mixings of ``Long``."""
    torch.manual_seed(seed)
    config = LongConfig(
        vocabulary=ASK + 1,
        length=LENGTH,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        hidden=2 * WIDTH,
        mixing=mixing,
        window=2 * WINDOW if mixing == "blocks" else WINDOW,
        random=1,
        block=WINDOW,
        features=32,
        head="mlm",
    )
    return Long(config)


def create_texts(count: int, distances: Sequence[int], generator: torch.Generator) -> tuple[Texts, Answers]:
    """Return texts of random letters with one digit each, and the digits."""
    texts = torch.randint(DIGITS, ASK, (count, LENGTH), generator=generator)
    answers = torch.randint(DIGITS, (count,), generator=generator)
    drawn = torch.tensor(distances)[torch.randint(len(distances), (count,), generator=generator)]
    texts[:, -1] = ASK
    texts[torch.arange(count), LENGTH - 1 - drawn] = answers
    return texts, answers


def find_reachable_distances(model: Long) -> set[int]:
    """Return the distances from the last token at which a token can change its answer, by the masks of all layers;
    without masks, as in FNet, every distance."""
    reached: Bool[Tensor, " length"] = torch.zeros(LENGTH, dtype=torch.bool)
    reached[-1] = True
    for layer in reversed(range(model.config.layers)):
        mask = model.build_mask(LENGTH, layer)
        if mask is None:
            return set(range(LENGTH))
        reached = reached | mask.dense(LENGTH, LENGTH)[0, 0][reached].any(0)  # a token keeps its own vector
    return {LENGTH - 1 - position for position in reached.nonzero().flatten().tolist()}


def train_and_score(
    mixing: str, *, steps: int, seed: int, after_step: Callable[[], None] | None = None
) -> dict[int, float]:
    """Train a model on the task, and return by distance the share of held-out texts in which it names the digit."""
    with use_threads(1):  # the model is tiny; and the same number of threads gives the same numbers
        model = create_model(mixing, seed)
        generator = torch.Generator().manual_seed(seed)
        is_last = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
        is_last[:, -1] = True

        def compute_loss() -> Tensor:
            texts, answers = create_texts(BATCH, DISTANCES, generator)
            return functional.cross_entropy(model(texts, positions_to_score=is_last).logits, answers)

        train_steps(model, compute_loss, steps=steps, after_step=after_step)
        return score_distances(model, (*DISTANCES, *NEW_DISTANCES))


@torch.no_grad()
def score_distances(model: Long, distances: Sequence[int]) -> dict[int, float]:
    """Return the share of right answers for each distance, on the same texts for every model."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    right = {}
    for distance in distances:
        texts, answers = create_texts(HELD_OUT, [distance], generator)
        right[distance] = float((model(texts).logits[:, -1, :DIGITS].argmax(-1) == answers).double().mean())
    return right
