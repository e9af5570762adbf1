"""RNNSeq2Seq: an LSTM reads the source, another writes the target, and attention is how the second sees the first.

    source -> embedding -> LSTM (both ways) -> states, and the last one: the summary
    summary -> bridge -> the decoder's first state
    target -> embedding -> LSTM, a step at a time, looking at the states -> readout -> logits

attention says how the decoder looks:
    none            it does not: the summary, one vector, is all it has of the source (Sutskever et al. 2014)
    bahdanau        before each step the state so far looks, and what it saw goes into the step; scores are
                    v^T tanh(W state + U source), the readout a maxout of state, context and token
                    (Bahdanau et al. 2014)
    luong_dot, luong_general, luong_concat
                    after each step the new state looks, and tanh(W [context; state]) gives the logits; input_feeding
                    also hands that vector to the next step (Luong et al. 2015)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.attention import mask, score
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import RecurrentEncoder, StateAttention, make_lstm
from jumok.layers.embedding import make_embedding

from .config import Config
from .model import Model, Output, check_tokens, token_logits

ATTENTIONS = ("none", "bahdanau", "luong_dot", "luong_general", "luong_concat")


@dataclass(frozen=True)
class RNNSeq2SeqConfig(Config):
    """The defaults are a small translator with Bahdanau's attention."""

    family: ClassVar[str] = "rnn_seq2seq"

    vocabulary: int = integer(10_000, "how many tokens the source has")
    target_vocabulary: int | None = optional(integer(1, "how many tokens the target has; None = as many as the source"))
    embedding_width: int = integer(256, "width of an embedded token")
    width: int = integer(512, "width of a decoder state")
    encoder_width: int | None = optional(
        integer(1, "width of an encoder state, both directions together; None = width")
    )
    layers: int = integer(1, "how many LSTM layers the encoder has, and the decoder")
    bidirectional: bool = flag(True, "the encoder reads both ways")
    attention: str = choice("bahdanau", ATTENTIONS, "how the decoder looks at the source")
    attention_width: int | None = optional(
        integer(1, "width inside the tanh of bahdanau and luong_concat; None = width")
    )
    input_feeding: bool = flag(False, "luong: what a step read out goes into the next step")
    tied: bool = flag(False, "the target embedding is also the output map")
    start: int = integer(1, "the token a target begins with", least=0)
    end: int = integer(2, "the token a text ends with", least=0)
    pad: int = integer(0, "the token that fills up a batch", least=0)
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    @property
    def target_vocabulary_size(self) -> int:
        """How many tokens the target has."""
        return self.target_vocabulary or self.vocabulary

    @property
    def source_width(self) -> int:
        """Width of an encoder state."""
        return self.width if self.encoder_width is None else self.encoder_width

    def check(self) -> None:
        if self.bidirectional and self.source_width % 2:
            raise ArgumentError(
                f"the encoder's two directions share {self.source_width} numbers a state: the width must be even"
            )
        if self.attention == "luong_dot" and self.source_width != self.width:
            raise ArgumentError(
                f"luong_dot multiplies decoder states ({self.width} wide) and encoder states ({self.source_width} "
                "wide) number by number: make the widths equal, or use luong_general"
            )
        if self.input_feeding and not self.attention.startswith("luong"):
            raise ArgumentError(f"input_feeding belongs to luong's attention, not to {self.attention!r}")
        if self.tied and self.embedding_width != self.width:
            raise ArgumentError(
                f"a tied output reads vectors of embedding_width {self.embedding_width}, but width is {self.width}; "
                "make them equal, or do not tie"
            )
        target = self.target_vocabulary_size
        for name, tokens in (("start", target), ("end", target), ("pad", min(target, self.vocabulary))):
            if getattr(self, name) >= tokens:
                raise ArgumentError(f"{name} is token {getattr(self, name)}, but there are {tokens} tokens")


