"""Incremental decoders: feed a model new tokens step by step and read the logits; the past stays in a cache."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import Cache
from jumok.data.batches.batch_order import pad_sequences
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, ContextWarning
from jumok.models import EncoderDecoder, Model, Output
from jumok.reporting import Report
from jumok.translation import translate

DEFAULT_LIMIT = 64  # new tokens, where the caller of a decoding loop gives no limit
SLIDE_DIVISOR = 4  # a full window drops 1/4 of the context: a smaller part would be recomputed more often

StepLogits = Float[Tensor, "batch step vocab"]


def warn_about_context(message: str) -> None:
    """Issue a ``ContextWarning``."""
    warnings.warn(translate(message), ContextWarning, stacklevel=2)


class IncrementalDecoder(ABC):
    """A model in the middle of decoding. ``report`` receives one sentence, at most once, when the model's context
    length changes what is read or written."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._has_reported = False

    @property
    def target_limit(self) -> int | None:
        """The largest number of new tokens that the model can write; None = unlimited."""
        return None

    @abstractmethod
    def prefill(self) -> StepLogits:
        """Read the prompt and return the logits of the first new token, [batch, 1, vocab]."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        """Append tokens to each text and return the logits after each of them."""

    @abstractmethod
    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        """Continue with these batch rows, in this order."""

    @abstractmethod
    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of each text."""

    def restrict(self, scores: Float[Tensor, "batch vocab"], texts: list[list[int]]) -> Float[Tensor, "batch vocab"]:
        """Return the scores of the next tokens, with those that may not come next at minus infinity. Here all may."""
        return scores

    def clamp_limit(self, limit: int) -> int:
        """Return the number of new tokens after which decoding stops."""
        return limit if self.target_limit is None else min(limit, self.target_limit)

    def report_stop(self, limit: int) -> None:
        """Report that a text stops unfinished at ``target_limit``, if that is below the caller's limit."""
        if self.target_limit is not None and self.target_limit < limit:
            self.report_once(
                f"the answer stops unfinished at {self.target_limit:,} tokens, the most that this model can write"
            )

    def report_once(self, message: str) -> None:
        """Report a message, unless this decoder has already reported one."""
        if not self._has_reported:
            self._has_reported = True
            self._report(message)


