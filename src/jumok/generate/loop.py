"""The decoding loop: generate the new tokens of a batch of prompts, all at once or one step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from jumok.models import Model

from .decoding import DEFAULT_LIMIT, IncrementalDecoder, create_incremental_decoder
from .sampling import Sampling, greedy


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
        model: A language model, or an encoder-decoder, which reads the prompts as its sources.
        prompts: Token ids, one non-empty list for each text. The lists may differ in length.
        limit: The largest number of new tokens for each text.
        sampling: How each token is chosen; the default takes the most probable one.
        ends: Token ids that end a text. The end token is part of the returned list.

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


def stream_tokens(
    model: Model,
    prompts: list[list[int]],
    *,
    limit: int = DEFAULT_LIMIT,
    sampling: Sampling = greedy,
    ends: Iterable[int] = (),
) -> Iterator[list[int | None]]:
    """Yield the next token of every text, or None if it has ended, one step at a time; ``generate`` collects them."""
    decoder = create_incremental_decoder(model, prompts, limit)
    texts = [[] if model.is_encoder_decoder else list(prompt) for prompt in prompts]
    yield from decode_steps(decoder, texts, limit, sampling, frozenset(ends))


def decode_steps(
    decoder: IncrementalDecoder, penalized_texts: list[list[int]], limit: int, sampling: Sampling, ends: frozenset[int]
) -> Iterator[list[int | None]]:
    """Run a decoder step by step until every text has ended or has ``limit`` new tokens. The repetition penalty counts
    the tokens of ``penalized_texts`` too."""
    texts = [list(tokens) for tokens in penalized_texts]
    ended = [False] * len(texts)
    # The mode is left before every yield; otherwise the caller would compute in it, also after a broken-off stream.
    with torch.inference_mode():
        logits = decoder.prefill()
    generator = sampling.create_generator(logits.device)
    last = decoder.clamp_limit(limit)

    for count in range(1, last + 1):
        with torch.inference_mode():
            tokens = sampling.choose(decoder.restrict(logits[:, -1], texts), texts, generator)

        step: list[int | None] = []
        for index, token in enumerate(tokens.tolist()):
            if ended[index]:
                step.append(None)
                continue
            step.append(token)
            texts[index].append(token)
            ended[index] = token in ends
        yield step

        if all(ended):
            return
        if count == last:
            decoder.report_stop(limit)
            return
        with torch.inference_mode():
            logits = decoder.step(tokens[:, None])
