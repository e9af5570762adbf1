"""Models that read: a vector, the words for a mask, shares of classes, numbers."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.checkpoint.loaded import classes_of
from jumok.errors import ArgumentError

from .model_inputs import image_of, numbers_of, reads, tokenizer_of, tokens_of


@torch.inference_mode()
def embed(loaded: Loaded, given: list[Any]) -> Float[Tensor, "batch width"]:
    """One vector of length 1 for each: of a text the mean over its real tokens; of an image the class token's, or the
    mean over its places where there is no such token."""
    if reads(loaded) == "pictures":
        hidden = torch.cat([loaded.model(image_of(loaded, one)).hidden for one in given])
        total = hidden[:, 0] if hasattr(loaded.model, "class_token") else hidden.mean(1)
    else:
        tokens, real = tokens_of(loaded, given)
        hidden = loaded.model(tokens, token_mask=real).hidden
        total = (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return torch.nn.functional.normalize(total, dim=-1)


@torch.inference_mode()
def fill(loaded: Loaded, texts: list[Any]) -> list[list[list[dict[str, Any]]]]:
    """For each text and each masked place in it, the five likeliest tokens."""
    tokenizer = tokenizer_of(loaded)
    tokens, real = tokens_of(loaded, texts)
    if tokenizer.mask is None or not (tokens == tokenizer.mask).any():
        name = None if tokenizer.mask is None else tokenizer.id_to_token(tokenizer.mask)
        raise ArgumentError(f"nothing is masked in the text; write {name} where a word is missing")
    logits = loaded.model(tokens, token_mask=real).logits
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
def classify(loaded: Loaded, given: list[Any]) -> list[list[dict[str, Any]]]:
    """For each text or picture all classes, likeliest first, as {"class": 3, "name": "cat", "share": 0.9}; the name is
    None where classes have none. Shares sum to 1, but where several classes may hold each stands for itself."""
    # one class alone is a share by itself too: of one, softmax knows only 1
    alone = getattr(loaded.config, "answer", "one") == "several" or classes_of(loaded.config) == 1
    found = []
    for logits in _logits(loaded, given):
        shares, order = (logits.sigmoid() if alone else logits.softmax(-1)).sort(descending=True, stable=True)
        ranked = zip(order.tolist(), shares.tolist(), strict=True)
        names = loaded.labels
        found.append(
            [{"class": one, "name": None if names is None else names[one], "share": share} for one, share in ranked]
        )
    return found


@torch.inference_mode()
def score(loaded: Loaded, given: list[Any]) -> list[list[float]]:
    """The numbers themselves, of models that were taught numbers and not classes."""
    return [logits.tolist() for logits in _logits(loaded, given)]


def _logits(loaded: Loaded, given: list[Any]) -> list[Float[Tensor, " classes"]]:
    if reads(loaded) == "pictures":
        return [loaded.model(image_of(loaded, one)).logits[0].float() for one in given]
    tokens, real = tokens_of(loaded, given)
    return list(loaded.model(tokens, token_mask=real).logits.float())


@torch.inference_mode()
def predict(loaded: Loaded, given: list[Any]) -> list[list[float]]:
    """As many numbers as were given, for each row of them."""
    rows = [numbers_of(loaded, one) for one in given]
    model: Any = loaded.model
    return [model.predict(row, row.shape[1])[0].tolist() for row in rows]