@dataclass(frozen=True)
class Encoded:
    """What the encoder hands on. ``summary`` is its last state: all that a decoder without attention sees."""

    states: Float[Tensor, "batch source source_width"]
    summary: Float[Tensor, "batch source_width"]
    token_mask: Bool[Tensor, "batch source"] | None = None

    def select(self, rows: Int[Tensor, " rows"]) -> Encoded:
        """These batch rows, in this order, as beam search needs them."""
        token_mask = None if self.token_mask is None else self.token_mask[rows]
        return Encoded(self.states[rows], self.summary[rows], token_mask)


@dataclass(frozen=True)
class State:
    """Where the decoder stands after some tokens."""

    hidden: Float[Tensor, "layer batch width"]
    memory: Float[Tensor, "layer batch width"]  # the LSTM's cell
    fed: Float[Tensor, "batch width"] | None  # what the last step read out, under input feeding
    seen: int  # tokens so far

    def select(self, rows: Int[Tensor, " rows"]) -> State:
        """These batch rows, in this order, as beam search needs them."""
        fed = None if self.fed is None else self.fed[rows]
        return State(self.hidden[:, rows], self.memory[:, rows], fed, self.seen)


class RNNSeq2Seq(Model):
    """``model(source, target).logits`` is [batch, target, target tokens]; target = the decoder's inputs."""

    family = "rnn_seq2seq"
    config_class = RNNSeq2SeqConfig
    config: RNNSeq2SeqConfig
    reads = "text"
    task = "translate"
    answers = "text"
    is_encoder_decoder = True

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
        self.cross = _attention(config)
        # what goes into a step beside the token
        beside = source_width if config.attention == "bahdanau" else width if config.input_feeding else 0
        self.decoder = make_lstm(embedding_width + beside, width, config.layers, dropout=config.dropout)
        self.readout = _readout(config)
        self.dropout = nn.Dropout(config.dropout)
        self.output = None if config.tied else nn.Linear(width, config.target_vocabulary_size, bias=False)
        self.finish()

    @property
    def start_token(self) -> int:
        """The token that every target begins with."""
        return self.config.start

    @property
    def end_token(self) -> int:
        """The token that ends a target."""
        return self.config.end

    def initialise(self) -> None:
        # Luong et al. 2015: uniform in [-0.1, 0.1], for every kind, so that they can be compared. (Bahdanau et al. draw
        # with deviation 0.01 and v = 0, meant for Adadelta: with Adam that learns to reverse far later.)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        *,
        source_token_mask: Bool[Tensor, "batch key"] | None = None,
        weights: bool = False,
    ) -> Output:
        """source_token_mask: True = a real token; on either side. Right padding of the target needs no mask: no
        step sees a later one.
        """
        encoded = self.encode(source, source_token_mask=source_token_mask)
        hidden, found, _ = self._decoded(target, encoded, None, weights)
        return Output(self._logits(hidden), hidden, {"cross": (torch.cat(found, 2),)} if weights else None)

    def encode(
        self, source: Int[Tensor, "batch source"], *, source_token_mask: Bool[Tensor, "batch key"] | None = None
    ) -> Encoded:
        check_tokens(source, self.config.vocabulary)
        states, summary = self.encoder(self.dropout(self.source_embedding(source)), source_token_mask)
        return Encoded(states, summary, source_token_mask)

    def decode(
        self, target: Int[Tensor, "batch target"], encoded: Encoded, state: State | None = None
    ) -> tuple[Float[Tensor, "batch target vocab"], State]:
        """The logits after each new token, and the state to go on from; without a state it is the beginning."""
        hidden, _, state = self._decoded(target, encoded, state, False)
        return self._logits(hidden), state

    def first_state(self, encoded: Encoded) -> State:
        """The state before the first token: made from the summary alone."""
        made = self.bridge(encoded.summary).unflatten(-1, (2, self.config.layers, self.config.width))
        hidden, memory = made.movedim(0, 2).contiguous()  # each layer batch width
        fed = torch.zeros_like(hidden[0]) if self.config.input_feeding else None
        return State(hidden.tanh(), memory, fed, 0)

    def _decoded(
        self, target: Tensor, encoded: Encoded, state: State | None, weights: bool
    ) -> tuple[Float[Tensor, "batch target width"], list[Tensor], State]:
        check_tokens(target, self.config.target_vocabulary_size)
        if weights and self.cross is None:
            raise ArgumentError('attention="none" has no weights; choose another attention, or ask for no weights')
        if state is None:
            state = self.first_state(encoded)
        embedded = self.dropout(self.target_embedding(target))
        # Where a step needs what the last one saw, tokens go one by one; else the LSTM steps through them by itself,
        # and all its states look at once.
        stepwise = self.config.attention == "bahdanau" or self.config.input_feeding
        parts: list[Tensor] = []
        found: list[Tensor] = []
        for piece in embedded.split(1 if stepwise else target.shape[1], 1):
            if self.checkpointing and torch.is_grad_enabled():
                answer = checkpoint(self._piece, piece, encoded, state, weights, use_reentrant=False)
            else:
                answer = self._piece(piece, encoded, state, weights)
            hidden, seen, state = answer
            parts.append(hidden)
            if seen is not None:
                found.append(seen)
        return torch.cat(parts, 1), found, state

    def _piece(
        self, embedded: Float[Tensor, "batch piece embedding_width"], encoded: Encoded, state: State, weights: bool
    ) -> tuple[Float[Tensor, "batch piece width"], Float[Tensor, "batch 1 piece source"] | None, State]:
        """Some tokens further: what is read out, the weights, and the new state."""
        found, who = None, None if encoded.token_mask is None else mask.padding(encoded.token_mask)
        if self.config.attention == "bahdanau":
            context, found = self._look(state.hidden[-1][:, None], encoded, who, state.seen, weights)
            hidden, last = self.decoder(torch.cat([embedded, context], -1), (state.hidden, state.memory))
            pairs = self.readout(torch.cat([hidden, context, embedded], -1)).unflatten(-1, (-1, 2))
            read = pairs.amax(-1)  # maxout (Goodfellow et al. 2013)
        else:
            inputs = embedded if state.fed is None else torch.cat([embedded, state.fed[:, None]], -1)
            hidden, last = self.decoder(inputs, (state.hidden, state.memory))
            read = hidden
            if self.cross is not None:
                context, found = self._look(hidden, encoded, who, state.seen, weights)
                read = self.readout(torch.cat([context, hidden], -1)).tanh()
        fed = None if state.fed is None else read[:, -1]
        after = State(last[0], last[1], fed, state.seen + embedded.shape[1])
        return self.dropout(read), found, after

    def _look(
        self, states: Tensor, encoded: Encoded, who: Mask | None, seen: int, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        assert self.cross is not None
        context, found = self.cross(states, encoded.states, mask=who, query_offset=seen, weights=weights)
        return context, found

    def _logits(self, hidden: Tensor) -> Tensor:
        return token_logits(hidden, self.output, self.target_embedding)


def _attention(config: RNNSeq2SeqConfig) -> StateAttention | None:
    query, key, inner = config.width, config.source_width, config.attention_width or config.width
    if config.attention == "none":
        return None
    if config.attention == "bahdanau":
        return StateAttention(score.Additive(query, key, inner))
    if config.attention == "luong_dot":
        return StateAttention(score.Dot())
    if config.attention == "luong_general":
        return StateAttention(score.General(query, key))
    return StateAttention(score.Concat(query, key, inner))


def _readout(config: RNNSeq2SeqConfig) -> nn.Module:
    """What turns a state, and what it saw, into the vector that logits are read from."""
    if config.attention == "none":
        return nn.Identity()
    if config.attention == "bahdanau":
        return nn.Linear(config.width + config.source_width + config.embedding_width, 2 * config.width)
    return nn.Linear(config.source_width + config.width, config.width, bias=False)
