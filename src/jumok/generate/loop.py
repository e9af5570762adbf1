"""Generate the new tokens of a batch of prompts."""

from __future__ import annotations

from collections.abc import Iterable

from jumok.models import Model

from .decoding import DEFAULT_LIMIT
from .sampling import Sampling, greedy
from .token_stream import stream_tokens


def generate(
    model: Model,
    prompts: list[list[int]],
    *,
    limit: int = DEFAULT_LIMIT,
    sampling: Sampling = greedy,
    ends: Iterable[int] = (),
) -> list[list[int]]:
    """Return the new tokens of each prompt.

    If a text exceeds the model's context length, a language model continues to read its last tokens, at least three
    quarters of the context length; an encoder-decoder stops. A ``ContextWarning`` says so once.

    Args:
        model: A language model, or an encoder-decoder; an encoder-decoder reads the prompts as its sources.
        prompts: Token ids, one non-empty list for each text. The lists may differ in length.
        limit: The largest number of new tokens for each text.
        sampling: How each token is chosen; the default takes the most probable one.
        ends: Token ids that end a text. The end token is part of the returned list.

    Returns:
        One list of new token ids for each prompt, without the prompt and without the decoder's start token.

    Raises:
        ArgumentError: If a prompt is empty or ``limit`` is below 1.

    >>> import jumok
    >>> tiny = jumok.load("tiny")
    >>> new = generate(tiny.model, [tiny.tokenizer.encode("the cat sat; the cat")], limit=4)
    >>> tiny.tokenizer.decode(new[0])
    ' sat'
    """
    texts: list[list[int]] = [[] for _ in prompts]

    for step in stream_tokens(model, prompts, limit=limit, sampling=sampling, ends=ends):
        for text, token in zip(texts, step, strict=True):
            if token is not None:
                text.append(token)

    return texts
