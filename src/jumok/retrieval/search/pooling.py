"""Pool the vectors of tokens into one vector of length 1 for each text: the mean over its tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.generate.decoding import pad_right
from jumok.models import Model


@torch.inference_mode()
def embed_token_ids(model: Model, texts: list[list[int]]) -> Float[Tensor, "batch width"]:
    """Return one vector of length 1 for each text: the mean of the hidden vectors of its tokens.

    Args:
        model: An encoder of text without a head.
        texts: The token ids of each text; no text is empty or longer than the model's context.
    """
    tokens, token_mask = pad_right(texts, model.device)
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
