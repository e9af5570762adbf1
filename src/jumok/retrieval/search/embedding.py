"""The embedding model: compute the vectors of many passages, in batches of similar length."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.resolve import resolve_model_path
from jumok.data import catalogue
from jumok.errors import ArgumentError, ContextWarning, DataError
from jumok.files import compute_sha256
from jumok.generate.decoding import pad_tokens
from jumok.models import Model

CHUNK = 2048  # passages that are sorted by length together; their tokens and vectors are in memory at the same time
BATCH_TOKENS = 2048  # tokens of a batch, padding included
# models that read Korean, Chinese and Japanese, and what they expect before a question and before a passage
PREFIXES = {"e5-multilingual": ("query: ", "passage: ")}
_LETTER = re.compile(r"[^\W\d_]")
_UNREADABLE = re.compile("[가-힣ㄱ-ㆎᄀ-ᇿ一-鿿㐀-䶿ぁ-ヿ]")


def embed_passages(
    loaded: Loaded, texts: Iterable[str], progress: Callable[[int], None] | None = None
) -> Iterator[np.ndarray]:
    """Yield the vector of each text, float32 [width] of length 1, in the order of the texts.

    The texts are read in chunks; inside a chunk, texts of similar length share a batch, so that little is padded. A
    text that is longer than the model's context is cut, and a warning at the end says how many were. ``progress`` is
    called after each batch with the number of texts of this call that are finished.
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


def embed_question(loaded: Loaded, question: str, embedder: str = "minilm") -> np.ndarray:
    """Return the vector of a question, float32 [width] of length 1; ``embedder`` is the name of the model."""
    return next(embed_passages(loaded, [get_prefixes(embedder)[0] + question]))


def get_prefixes(embedder: str) -> tuple[str, str]:
    """Return what a model expects before a question and before a passage."""
    return PREFIXES.get(embedder, ("", ""))


def load_model(name: str) -> Loaded:
    """Load an embedding model."""
    loaded = load(name)
    check_embedder(loaded)
    return loaded


def check_embedder(loaded: Loaded) -> None:
    """Raise an error if a model does not compute vectors of texts."""
    model = loaded.model
    if model.reads != "text" or model.task != "embed":
        raise ArgumentError(
            f"this {loaded.family} model reads {model.reads} and its task is {model.task!r}; searching needs a model "
            'that embeds text, such as "minilm"'
        )
    loaded.require_tokenizer()


def identify_model(name: str) -> str:
    """Return a text that changes when the parameters of a model change."""
    path = resolve_model_path(name)
    entry = next((entry for entry in catalogue.list_entries() if entry.name == name), None)
    if entry is not None and not Path(name).exists():
        return hashlib.sha256(json.dumps(entry.pins, sort_keys=True).encode()).hexdigest()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    digests = [f"{file.name} {compute_sha256(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def is_readable(text: str) -> bool:
    """Return True if an English model can read a text: half of its letters are not Korean, Chinese or Japanese.

    >>> is_readable("a cat"), is_readable("고양이 cat"), is_readable("1, 2")
    (True, True, True)
    """
    if text.isascii():
        return True
    letters = len(_LETTER.findall(text))
    return 2 * len(_UNREADABLE.findall(text)) <= letters


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


@torch.inference_mode()
def embed_token_ids(model: Model, texts: list[list[int]]) -> Float[Tensor, "batch width"]:
    """Return one vector of length 1 for each text, the mean of the hidden vectors of its tokens.

    No text is empty or longer than the context of the model, an encoder of text without a head.
    """
    tokens, token_mask = pad_tokens(texts, model.device)
    if token_mask is None:
        hidden: Tensor = model(tokens).hidden
        vectors = hidden.mean(1)
    else:
        hidden = model(tokens, token_mask=token_mask).hidden
        vectors = (hidden * token_mask[..., None]).sum(1) / token_mask.sum(1, keepdim=True)
    return normalize_rows(vectors)


def normalize_rows(vectors: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
    """Return vectors divided by their lengths, so that the product of two of them is their cosine."""
    return torch.nn.functional.normalize(vectors, dim=-1)
