"""Compute the vectors of many passages with an embedding model, in batches of similar length."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError, ContextWarning, DataError

from .pooling import embed_token_ids

CHUNK = 2048  # passages that are sorted by length together; their tokens and vectors are in memory at the same time
BATCH_TOKENS = 2048  # tokens of a batch, padding included


def embed_passages(
    loaded: Loaded, texts: Iterable[str], progress: Callable[[int], None] | None = None
) -> Iterator[np.ndarray]:
    """Yield the vector of each text, float32 [width] of length 1, in the order of the texts.

    The texts are read in chunks; inside a chunk, texts of similar length share a batch, so that little is padded. A
    text that is longer than the model's context is cut, and a warning at the end says how many were.

    Args:
        loaded: An encoder of text without a head, such as ``jumok.load("minilm")``.
        progress: Called after each batch with the number of texts of this call that are finished.

    Raises:
        ArgumentError: If the model computes no vectors of texts.
        DataError: If a vector is not finite.
    """
    check_embedder(loaded)
    remaining = iter(texts)
    finished = cut_count = 0
    while chunk := list(itertools.islice(remaining, CHUNK)):
        token_ids, cuts = _encode(loaded, chunk)
        cut_count += cuts
        vectors = np.empty((len(chunk), 0), dtype=np.float32)
        for batch in _group_by_length(token_ids):
            rows = [token_ids[number] for number in batch]
            computed = embed_token_ids(loaded.model, rows).float().cpu().numpy()
            if not vectors.shape[1]:
                vectors = np.empty((len(chunk), computed.shape[1]), dtype=np.float32)
            vectors[batch] = computed
            if progress is not None:
                progress(finished := finished + len(batch))
        unusable = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(unusable):
            shown = chunk[unusable[0]][:60]
            raise DataError(f"the embedding model returns NaN or infinity for the text {shown!r}; its file is damaged")
        yield from vectors
    if cut_count:
        warnings.warn(
            f"{cut_count:,} of the texts {'is' if cut_count == 1 else 'are'} longer than the "
            f"{loaded.model.context_length} tokens that {loaded.family} reads; the vectors are of their first tokens",
            ContextWarning,
            stacklevel=2,
        )


def embed_question(loaded: Loaded, question: str) -> np.ndarray:
    """Return the vector of a question, float32 [width] of length 1.

    Args:
        loaded: The embedding model of the passages.

    Raises:
        ArgumentError: If the model computes no vectors of texts.
    """
    return next(embed_passages(loaded, [question]))


def check_embedder(loaded: Loaded) -> None:
    """Raise an error if a model does not compute vectors of texts.

    Raises:
        ArgumentError: If it does not, or has no tokenizer.
    """
    model = loaded.model
    if model.reads != "text" or model.task != "embed":
        raise ArgumentError(
            f"this {loaded.family} model reads {model.reads} and its task is {model.task!r}; searching needs a model "
            'that embeds text, such as "minilm"'
        )
    loaded.require_tokenizer()


def _encode(loaded: Loaded, texts: list[str]) -> tuple[list[list[int]], int]:
    """Return the token ids of texts, cut to the model's context, and how many were cut."""
    tokenizer, limit = loaded.require_tokenizer(), loaded.model.context_length
    encoded = [tokenizer.encode(text) for text in texts]
    cut_count = 0
    for number, token_ids in enumerate(encoded):
        if not token_ids:
            raise ArgumentError("a text is empty, and this model's tokenizer adds no special tokens")
        if limit is not None and len(token_ids) > limit:
            # the last token, [SEP], ends the shortened text too
            encoded[number] = [*token_ids[: limit - 1], token_ids[-1]]
            cut_count += 1
    return encoded, cut_count


def _group_by_length(token_ids: list[list[int]]) -> Iterator[list[int]]:
    """Yield batches of text numbers, sorted by length, each of at most BATCH_TOKENS tokens or one text."""
    batch: list[int] = []
    for number in sorted(range(len(token_ids)), key=lambda number: len(token_ids[number])):
        if batch and (len(batch) + 1) * len(token_ids[number]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
