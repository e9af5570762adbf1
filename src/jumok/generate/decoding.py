"""Incremental decoders: feed a model new tokens step by step and read the logits; the past stays in a cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from jumok.attention import Cache
from jumok.errors import ArgumentError
from jumok.models import Model, RNNSeq2Seq
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn_seq2seq import State

from .causal_decoder import CausalDecoder
from .incremental_decoder import IncrementalDecoder, Report, StepLogits, warn_about_context

DEFAULT_LIMIT = 64  # new tokens, where the caller of a decoding loop gives no limit


class CrossAttentionDecoder(IncrementalDecoder):
    """Decodes an encoder-decoder: the source is encoded once, and the target grows from the start token.

    Args:
        source: The encoder's input: token ids [batch, source], images, regions or spectrograms.
        prompt: The tokens that every target begins with; the model's start token by default.
        is_encoded: ``source`` is the output of the encoder, not its input.
    """

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
            tokens,
            self.encoded,
            source_token_mask=self.source_token_mask,
            cache=self.cache,
            last=tokens.shape[1],
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

    def __init__(self, model: RNNSeq2Seq, sources: list[list[int]]) -> None:
        super().__init__(warn_about_context)
        tokens, source_token_mask = pad_right(sources, model.device)
        self.model = model
        self.state: State | None = None
        self.encoded = model.encode(tokens, source_token_mask=source_token_mask)
        self.start = torch.full((len(sources), 1), model.config.start, device=tokens.device)

    def prefill(self) -> StepLogits:
        return self.step(self.start)

    def step(self, tokens: Int[Tensor, "batch step"]) -> StepLogits:
        logits, self.state = self.model.decode(tokens, self.encoded, self.state)
        return logits

    def select_rows(self, rows: Int[Tensor, " selected"]) -> None:
        self.encoded = self.encoded.select(rows)
        if self.state is not None:
            self.state = self.state.select(rows)

    def remove_last(self, count: int) -> None:
        """Raise ArgumentError if ``count`` is not 0: a recurrent state cannot be rolled back."""
        if count:
            raise ArgumentError("a recurrent model cannot remove tokens; speculative decoding needs another family")


def create_incremental_decoder(
    model: Model, prompts: list[list[int]], limit: int, report: Report = warn_about_context
) -> IncrementalDecoder:
    """Return the incremental decoder that fits a model's family.

    Args:
        report: Receives one sentence when the context length changes what is read or written; by default a
            ``ContextWarning``.
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
        if model.task != "continue":
            raise ArgumentError(
                f"this {model.family} model cannot continue a text: its task is to {model.task}; use jumok.run"
            )
        return CausalDecoder(model, prompts, limit, report)
    if isinstance(model, RNNSeq2Seq):
        return RecurrentDecoder(model, prompts)
    if isinstance(model, EncoderDecoder):
        tokens, source_token_mask = pad_right(prompts, model.device)
        return CrossAttentionDecoder(model, tokens, limit, source_token_mask, report)
    raise ArgumentError(f"this {model.family} model has no decode() that generates tokens")


def pad_right(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return token ids [batch, length], padded on the right with 0, and their mask."""
    longest = max(len(text) for text in texts)
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=device)
    if all(len(text) == longest for text in texts):
        return tokens, None
    real = [[True] * len(text) + [False] * (longest - len(text)) for text in texts]
    return tokens, torch.tensor(real, device=device)
