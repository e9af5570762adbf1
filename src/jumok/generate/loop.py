"""All new tokens at once."""

from __future__ import annotations

from collections.abc import Iterable

from jumok.models import Model

from .sampling import Sampling, greedy
from .token_stream import stream_tokens


def generate(
    model: Model,
    prompts: list[list[int]],
    *,
    limit: int = 64,
    sampling: Sampling = greedy,
    ends: Iterable[int] = (),
) -> list[list[int]]:
    """New tokens for each prompt, at most ``limit``; a text stops after one of the tokens in ``ends`` (kept).

    For an encoder-decoder the prompts are sources, and what comes back is the answer without its start token.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    for fresh in stream_tokens(model, prompts, limit=limit, sampling=sampling, ends=ends):
        for text, token in zip(texts, fresh, strict=True):
            if token is not None:
                text.append(token)
    return texts
