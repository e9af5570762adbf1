"""Incremental decoders: feed a model new tokens step by step and read the logits; the past stays in a cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Cache
from jumok.errors import ArgumentError
from jumok.models import Model, RNNSeq2Seq
from jumok.models.model import Output
from jumok.models.rnn_seq2seq import State

StepLogits = Float[Tensor, "batch step vocab"]

DEFAULT_LIMIT = 64  # new tokens, where the caller of a decoding loop gives no limit


@runtime_checkable
class EncoderDecoder(Protocol):
    """A model with ``encode()`` and ``decode()``, both by attention: T5, Transformer, Captioner."""

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        ...

    @property
    def start_token(self) -> int | None:
        """The token that every target begins with."""
        ...

    def encode(self, source: Tensor, /, *, source_token_mask: Tensor | None = None) -> Tensor:
        """Return the encoder's output, [batch, source, width].

        Args:
            source: Token ids, [batch, source], or images or regions.
            source_token_mask: True = real token, [batch, source]; None if there is no padding.
        """
        ...

    def decode(
        self,
        target: Tensor,
        encoded: Tensor,
        /,
        *,
        source_token_mask: Tensor | None = None,
        cache: Cache | None = None,
        last: int | None = None,
    ) -> Output:
        """Return the decoder's output for new target tokens.

        Args:
            target: New token ids, [batch, target].
            encoded: The encoder's output.
            source_token_mask: True = real source token; None if there is no padding.
            cache: Keys and values of the earlier target tokens.
            last: Compute logits of only this many last tokens; None means all.
        """
        ...


class IncrementalDecoder(ABC):
    """A model in the middle of decoding; every decoding loop uses this interface."""

    @abstractmethod
    def prefill(self) -> StepLogits:
        """Read the prompt and return the logits of the first new token, [batch, 1, vocab]."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each text and return the logits after each of them.

        Args:
            tokens: Token ids, [batch, step].
        """

    @abstractmethod
    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order.

        Args:
            rows: Indices of batch rows; an index may repeat.
        """

    @abstractmethod
    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of each text.

        Args:
            count: Number of tokens.
        """


class CausalDecoder(IncrementalDecoder):
    """Decodes a model that continues its own prompt (GPT). Prompts of different lengths are padded on the left.

    Args:
        model: A language model.
        prompts: Token ids, one non-empty list for each text.
        limit: The largest number of new tokens.

    Raises:
        ArgumentError: If prompt and new tokens exceed the model's context length.
    """

    def __init__(self, model: Model, prompts: list[list[int]], limit: int) -> None:
        longest = max(len(prompt) for prompt in prompts)
        _check_context_length(model, longest, limit)
        self.model = model
        self.cache = Cache(capacity=longest + limit)

        padded = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        self.tokens = torch.tensor(padded, device=model.device)

        # Prompts of equal length need no mask, which is faster.
        self.token_mask: Tensor | None = None
        if any(len(prompt) < longest for prompt in prompts):
            real = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
            self.token_mask = torch.tensor(real, device=model.device)

    def prefill(self) -> StepLogits:
        """Read the prompts and return the logits of the first new token, [batch, 1, vocab]."""
        logits: Tensor = self.model(self.tokens, token_mask=self.token_mask, cache=self.cache, last=1).logits
        return logits

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each text and return the logits after each of them.

        Args:
            tokens: Token ids, [batch, step].
        """
        if self.token_mask is not None:
            appended = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
            self.token_mask = torch.cat([self.token_mask[:, : self.cache.length], appended], -1)
        output: Output = self.model(tokens, token_mask=self.token_mask, cache=self.cache, last=tokens.shape[1])
        assert output.logits is not None
        return output.logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order.

        Args:
            rows: Indices of batch rows; an index may repeat.
        """
        self.cache.select(rows)
        if self.token_mask is not None:
            self.token_mask = self.token_mask.index_select(0, rows)

    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of each text.

        Args:
            count: Number of tokens.
        """
        self.cache.truncate(self.cache.length - count)


