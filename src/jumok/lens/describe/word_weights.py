"""Maps of tokens as maps of words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def merge_into_words(
    weights: Float[Tensor, "query key"], queries: Sequence[range] | None, keys: Sequence[range] | None
) -> Float[Tensor, "query_word key_word"]:
    """Summed over the keys of a word, for a word is looked at by being looked at anywhere; the mean over its queries,
    so that rows still sum to 1. None leaves a side as it is.

    >>> joined(torch.tensor([[0.2, 0.8], [0.4, 0.6]]), [range(0, 2)], [range(0, 1), range(1, 2)])
    tensor([[0.3000, 0.7000]])
    """
    if keys is not None:
        weights = torch.stack([weights[:, one.start : one.stop].sum(1) for one in keys], 1)
    if queries is not None:
        weights = torch.stack([weights[one.start : one.stop].mean(0) for one in queries])
    return weights
