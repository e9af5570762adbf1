"""jumok.run: what a model is for, in one call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.generate import Sampling, beam_search, stream, text_pieces

PURPOSES = {
    "gpt": "continue",
    "t5": "translate",
    "transformer": "translate",
    "bert": "embed",
    "long": "embed",
    "classifier": "classify",
}


def purpose(loaded: Loaded) -> str:
    """What this model does with its input: continue, translate, fill, embed or classify."""
    if loaded.family == "bert" and getattr(loaded.config, "head", "none") == "mlm":
        return "fill"
    if loaded.family not in PURPOSES:
        raise ArgumentError(f"jumok run does not know what a {loaded.family} model is for; use it from Python")
    return PURPOSES[loaded.family]


def run(model: str | Path | Loaded, given: str | list[str], **settings: Any) -> Any:
    """Do what ``model`` (a name, a folder or something loaded) is for with ``given``.

    Text models give text, encoders a vector of length 1, mask fillers the likeliest tokens for each masked place,
    classifiers the share of each class. Settings: limit, temperature, top_k, top_p, min_p, repetition, seed, beams,
    stops, chat.

    >>> jumok.run("smollm2", "The capital of Korea is", limit=8)  # doctest: +SKIP
    ' Seoul.'
    """
    loaded = model if isinstance(model, Loaded) else load(model)
    kind = purpose(loaded)
    if kind in ("continue", "translate"):
        if isinstance(given, list):
            return ["".join(pieces(loaded, one, **settings)) for one in given]
        return "".join(pieces(loaded, given, **settings))
    if settings:
        raise ArgumentError(f"{', '.join(settings)} cannot be set for a model that does not generate text")
    texts = [given] if isinstance(given, str) else given
    found: Any = {"embed": embed, "fill": fill, "classify": classify}[kind](loaded, texts)
    return found[0] if isinstance(given, str) else found


def pieces(
    loaded: Loaded,
    text: str,
    *,
    limit: int = 128,
    beams: int = 1,
    stops: tuple[str, ...] = (),
    chat: bool = False,
    **sampling: Any,
) -> Iterator[str]:
    """New text as it comes, in whole characters."""
    tokenizer = _tokenizer(loaded)
    if chat:
        text = tokenizer.apply_chat([{"role": "user", "content": text}])
    prompt = tokenizer.encode(text)
    if not prompt:
        raise ArgumentError("the text is empty; give the model something to go on with")
    if "" in stops:
        raise ArgumentError("a stop string is empty, and would end every text before it begins")
    ends = () if tokenizer.end is None else (tokenizer.end,)
    room = _room(loaded, len(prompt), limit)
    if any(name in sampling for name in ("top_k", "top_p", "min_p", "seed")):
        sampling.setdefault("temperature", 1.0)  # whoever says how to draw wants something drawn
    how = Sampling(**{"temperature": 0.0, **sampling})
    if beams > 1:
        if sampling:
            raise ArgumentError("beam search takes the likeliest text; temperature and the like cannot be set with it")
        tokens = iter(beam_search(loaded.model, [prompt], beams=beams, limit=room, ends=ends)[0])
    else:
        tokens = (
            row[0] for row in stream(loaded.model, [prompt], limit=room, sampling=how, ends=ends) if row[0] is not None
        )
    return text_pieces((token for token in tokens if token not in ends), tokenizer, stops)


def _room(loaded: Loaded, prompt: int, limit: int) -> int:
    """As many new tokens as were asked for, or as fit: a default must not be an error."""
    length = getattr(loaded.config, "length", None)
    if length is None or hasattr(loaded.model, "encode") or prompt >= length:
        return limit
    return min(limit, int(length) - prompt)


def _tokenizer(loaded: Loaded) -> Any:
    if loaded.tokenizer is None:
        raise ArgumentError(
            "this model came without a tokenizer, so it cannot read text; give it token ids from Python"
        )
    return loaded.tokenizer


def _batch(loaded: Loaded, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and which of them are real, shorter texts padded on the right."""
    rows = [_tokenizer(loaded).encode(text) for text in texts]
    if not rows or not all(rows):
        raise ArgumentError("the text is empty; give the model something to read")
    longest = max(len(row) for row in rows)
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    real = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return tokens.to(loaded.model.device), real.to(loaded.model.device)


@torch.inference_mode()
def embed(loaded: Loaded, texts: list[str]) -> torch.Tensor:
    """One vector of length 1 for each text: the mean over its real tokens."""
    tokens, real = _batch(loaded, texts)
    hidden = loaded.model(tokens, padding=real).hidden
    total = (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return torch.nn.functional.normalize(total, dim=-1)


@torch.inference_mode()
def fill(loaded: Loaded, texts: list[str]) -> list[list[list[dict[str, Any]]]]:
    """For each text and each masked place in it, the five likeliest tokens."""
    tokenizer = _tokenizer(loaded)
    tokens, real = _batch(loaded, texts)
    if tokenizer.mask is None or not (tokens == tokenizer.mask).any():
        name = None if tokenizer.mask is None else tokenizer.token(tokenizer.mask)
        raise ArgumentError(f"nothing is masked in the text; write {name} where a word is missing")
    logits = loaded.model(tokens, padding=real).logits
    found = []
    for row, text in zip(logits, tokens, strict=True):
        best = [row[place].softmax(-1).topk(5) for place in (text == tokenizer.mask).nonzero().flatten().tolist()]
        found.append(
            [
                [
                    {"token": tokenizer.decode([token]).strip(), "share": share}
                    for share, token in zip(one.values.tolist(), one.indices.tolist(), strict=True)
                ]
                for one in best
            ]
        )
    return found


@torch.inference_mode()
def classify(loaded: Loaded, texts: list[str]) -> list[list[float]]:
    """The share of each class."""
    tokens, real = _batch(loaded, texts)
    return loaded.model(tokens, padding=real).logits.softmax(-1).tolist()


class _Callable(ModuleType):
    """``jumok.run`` is this module once it is imported, and must still be what people call."""

    def __call__(self, *given: Any, **settings: Any) -> Any:
        return run(*given, **settings)


sys.modules[__name__].__class__ = _Callable