class CrossAttentionDecoder(IncrementalDecoder):
    """Decodes an encoder-decoder: the source is encoded once, and the target grows from the start token.

    Args:
        model: A model with ``encode()`` and ``decode()``.
        source: The encoder's input: token ids [batch, source], images or regions.
        limit: The largest number of new tokens.
        source_token_mask: [batch, source], True = real token; None = all are real.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tensor,
        limit: int,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
    ) -> None:
        if model.start_token is None:
            raise ArgumentError("this encoder-decoder declares no start token, so its decoder cannot start")
        self.model = model
        self.source_token_mask = source_token_mask
        self.encoded = model.encode(source, source_token_mask=source_token_mask)
        self.cache = Cache(capacity=limit + 1)
        self.start = torch.full((self.encoded.shape[0], 1), model.start_token, device=self.encoded.device)

    def prefill(self) -> StepLogits:
        """Read the start token and return the logits of the first new token, [batch, 1, vocab]."""
        return self.step(self.start)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each target and return the logits after each of them."""
        output = self.model.decode(
            tokens,
            self.encoded,
            source_token_mask=self.source_token_mask,
            cache=self.cache,
            last=tokens.shape[1],
        )
        assert output.logits is not None
        return output.logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order.

        Args:
            rows: Indices of batch rows; an index may repeat.
        """
        self.cache.select(rows)
        self.encoded = self.encoded.index_select(0, rows)
        if self.source_token_mask is not None:
            self.source_token_mask = self.source_token_mask.index_select(0, rows)

    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of each target."""
        self.cache.truncate(self.cache.length - count)


class RecurrentDecoder(IncrementalDecoder):
    """Decodes a recurrent encoder-decoder: its past is one state that is passed from step to step.

    Args:
        model: The recurrent model.
        sources: Token ids, one non-empty list for each text.
    """

    def __init__(self, model: RNNSeq2Seq, sources: list[list[int]]) -> None:
        tokens, source_token_mask = pad_right(sources, model.device)
        self.model = model
        self.state: State | None = None
        self.encoded = model.encode(tokens, source_token_mask=source_token_mask)
        self.start = torch.full((len(sources), 1), model.start_token, device=tokens.device)

    def prefill(self) -> StepLogits:
        """Read the start token and return the logits of the first new token, [batch, 1, vocab]."""
        return self.step(self.start)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each target and return the logits after each of them."""
        logits, self.state = self.model.decode(tokens, self.encoded, self.state)
        return logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order.

        Args:
            rows: Indices of batch rows; an index may repeat.
        """
        self.encoded = self.encoded.select(rows)
        if self.state is not None:
            self.state = self.state.select(rows)

    def remove_last(self, count: int) -> None:
        """Raise ArgumentError if ``count`` is not 0: a recurrent state cannot be rolled back."""
        if count:
            raise ArgumentError("a recurrent model cannot remove tokens; speculative decoding needs another family")


def create_incremental_decoder(model: Model, prompts: list[list[int]], limit: int) -> IncrementalDecoder:
    """Return the incremental decoder that fits a model's family.

    Args:
        model: A model that generates text.
        prompts: Token ids, one non-empty list for each text: prompts to continue, or an encoder's sources.
        limit: The largest number of new tokens, at least 1.

    Raises:
        ArgumentError: If prompts or limit are invalid, or the model has no start token.
    """
    if not isinstance(prompts, list) or not all(isinstance(prompt, list) for prompt in prompts):
        description = repr(prompts)
        if isinstance(prompts, Tensor):
            description = f"a tensor {list(prompts.shape)}: give its .tolist()"
        raise ArgumentError(
            f"prompts must be lists of token ids, one for each text, as in [[5, 3], [7]]; not {description[:80]}"
        )
    if not prompts or not all(prompts):
        raise ArgumentError("the prompt is empty; generation needs at least one token")
    if not isinstance(limit, int) or limit < 1:
        raise ArgumentError(f"limit must be at least 1 new token, not {limit!r}")

    if not model.is_encoder_decoder:
        return CausalDecoder(model, prompts, limit)
    if isinstance(model, RNNSeq2Seq):
        return RecurrentDecoder(model, prompts)
    if isinstance(model, EncoderDecoder):
        tokens, source_token_mask = pad_right(prompts, model.device)
        return CrossAttentionDecoder(model, tokens, limit, source_token_mask)
    raise ArgumentError(f"this {model.family} model has no decode() that generates tokens")


def pad_right(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return token ids [batch, length], padded on the right with 0, and their mask.

    Args:
        texts: Token ids, one list for each text.
        device: The device of the returned tensors.

    Returns:
        The token ids, and the token mask (True = real token) or None if no text is padded.
    """
    longest = max(len(text) for text in texts)
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=device)
    if all(len(text) == longest for text in texts):
        return tokens, None
    real = [[True] * len(text) + [False] * (longest - len(text)) for text in texts]
    return tokens, torch.tensor(real, device=device)


def _check_context_length(model: Model, prompt_length: int, limit: int) -> None:
    length = model.context_length
    if length is None or prompt_length + limit <= length:
        return
    if prompt_length >= length:
        raise ArgumentError(
            f"the prompt has {prompt_length} tokens and this model reads at most {length}; shorten the prompt"
        )
    raise ArgumentError(
        f"{prompt_length} prompt tokens and {limit} new tokens exceed the {length} tokens that this model reads; "
        f"use a limit of at most {length - prompt_length}"
    )
