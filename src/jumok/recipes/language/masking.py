"""Choose the positions that a masked language model has to predict, and replace their tokens (Devlin et al. 2019)."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError

SHARE = 0.15  # of each example's tokens: 80 % become the mask token, 10 % a random token, 10 % stay unchanged
EVALUATION_SEED = 2**41  # held-out texts are masked in the same way in every run

TokenIds = Int[Tensor, "batch length"]
TokenFlags = Bool[Tensor, "batch length"]


def mask_for_training(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, generator: torch.Generator
) -> tuple[TokenIds, TokenFlags]:
    """Return the model's input, and True at the positions that it has to predict.

    Some of these positions keep their token and some get a random one, so that the model has to predict every token.
    """
    positions = choose_positions(maskable, generator)
    replacement = torch.rand(tokens.shape, generator=generator)
    ordinary = list_ordinary_tokens(tokenizer)
    random_tokens = ordinary[torch.randint(len(ordinary), tokens.shape, generator=generator)]
    inputs = torch.where(positions & (replacement < 0.9), random_tokens, tokens)
    return inputs.masked_fill(positions & (replacement < 0.8), get_mask_token(tokenizer)), positions


def mask_for_evaluation(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, number: int
) -> tuple[TokenIds, TokenFlags]:
    """Return the model's input, with the mask token at every position to predict, and True at these positions.

    Args:
        number: The index of the batch; the same index gives the same positions.
    """
    positions = choose_positions(maskable, torch.Generator().manual_seed(EVALUATION_SEED + number))
    return tokens.masked_fill(positions, get_mask_token(tokenizer)), positions


def choose_positions(maskable: TokenFlags, generator: torch.Generator) -> TokenFlags:
    """Choose 15 % of each row's maskable positions at random, at least one."""
    ranks = torch.rand(maskable.shape, generator=generator).masked_fill(~maskable, 2.0).argsort(-1).argsort(-1)
    counts = (maskable.sum(-1, keepdim=True) * SHARE).round().clamp_min(1)
    return (ranks < counts) & maskable


def get_mask_token(tokenizer: Tokenizer) -> int:
    """Return the id of the mask token."""
    assert tokenizer.mask is not None
    return tokenizer.mask


@lru_cache(maxsize=2)
def list_ordinary_tokens(tokenizer: Tokenizer) -> Int[Tensor, " tokens"]:
    """Return the ids of all tokens that are not special."""
    special = {
        tokenizer.begin,
        tokenizer.end,
        tokenizer.pad,
        tokenizer.mask,
        tokenizer.unknown,
        tokenizer.separator,
        tokenizer.classify,
    }
    return torch.tensor([token for token in range(tokenizer.vocabulary) if token not in special])


def find_surrounding_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts around a text: [CLS] and [SEP], <s> and </s>, or none."""
    text = tokenizer.encode("a", special=False)
    with_special = tokenizer.encode("a")
    for start in range(len(with_special) - len(text) + 1):
        if with_special[start : start + len(text)] == text:
            return with_special[:start], with_special[start + len(text) :]
    raise ArgumentError("this tokenizer encodes a text differently when it adds special tokens; use another tokenizer")
