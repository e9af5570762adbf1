"""Train small models on toy tasks for experiments, and answer questions with them greedily."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from jumok.models import Model
from jumok.tap import listen

Questions = Int[Tensor, "example token"]
IGNORED = -100  # a target that does not count, as in torch.nn.functional.cross_entropy


def train_on_answers(
    model: Model,
    examples: Questions,
    answer_start: int,
    *,
    steps: int,
    batch: int = 64,
    learning_rate: float = 3e-3,
    seed: int = 0,
    after_step: Callable[[], None] | None = None,
) -> list[float]:
    """Train a language model to continue questions with their answers; only answers count in the loss.

    Args:
        examples: Questions with their answers, ``[example, token]``, all of one length.
        answer_start: The position of the first token of the answers.
    """
    generator = torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        rows = examples[torch.randint(len(examples), (batch,), generator=generator)]
        return compute_answer_loss(model, rows, answer_start)

    return train_steps(model, compute_loss, steps=steps, learning_rate=learning_rate, after_step=after_step)


def train_steps(
    model: nn.Module,
    compute_loss: Callable[[], Tensor],
    *,
    steps: int,
    learning_rate: float = 3e-3,
    after_step: Callable[[], None] | None = None,
) -> list[float]:
    """Train a model with AdamW on a loss.

    Args:
        compute_loss: Returns the loss of the next batch.
        learning_rate: The largest learning rate; it rises in the first tenth of the steps, then falls to 0.

    Returns:
        The loss of each step.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = max(1, steps // 10)

    def scale_rate(step: int) -> float:
        return min((step + 1) / warmup, max(0.0, (steps - step) / max(1, steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale_rate)
    losses: list[float] = []
    model.train()
    for _ in range(steps):
        loss = compute_loss()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if after_step:
            after_step()
    model.eval()
    return losses


def compute_answer_loss(model: Model, rows: Questions, answer_start: int) -> Tensor:
    """Return the mean cross-entropy of the answers."""
    logits = model(rows[:, :-1]).logits
    targets = rows[:, 1:].clone()
    targets[:, : answer_start - 1] = IGNORED
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def continue_rows(model: Model, prompts: Questions, count: int) -> Int[Tensor, "example new"]:
    """Append the most probable tokens, without a cache: a model without a causal mask changes what it read before."""
    rows = prompts
    for _ in range(count):
        rows = torch.cat([rows, model(rows).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return rows[:, prompts.shape[1] :]


def compute_answer_accuracy(model: Model, examples: Questions, answer_start: int) -> float:
    """Return the share of questions that the model answers without a mistake, greedily."""
    answers = continue_rows(model, examples[:, :answer_start], examples.shape[1] - answer_start)
    return float((answers == examples[:, answer_start:]).all(1).double().mean())


def join_examples(pairs: Sequence[tuple[list[int], list[int]]], separator: int) -> Questions:
    """Return examples as rows: source, separator, target."""
    return torch.tensor([[*source, separator, *target] for source, target in pairs])


@contextmanager
def remove_masks() -> Iterator[None]:
    """Let every attention in this context attend to all tokens, in training too."""

    def drop_mask(site: str, content: Any) -> Any:
        return None if site.endswith(".mask") else content

    with listen(drop_mask):
        yield
