"""Merge the attention weights of tokens into weights of words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def merge_into_words(
    weights: Float[Tensor, "query key"], queries: Sequence[range] | None, keys: Sequence[range] | None
) -> Float[Tensor, "query_word key_word"]:
    """Merge tokens into words: sum the weights over a word's keys, average them over its queries.

    Rows still sum to 1 if every key belongs to a word. The weights on other keys, such as special tokens, are left out.

    Args:
        queries: The tokens of each word on the query axis; None leaves the axis unchanged.
        keys: The tokens of each word on the key axis; None leaves the axis unchanged.

    >>> merge_into_words(torch.tensor([[0.2, 0.8], [0.4, 0.6]]), [range(0, 2)], [range(0, 1), range(1, 2)])
    tensor([[0.3000, 0.7000]])
    """
    if keys is not None:
        weights = torch.stack([weights[:, word.start : word.stop].sum(1) for word in keys], 1)
    if queries is not None:
        weights = torch.stack([weights[word.start : word.stop].mean(0) for word in queries])
    return weights
