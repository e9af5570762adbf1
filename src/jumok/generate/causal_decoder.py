"""Decode a model that continues its prompt. A text longer than the context length is read through a sliding window."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.attention import Cache
from jumok.models import Model
from jumok.models.model import Output

from .incremental_decoder import IncrementalDecoder, Report, StepLogits, warn_about_context

SLIDE_DIVISOR = 4  # a full window drops 1/4 of the context: a smaller part would be recomputed more often


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
        tokens, self.token_mask = pad_left(windows, self.model.device)
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
        span = f"{context_length:,}" if fewest == context_length else f"{fewest:,} to {context_length:,}"
        shown = f"the last {span} tokens"
        longest = max(len(prompt) for prompt in self.prompts)
        if longest > context_length:
            message = f"the prompt has {longest:,} tokens, but this model reads at most {context_length:,}: it reads"
        else:
            message = f"the text exceeds the {context_length:,} tokens that this model reads: from there on it reads"
        self.report_once(f"{message} only {shown}")


def pad_left(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return token ids [batch, length], padded on the left with 0, and their mask."""
    longest = max(len(text) for text in texts)
    tokens = torch.tensor([[0] * (longest - len(text)) + text for text in texts], device=device)
    if all(len(text) == longest for text in texts):
        return tokens, None
    real = [[False] * (longest - len(text)) + [True] * len(text) for text in texts]
    return tokens, torch.tensor(real, device=device)
