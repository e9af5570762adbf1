"""Which tokens of a text are hidden, and what stands there instead."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError

SHARE = 0.15  # of each example's tokens are hidden: 80 % behind the mask, 10 % behind any token, 10 % are left
FIXED = 2**41  # where the draws for held-out texts begin, whatever the run's seed is

Tokens = Int[Tensor, "batch length"]
Truths = Bool[Tensor, "batch length"]


def hidden(tokens: Tokens, free: Truths, tokenizer: Tokenizer, draw: torch.Generator) -> tuple[Tokens, Truths]:
    """What the model sees in training, and the places it is asked about (Devlin et al. 2019). Some of them look as ever
    and some look wrong, so that it must have an opinion on every token."""
    places = chosen(free, draw)
    kind = torch.rand(tokens.shape, generator=draw)
    ordinary = list_ordinary_tokens(tokenizer)
    other = ordinary[torch.randint(len(ordinary), tokens.shape, generator=draw)]
    seen = torch.where(places & (kind < 0.9), other, tokens)
    return seen.masked_fill(places & (kind < 0.8), mask_of(tokenizer)), places


def fixed(tokens: Tokens, free: Truths, tokenizer: Tokenizer, number: int) -> tuple[Tokens, Truths]:
    """The same places of these examples each time, all of them behind the mask."""
    places = chosen(free, torch.Generator().manual_seed(FIXED + number))
    return tokens.masked_fill(places, mask_of(tokenizer)), places


def chosen(free: Truths, draw: torch.Generator) -> Truths:
    """So many of each row's free places as their share is, at least one."""
    ranks = torch.rand(free.shape, generator=draw).masked_fill(~free, 2.0).argsort(-1).argsort(-1)
    return (ranks < (free.sum(-1, keepdim=True) * SHARE).round().clamp_min(1)) & free


def mask_of(tokenizer: Tokenizer) -> int:
    assert tokenizer.mask is not None
    return tokenizer.mask


@lru_cache(maxsize=2)
def list_ordinary_tokens(tokenizer: Tokenizer) -> Int[Tensor, " tokens"]:
    """Every token that is not a special one."""
    own = (tokenizer.begin, tokenizer.end, tokenizer.pad, tokenizer.mask, tokenizer.unknown, tokenizer.separator)
    special = {*own, tokenizer.classify}
    return torch.tensor([number for number in range(tokenizer.vocabulary) if number not in special])


def find_surrounding_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that stand before and behind a text: [CLS] and [SEP], <s> and </s>, or none."""
    plain, whole = tokenizer.encode("a", special=False), tokenizer.encode("a")
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[:start], whole[start + len(plain) :]
    raise ArgumentError("this tokenizer changes a text where it puts special tokens around it; use another one")
