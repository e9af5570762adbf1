"""Generate answers for many prompts in batches of similar length, which need little padding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from jumok.generate import beam_search, generate
from jumok.models import Model


def batch_by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield batches of indices, shortest sequences first.

    >>> list(batch_by_length([5, 1, 3], 2))
    [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for first in range(0, len(order), size):
        yield order[first : first + size]


def generate_by_length(
    model: Model,
    prompts: Sequence[list[int]],
    *,
    limit: int | Callable[[int], int],
    ends: Collection[int] = (),
    beams: int = 1,
    size: int = 256,
) -> list[list[int]]:
    """Return the model's answer to each prompt, in the order of the prompts and without end tokens.

    Args:
        limit: The largest number of new tokens, or a function of the longest prompt in a batch that returns it.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    for indices in batch_by_length([len(prompt) for prompt in prompts], size):
        batch = [prompts[index] for index in indices]
        new_tokens = limit if isinstance(limit, int) else limit(len(batch[-1]))
        if beams == 1:
            outputs = generate(model, batch, limit=new_tokens, ends=ends)
        else:
            outputs = beam_search(model, batch, beams=beams, limit=new_tokens, ends=ends)
        for index, output in zip(indices, outputs, strict=True):
            answers[index] = [token for token in output if token not in ends]
    return answers
