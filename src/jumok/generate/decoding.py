"""A model as something that takes tokens and gives logits, step by step: what it has seen is in its cache."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Cache
from jumok.errors import ArgumentError
from jumok.models import Model

StepLogits = Float[Tensor, "batch step vocab"]


class IncrementalDecoder:
    """What every loop here asks of a model."""

    #: how many tokens stand in each row before what is generated
    prompt: int

    def first(self) -> StepLogits:
        """Logits after the prompt: [batch, 1, vocab]."""
        raise NotImplementedError

    def next(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Put tokens behind those seen; logits after each of them."""
        raise NotImplementedError

    def select(self, rows: Int[Tensor, " chosen"]) -> None:
        """Go on with these rows, in this order."""
        raise NotImplementedError

    def forget(self, count: int) -> None:
        """Take back the last ``count`` tokens."""
        raise NotImplementedError


class CausalDecoder(IncrementalDecoder):
    """A model that continues its own prompt. Prompts of unequal length are padded on the left."""

    def __init__(self, model: Model, prompts: list[list[int]], limit: int) -> None:
        longest = max(len(one) for one in prompts)
        length = getattr(model.config, "length", None)
        if length is not None and longest + limit > length:
            if longest >= length:
                raise ArgumentError(
                    f"the prompt has {longest} tokens and this model reads at most {length}; shorten the prompt"
                )
            raise ArgumentError(
                f"{longest} tokens of prompt and {limit} new ones are more than the {length} that this model reads; "
                f"ask for at most {length - longest}"
            )
        self.model, self.prompt = model, longest
        self.cache = Cache(capacity=longest + limit)
        device = model.device
        self.tokens = torch.tensor([[0] * (longest - len(one)) + one for one in prompts], device=device)
        real = [[False] * (longest - len(one)) + [True] * len(one) for one in prompts]
        # rows of one length need no mask at all, and are faster for it
        self.token_mask = None if all(all(row) for row in real) else torch.tensor(real, device=device)

    def first(self) -> StepLogits:
        return self._logits(self.tokens, 1)

    def next(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        if self.token_mask is not None:
            fresh = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
            self.token_mask = torch.cat([self.token_mask[:, : self.cache.length], fresh], -1)
        return self._logits(tokens, tokens.shape[1])

    def _logits(self, tokens: Tensor, last: int) -> Tensor:
        logits: Tensor = self.model(tokens, token_mask=self.token_mask, cache=self.cache, last=last).logits
        return logits

    def select(self, rows: Int[Tensor, " chosen"]) -> None:
        self.cache.select(rows)
        if self.token_mask is not None:
            self.token_mask = self.token_mask.index_select(0, rows)

    def forget(self, count: int) -> None:
        self.cache.truncate(self.cache.length - count)


class CrossAttentionDecoder(IncrementalDecoder):
    """An encoder-decoder: the source is read once, and the target grows from a start token."""

    def __init__(
        self,
        model: Any,
        source: Any,
        start: int,
        limit: int,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
    ) -> None:
        self.model, self.prompt = model, 1
        self.source_token_mask = source_token_mask
        settings = {} if source_token_mask is None else {"source_token_mask": source_token_mask}
        self.encoded = model.encode(source, **settings)
        self.cache = Cache(capacity=limit + 1)
        self.start = torch.full((self.encoded.shape[0], 1), start, device=self.encoded.device)

    @staticmethod
    def of_texts(model: Any, sources: list[list[int]], start: int, limit: int) -> CrossAttentionDecoder:
        """Sources as token lists; shorter ones are padded on the right."""
        tokens, token_mask = pad_right(sources, model.device)
        return CrossAttentionDecoder(model, tokens, start, limit, token_mask)

    def first(self) -> StepLogits:
        return self.next(self.start)

    def next(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        settings = {} if self.source_token_mask is None else {"source_token_mask": self.source_token_mask}
        logits: Tensor = self.model.decode(
            tokens, self.encoded, cache=self.cache, last=tokens.shape[1], **settings
        ).logits
        return logits

    def select(self, rows: Int[Tensor, " chosen"]) -> None:
        self.cache.select(rows)
        self.encoded = self.encoded.index_select(0, rows)
        if self.source_token_mask is not None:
            self.source_token_mask = self.source_token_mask.index_select(0, rows)

    def forget(self, count: int) -> None:
        self.cache.truncate(self.cache.length - count)


class RecurrentDecoder(IncrementalDecoder):
    """A recurrent encoder-decoder: what it has seen is one state, passed from step to step."""

    def __init__(self, model: Any, sources: list[list[int]], start: int) -> None:
        tokens, token_mask = pad_right(sources, model.device)
        self.model, self.prompt, self.state = model, 1, None
        self.encoded = model.encode(tokens, source_token_mask=token_mask)
        self.start = torch.full((len(sources), 1), start, device=tokens.device)

    def first(self) -> StepLogits:
        return self.next(self.start)

    def next(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        logits: Tensor
        logits, self.state = self.model.decode(tokens, self.encoded, self.state)
        return logits

    def select(self, rows: Int[Tensor, " chosen"]) -> None:
        self.encoded = self.encoded.select(rows)
        self.state = None if self.state is None else self.state.select(rows)

    def forget(self, count: int) -> None:
        if count:
            raise ArgumentError("a recurrent model cannot take back what it has read; guess with another one")


def pad_right(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Token ids, shorter texts padded on the right, and which are real; None where all are."""
    longest = max(len(one) for one in texts)
    tokens = torch.tensor([one + [0] * (longest - len(one)) for one in texts], device=device)
    real = torch.tensor([[True] * len(one) + [False] * (longest - len(one)) for one in texts], device=device)
    return tokens, None if bool(real.all()) else real


def create_decoder(model: Model, prompts: list[list[int]], limit: int) -> IncrementalDecoder:
    """The steps of a model from token lists: prompts to go on with, or sources to answer."""
    if not isinstance(prompts, list) or not all(isinstance(one, list) for one in prompts):
        shown = f"a tensor {list(prompts.shape)}: give its .tolist()" if isinstance(prompts, Tensor) else repr(prompts)
        raise ArgumentError(f"prompts are lists of token ids, one for each text, as in [[5, 3], [7]]; not {shown[:80]}")
    if not prompts or not all(prompts):
        raise ArgumentError("the prompt is empty: generation needs at least one token")
    if not isinstance(limit, int) or limit < 1:
        raise ArgumentError(f"at least 1 new token must be asked for, not {limit!r}")
    if hasattr(model, "encode"):
        start = getattr(model.config, "start", None)
        if start is None:
            raise ArgumentError(f"this {model.family} model does not say with which token an answer starts")
        if hasattr(model, "first_state"):
            return RecurrentDecoder(model, prompts, int(start))
        return CrossAttentionDecoder.of_texts(model, prompts, int(start), limit)
    return CausalDecoder(model, prompts, limit)
