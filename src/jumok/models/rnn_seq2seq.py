"""RNNSeq2Seq: an LSTM encoder and an LSTM decoder, connected by attention.

    source -> embedding -> LSTM (both directions) -> states, and the last one: the summary
    summary -> bridge -> the decoder's first state
    target -> embedding -> LSTM, one step at a time, attending to the states -> readout -> logits

attention decides how the decoder attends:
    none            no attention: the summary vector is all that the decoder gets of the source (Sutskever et al. 2014)
    bahdanau        before each step the previous state attends, and the context is an input of the step; scores are
                    v^T tanh(W state + U source), the readout a maxout of state, context and token
                    (Bahdanau et al. 2014)
    luong_dot, luong_general, luong_concat
                    after each step the new state attends, and tanh(W [context; state]) gives the logits; input_feeding
                    also passes that vector to the next step (Luong et al. 2015)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.attention import score
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import RecurrentEncoder, StateAttention, make_lstm
from jumok.layers.token_inputs import (
    build_padding_mask,
    check_token_mask,
    check_tokens,
    compute_token_logits,
    make_embedding,
)
from jumok.tap import has_listeners

from .config import Config
from .model import Model, Output

ATTENTIONS = ("none", "bahdanau", "luong_dot", "luong_general", "luong_concat")


@dataclass(frozen=True)
class RNNSeq2SeqConfig(Config):
    """The config of a recurrent encoder-decoder; the defaults are a small translator with Bahdanau's attention."""

    family: ClassVar[str] = "rnn_seq2seq"

    vocabulary: int = integer(10_000, "number of tokens of the source")
    target_vocabulary: int | None = optional(integer(1, "number of tokens of the target; None = as the source"))
    embedding_width: int = integer(256, "width of an embedded token")
    width: int = integer(512, "width of a decoder state")
    encoder_width: int | None = optional(
        integer(1, "width of an encoder state, both directions together; None = width")
    )
    layers: int = integer(1, "number of LSTM layers of the encoder, and of the decoder")
    bidirectional: bool = flag(True, "the encoder reads in both directions")
    attention: str = choice("bahdanau", ATTENTIONS, "how the decoder attends to the source")
    attention_width: int | None = optional(
        integer(1, "inner width of the scores of bahdanau and luong_concat; None = width")
    )
    attention_bias: bool = flag(False, "bahdanau: the scores have biases, as in many tutorials")
    input_feeding: bool = flag(False, "luong: the readout of a step is an input of the next step")
    tied: bool = flag(False, "the target embedding is also the output layer")
    start: int = integer(1, "the token that a target begins with", least=0)
    end: int = integer(2, "the token that ends a text", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    @property
    def target_vocabulary_size(self) -> int:
        """The number of tokens of the target."""
        return self.target_vocabulary or self.vocabulary

    @property
    def source_width(self) -> int:
        """The width of an encoder state."""
        return self.width if self.encoder_width is None else self.encoder_width

    def check(self) -> None:
        if self.bidirectional and self.source_width % 2:
            raise ArgumentError(f"a bidirectional encoder needs an even state width, not {self.source_width}")
        if self.attention == "luong_dot" and self.source_width != self.width:
            raise ArgumentError(
                f"luong_dot multiplies decoder states ({self.width} wide) and encoder states ({self.source_width} "
                "wide) elementwise: make the widths equal, or use luong_general"
            )
        if self.attention_bias and self.attention != "bahdanau":
            raise ArgumentError(f"attention_bias needs the attention bahdanau, not {self.attention!r}")
        if self.input_feeding and not self.attention.startswith("luong"):
            raise ArgumentError(f"input_feeding needs a luong attention, not {self.attention!r}")
        if self.tied and self.embedding_width != self.width:
            raise ArgumentError(
                f"a tied output reads vectors of embedding_width {self.embedding_width}, but width is {self.width}; "
                "make them equal, or set tied=False"
            )
        self.check_special_tokens(self.target_vocabulary_size, start=self.start, end=self.end)
        self.check_special_tokens(min(self.target_vocabulary_size, self.vocabulary), pad=self.pad)


@dataclass(frozen=True)
class Encoded:
    """The encoder's output."""

    states: Float[Tensor, "batch source source_width"]
    summary: Float[Tensor, "batch source_width"]  # the last state; a decoder without attention gets nothing else
    token_mask: Bool[Tensor, "batch source"] | None = None  # True = real token of the source; None = all are real

    def select(self, rows: Int[Tensor, " rows"]) -> Encoded:
        """Return some batch rows, in this order, as beam search needs."""
        token_mask = None if self.token_mask is None else self.token_mask[rows]
        return Encoded(self.states[rows], self.summary[rows], token_mask)


@dataclass(frozen=True)
class State:
    """The decoder's state after some tokens."""

    hidden: Float[Tensor, "layer batch width"]
    memory: Float[Tensor, "layer batch width"]
    readout: Float[Tensor, "batch width"] | None  # of the last step, with input feeding
    length: int

    def select(self, rows: Int[Tensor, " rows"]) -> State:
        """Return some batch rows, in this order, as beam search needs."""
        readout = None if self.readout is None else self.readout[rows]
        return State(self.hidden[:, rows], self.memory[:, rows], readout, self.length)


class RNNSeq2Seq(Model):
    """A recurrent encoder-decoder: ``model(source, target).logits`` is [batch, target, target vocabulary], at each
    position the logits of the next token.

    Args:
        config: Sizes and the kind of attention.
    """

    family = "rnn_seq2seq"
    config_class = RNNSeq2SeqConfig
    config: RNNSeq2SeqConfig
    reads = "text"
    task = "translate"
    is_encoder_decoder = True
    is_recurrent = True

    def __init__(self, config: RNNSeq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        width, source_width, embedding_width = config.width, config.source_width, config.embedding_width
        self.source_embedding = make_embedding(config.vocabulary, embedding_width)
        self.target_embedding = make_embedding(config.target_vocabulary_size, embedding_width)
        self.encoder = RecurrentEncoder(
            embedding_width, source_width, config.layers, bidirectional=config.bidirectional, dropout=config.dropout
        )
        self.bridge = nn.Linear(source_width, 2 * config.layers * width)  # hidden and memory of every decoder layer
        self.cross = _build_attention(config)
        # the width of a step's input in addition to the token's embedding
        context_width = source_width if config.attention == "bahdanau" else width if config.input_feeding else 0
        self.decoder = make_lstm(embedding_width + context_width, width, config.layers, dropout=config.dropout)
        self.readout = _build_readout(config)
        self.dropout = nn.Dropout(config.dropout)
        self.output = None if config.tied else nn.Linear(width, config.target_vocabulary_size, bias=False)
        self.finish_construction()

    def initialise(self) -> None:
        """Initialise the parameters as in Luong et al. 2015, uniformly in [-0.1, 0.1], for every kind of attention, so
        that they can be compared. (Bahdanau et al. use deviation 0.01 and v = 0 with Adadelta; with Adam, that learns
        to reverse a sequence much later.)"""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        *,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
    ) -> Output:
        """Return logits and hidden vectors; the call ``model(source, target, weights=True)`` returns the weights on the
        source too, as a dict with "cross".

        Args:
            source: Token ids of the source.
            target: The decoder's input, beginning with ``config.start``. Padding on the right needs no mask, because no
                step reads a later token.
            source_token_mask: True = real source token, on either side.
        """
        encoded = self.encode(source, source_token_mask=source_token_mask)
        hidden, _ = self._run_decoder(target, encoded, None)
        return Output(compute_token_logits(hidden, self.output, self.target_embedding), hidden)

    def arrange_weights(self, calls: list[tuple[str, Tensor]]) -> dict[str, tuple[Tensor, ...]]:
        return {"cross": (torch.cat([weights for _, weights in calls], 2),)}  # a call attends from one or all steps

    def encode(
        self, source: Int[Tensor, "batch source"], *, source_token_mask: Bool[Tensor, "batch key"] | None = None
    ) -> Encoded:
        """Return the encoder's output.

        Args:
            source: Token ids of the source.
            source_token_mask: True = real source token, on either side.
        """
        check_tokens(source, self.config.vocabulary)
        check_token_mask(source, source_token_mask)
        states, summary = self.encoder(self.dropout(self.source_embedding(source)), source_token_mask)
        return Encoded(states, summary, source_token_mask)

    def decode(
        self, target: Int[Tensor, "batch target"], encoded: Encoded, state: State | None = None
    ) -> tuple[Float[Tensor, "batch target vocab"], State]:
        """Return the logits after each new token, and the state to continue from.

        Args:
            target: The new tokens.
            encoded: The encoder's output.
            state: The state after the earlier tokens; None at the beginning.
        """
        hidden, state = self._run_decoder(target, encoded, state)
        return compute_token_logits(hidden, self.output, self.target_embedding), state

    def compute_first_state(self, encoded: Encoded) -> State:
        """Return the decoder's state before the first token, which depends only on the summary.

        Args:
            encoded: The encoder's output.
        """
        states = self.bridge(encoded.summary).unflatten(-1, (2, self.config.layers, self.config.width))
        hidden, memory = states.movedim(0, 2).contiguous()  # each [layer, batch, width]
        readout = torch.zeros_like(hidden[0]) if self.config.input_feeding else None
        return State(hidden.tanh(), memory, readout, 0)

    def _run_decoder(
        self, target: Tensor, encoded: Encoded, state: State | None
    ) -> tuple[Float[Tensor, "batch target width"], State]:
        """Return the readouts, and the state after the target."""
        check_tokens(target, self.config.target_vocabulary_size)
        if state is None:
            state = self.compute_first_state(encoded)
        embedded = self.dropout(self.target_embedding(target))
        # If a step needs the context or readout of the step before, tokens are processed one by one. Otherwise the LSTM
        # runs over all tokens, and then all its states attend at once.
        stepwise = self.config.attention == "bahdanau" or self.config.input_feeding
        recomputes = self.checkpointing and torch.is_grad_enabled() and not has_listeners()
        readouts: list[Tensor] = []
        for tokens in embedded.split(1 if stepwise else target.shape[1], 1):
            if recomputes:
                readout, state = checkpoint(self._run_step, tokens, encoded, state, use_reentrant=False)
            else:
                readout, state = self._run_step(tokens, encoded, state)
            readouts.append(readout)
        return torch.cat(readouts, 1), state

    def _run_step(
        self, embedded: Float[Tensor, "batch piece embedding_width"], encoded: Encoded, state: State
    ) -> tuple[Float[Tensor, "batch piece width"], State]:
        """Decode some tokens: return the readout and the new state."""
        if self.config.attention == "bahdanau":
            context = self._attend(state.hidden[-1][:, None], encoded, state.length)
            hidden, last = self.decoder(torch.cat([embedded, context], -1), (state.hidden, state.memory))
            pairs = self.readout(torch.cat([hidden, context, embedded], -1)).unflatten(-1, (-1, 2))
            readout = pairs.amax(-1)  # maxout (Goodfellow et al. 2013)
        else:
            inputs = embedded if state.readout is None else torch.cat([embedded, state.readout[:, None]], -1)
            hidden, last = self.decoder(inputs, (state.hidden, state.memory))
            readout = hidden
            if self.cross is not None:
                context = self._attend(hidden, encoded, state.length)
                readout = self.readout(torch.cat([context, hidden], -1)).tanh()
        fed = None if state.readout is None else readout[:, -1]
        return self.dropout(readout), State(last[0], last[1], fed, state.length + embedded.shape[1])

    def _attend(self, states: Tensor, encoded: Encoded, query_offset: int) -> Tensor:
        """Return the context of each decoder state."""
        assert self.cross is not None
        source_mask = build_padding_mask(encoded.token_mask, encoded.states.shape[1])
        context: Tensor = self.cross(states, encoded.states, mask=source_mask, query_offset=query_offset)
        return context


def _build_attention(config: RNNSeq2SeqConfig) -> StateAttention | None:
    query, key, inner = config.width, config.source_width, config.attention_width or config.width
    if config.attention == "none":
        return None
    if config.attention == "bahdanau":
        return StateAttention(score.Additive(query, key, inner, bias=config.attention_bias))
    if config.attention == "luong_dot":
        return StateAttention(score.Dot())
    if config.attention == "luong_general":
        return StateAttention(score.General(query, key))
    return StateAttention(score.Concat(query, key, inner))


def _build_readout(config: RNNSeq2SeqConfig) -> nn.Module:
    """Return the layer from state and context to the vector that the output layer reads."""
    if config.attention == "none":
        return nn.Identity()
    if config.attention == "bahdanau":
        return nn.Linear(config.width + config.source_width + config.embedding_width, 2 * config.width)
    return nn.Linear(config.source_width + config.width, config.width, bias=False)
