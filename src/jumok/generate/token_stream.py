"""The plain loop, one step at a time: logits, a choice, a token; again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from jumok.models import Model

from .decoding import IncrementalDecoder, create_decoder
from .sampling import Sampling, greedy


def stream_tokens(
    model: Model,
    prompts: list[list[int]],
    *,
    limit: int = 64,
    sampling: Sampling = greedy,
    ends: Iterable[int] = (),
) -> Iterator[list[int | None]]:
    """The same, one step at a time: each text's new token, None where it has ended."""
    steps = create_decoder(model, prompts, limit)
    answers = hasattr(model, "encode")
    seen = [[] if answers else list(one) for one in prompts]
    yield from decode_steps(steps, seen, limit, sampling, frozenset(ends))


def decode_steps(
    steps: IncrementalDecoder, seen: list[list[int]], limit: int, sampling: Sampling, ends: frozenset[int]
) -> Iterator[list[int | None]]:
    """Steps until every text has ended or ``limit`` tokens are there; ``seen`` grows with them."""
    with torch.inference_mode():
        logits = steps.first()
        generator = sampling.generator(logits.device)
        done = [False] * len(seen)
        for count in range(1, limit + 1):
            tokens = sampling.choose(logits[:, -1], seen, generator)
            fresh: list[int | None] = []
            for index, token in enumerate(tokens.tolist()):
                fresh.append(None if done[index] else token)
                if not done[index]:
                    seen[index].append(token)
                    done[index] = token in ends
            yield fresh
            if all(done) or count == limit:
                return
            logits = steps.next(tokens[:, None])
