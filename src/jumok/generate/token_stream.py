"""Yield new tokens one decoding step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from jumok.models import Model

from .decoding import DEFAULT_LIMIT, create_incremental_decoder
from .incremental_decoder import IncrementalDecoder
from .sampling import Sampling, greedy


def stream_tokens(
    model: Model,
    prompts: list[list[int]],
    *,
    limit: int = DEFAULT_LIMIT,
    sampling: Sampling = greedy,
    ends: Iterable[int] = (),
) -> Iterator[list[int | None]]:
    """Yield the next token of every text, one step at a time; ``generate`` collects them.

    A ``ContextWarning`` says once if a text exceeds the model's context length; see ``generate``.

    Yields:
        One entry for each text: its new token, or None if the text has ended.
    """
    decoder = create_incremental_decoder(model, prompts, limit)
    texts = [[] if model.is_encoder_decoder else list(prompt) for prompt in prompts]
    yield from decode_steps(decoder, texts, limit, sampling, frozenset(ends))


def decode_steps(
    decoder: IncrementalDecoder, penalised_texts: list[list[int]], limit: int, sampling: Sampling, ends: frozenset[int]
) -> Iterator[list[int | None]]:
    """Run a decoder step by step until every text has ended or has ``limit`` new tokens.

    Args:
        penalised_texts: The tokens that the repetition penalty counts for each text, besides the new ones.
    """
    texts = [list(tokens) for tokens in penalised_texts]
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