def compute_window_start(length: int, context_length: int | None) -> int:
    """Return the index of the first token that a model reads of a text.

    A text of at most ``context_length`` tokens is read from its beginning. When a longer text no longer fits, the
    window drops a quarter of the context at once, so that the model reads the window again only every
    ``context_length / 4`` tokens. The window depends on the length of the text alone: a text continues in the same way
    whether it was generated or given as a prompt.

    >>> [compute_window_start(length, 8) for length in (7, 8, 9, 10, 11)]
    [0, 0, 2, 2, 4]
    """
    if context_length is None or length <= context_length:
        return 0
    dropped_at_once = max(1, context_length // SLIDE_DIVISOR)
    slides = -(-(length - context_length) // dropped_at_once)  # rounded up
    return slides * dropped_at_once


class CausalDecoder(IncrementalDecoder):
    """Decodes a model that continues its own prompt (GPT). Prompts of different lengths are padded on the left.

    A text that exceeds the model's context length is read through a sliding window (``compute_window_start``). When a
    window slides, the model reads it again from position 0, with every position encoding: cached keys and
    values depend on the tokens that the window no longer contains.
    """

    def __init__(self, model: Model, prompts: list[list[int]], limit: int, report: Report = warn_about_context) -> None:
        super().__init__(report)
        self.model = model
        self.prompts = prompts
        self.texts: list[list[int]] = [[] for _ in prompts]  # every token that was read
        self.window_starts: list[int] | None = [0 for _ in prompts]  # None: the cache does not hold the windows

        capacity = max(len(prompt) for prompt in prompts) + limit
        if model.context_length is not None:
            capacity = min(capacity, model.context_length)
        self.cache = Cache(capacity=capacity)
        self.token_mask: Tensor | None = None

    @property
    def target_limit(self) -> int | None:
        """The largest number of new tokens of a model whose texts have a fixed length; None = unlimited."""
        if not self.model.ends_at_context or self.model.context_length is None:
            return None
        return max(1, self.model.context_length - max(len(prompt) for prompt in self.prompts))

    def report_stop(self, limit: int) -> None:
        """Report nothing: a text of a fixed length is complete where it stops."""

    def prefill(self) -> StepLogits:
        self.texts = [list(prompt) for prompt in self.prompts]
        return self._read_windows(last=1)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        pieces: list[Tensor] = []
        while tokens.shape[1]:
            count = self._count_tokens_before_slide(tokens.shape[1])
            pieces.append(self._append(tokens[:, :count]))
            tokens = tokens[:, count:]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        indices = rows.tolist()
        self.texts = [list(self.texts[index]) for index in indices]
        if self.window_starts is not None:
            self.window_starts = [self.window_starts[index] for index in indices]
        self.cache.select(rows)
        if self.token_mask is not None:
            self.token_mask = self.token_mask.index_select(0, rows)

    def remove_last(self, count: int) -> None:
        for text in self.texts:
            del text[len(text) - count :]
        if self._compute_window_starts() == self.window_starts:
            self.cache.truncate(self.cache.length - count)
        else:  # the removed tokens had moved a window
            self.window_starts = None

    def _append(self, tokens: Tensor) -> Tensor:
        """Append tokens after which no window slides, except after the first of them."""
        for text, row in zip(self.texts, tokens.tolist(), strict=True):
            text.extend(row)
        if self._compute_window_starts() != self.window_starts:
            return self._read_windows(last=tokens.shape[1])

        if self.token_mask is not None:
            appended = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
            self.token_mask = torch.cat([self.token_mask[:, : self.cache.length], appended], -1)
        return self._forward(tokens, last=tokens.shape[1])

    def _read_windows(self, last: int) -> Tensor:
        """Read the window of every text into an empty cache and return the logits of its last tokens."""
        self.window_starts = self._compute_window_starts()
        if any(self.window_starts):
            self._report_window()
        self.cache.truncate(0)
        windows = [text[start:] for text, start in zip(self.texts, self.window_starts, strict=True)]
        tokens, self.token_mask = pad_tokens(windows, self.model.device, left=True)
        return self._forward(tokens, last)

    def _forward(self, tokens: Tensor, last: int) -> Tensor:
        output: Output = self.model(tokens, token_mask=self.token_mask, cache=self.cache, last=last)
        assert output.logits is not None
        return output.logits

    def _compute_window_starts(self) -> list[int]:
        return [compute_window_start(len(text), self.model.context_length) for text in self.texts]

    def _count_tokens_before_slide(self, count: int) -> int:
        """Return how many of the next ``count`` tokens can be read at once: after the first, no window slides."""
        context_length = self.model.context_length
        if context_length is None:
            return count
        for text in self.texts:
            window_end = compute_window_start(len(text) + 1, context_length) + context_length
            count = min(count, window_end - len(text))
        return count

    def _report_window(self) -> None:
        context_length = self.model.context_length
        assert context_length is not None
        shortest = compute_window_start(context_length + 1, context_length)
        fewest = context_length + 1 - shortest
        shown = f"the last {context_length:,} tokens"
        if fewest < context_length:
            shown = f"the last {fewest:,} to {context_length:,} tokens"
        longest = max(len(prompt) for prompt in self.prompts)
        if longest > context_length:
            message = (
                f"the prompt has {longest:,} tokens, but this model reads at most {context_length:,}: it reads only"
            )
        else:
            message = (
                f"the text exceeds the {context_length:,} tokens that this model reads: from there on it reads only"
            )
        self.report_once(f"{message} {shown}")


class CrossAttentionDecoder(IncrementalDecoder):
    """Decodes an encoder-decoder: the source is encoded once, unless it ``is_encoded`` already, and the target grows
    from the prompt, which by default is the start token."""

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tensor,
        limit: int,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        report: Report = warn_about_context,
        *,
        prompt: Sequence[int] | None = None,
        is_encoded: bool = False,
    ) -> None:
        super().__init__(report)
        if prompt is None:
            if model.start_token is None:
                raise ArgumentError("this encoder-decoder declares no start token, so its decoder cannot start")
            prompt = [model.start_token]
        self.model = model
        self.source_token_mask = source_token_mask
        self.encoded = source if is_encoded else model.encode(source, source_token_mask=source_token_mask)
        self.start = torch.tensor([list(prompt)] * self.encoded.shape[0], device=self.encoded.device)
        self.cache = Cache(capacity=self.clamp_limit(limit) + len(prompt))

    @property
    def target_limit(self) -> int | None:
        """The largest number of new tokens: the prompt takes positions too, and the last new token is not read."""
        context_length = self.model.context_length
        return None if context_length is None else context_length - self.start.shape[1] + 1

    def prefill(self) -> StepLogits:
        """Read the prompt and return the logits after each of its tokens, [batch, prompt, vocab]."""
        return self.step(self.start)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        output = self.model.decode(
            tokens, self.encoded, source_token_mask=self.source_token_mask, cache=self.cache, last=tokens.shape[1]
        )
        assert output.logits is not None
        return output.logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        self.cache.select(rows)
        self.encoded = self.encoded.index_select(0, rows)
        if self.source_token_mask is not None:
            self.source_token_mask = self.source_token_mask.index_select(0, rows)

    def remove_last(self, count: int) -> None:
        self.cache.truncate(self.cache.length - count)


class RecurrentDecoder(IncrementalDecoder):
    """Decodes a recurrent encoder-decoder: its past is one state that is passed from step to step."""

    def __init__(self, model: Any, sources: list[list[int]]) -> None:
        super().__init__(warn_about_context)
        tokens, source_token_mask = pad_tokens(sources, model.device)
        self.model = model
        self.state: Any = None
        self.encoded = model.encode(tokens, source_token_mask=source_token_mask)
        self.start = torch.full((len(sources), 1), model.start_token, device=tokens.device)

    def prefill(self) -> StepLogits:
        return self.step(self.start)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        logits: Tensor
        logits, self.state = self.model.decode(tokens, self.encoded, self.state)
        return logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        self.encoded = self.encoded.select(rows)
        if self.state is not None:
            self.state = self.state.select(rows)

    def remove_last(self, count: int) -> None:
        if count:  # a state cannot be rolled back
            raise ArgumentError("a recurrent model cannot remove tokens; speculative decoding needs another family")


def create_incremental_decoder(
    model: Model, prompts: list[list[int]], limit: int, report: Report = warn_about_context
) -> IncrementalDecoder:
    """Return the incremental decoder that fits a model's family."""
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
        if model.task != "continue":
            raise ArgumentError(
                f"this {model.family} model cannot continue a text: its task is to {model.task}; use jumok.run"
            )
        return CausalDecoder(model, prompts, limit, report)
    if model.is_recurrent:
        return RecurrentDecoder(model, prompts)
    if isinstance(model, EncoderDecoder):
        tokens, source_token_mask = pad_tokens(prompts, model.device)
        return CrossAttentionDecoder(model, tokens, limit, source_token_mask, report)
    raise ArgumentError(f"this {model.family} model has no decode() that generates tokens")


def create_single_decoder(
    model: Model, tokens: list[int], source: Tensor, limit: int, report: Report = warn_about_context
) -> IncrementalDecoder:
    """Return the decoder of one text, from its tokens or, if there are none, another source, such as an image."""
    with torch.inference_mode():
        if tokens:
            return create_incremental_decoder(model, [tokens], limit, report)
        if isinstance(model, EncoderDecoder):
            return CrossAttentionDecoder(model, source, limit, report=report)
    raise ArgumentError(f"this {model.family} model generates no text")


def find_end_tokens(model: Model, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Return the tokens that end a text: those of the tokenizer, and that of the model."""
    ends = frozenset() if tokenizer is None else frozenset(tokenizer.ends)
    return ends if model.end_token is None else ends | {model.end_token}


def pad_tokens(texts: list[list[int]], device: torch.device, *, left: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return token ids [batch, length], padded with 0 on the right or left, and the token mask: True = real token, or
    None if no text is padded, which is faster."""
    tokens, token_mask = pad_sequences(texts, 0, left=left)
    return tokens.to(device), None if bool(token_mask.all()) else token_mask.to(device)
