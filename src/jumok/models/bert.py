"""BERT: a text in, a vector for each token out, each token having seen all others. RoBERTa, DistilBERT, MiniLM.

    tokens -> embedding + learned positions (+ segments) -> norm -> blocks: attention, norm, feed-forward, norm
           -> hidden (-> inner map, norm, every token's score: what stood at a masked place)
                     (-> the first token's, inner map, every class's score)

BERT (Devlin et al. 2018) tells two sentences apart by segments. RoBERTa (Liu et al. 2019) does not, and its positions
begin behind that of its padding token. DistilBERT (Sanh et al. 2019) and MiniLM (Wang et al. 2020) are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import MultiHead, mask
from jumok.attention.grid import Positions
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, LearnedPositions, MaskedOutput
from jumok.layers.embedding import make_embedding
from jumok.layers.feedforward import get_activation

from .config import Config
from .model import Model, Output, check_tokens, initialise_linear, normal_

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True)
class BERTConfig(Config):
    """The defaults are BERT base, uncased."""

    family: ClassVar[str] = "bert"

    vocabulary: int = integer(30522, "how many tokens there are")
    length: int = integer(512, "the longest text")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "how many blocks")
    heads: int = integer(12, "how many attention heads")
    hidden: int = integer(3072, "width inside the feed-forward")
    segments: int = integer(2, "how many segments a token can be of; 0 = none", least=0)
    offset: int = integer(0, "the position of the first token", least=0)
    padding_id: int | None = optional(
        integer(0, "a token that takes no position (RoBERTa); None = each has one", least=0)
    )
    epsilon: float = real(1e-12, "added inside the norms' root")
    activation: str = choice("gelu", ACTIVATIONS, "of the feed-forward")
    head: str = choice(
        "none", ("none", "mlm", "classes"), "hidden vectors alone, or logits of masked tokens or of classes too"
    )
    head_activation: str = choice("gelu", (*ACTIVATIONS, "tanh"), "of the head")
    classes: int = integer(2, "how many classes the head tells apart")
    answer: str = choice(
        "one", ("one", "several", "number"), "one class holds, or each may by itself, or they are numbers"
    )
    tied: bool = flag(True, "the embedding is also the head's output map")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")
        if self.padding_id is not None and not self.offset:
            raise ArgumentError("with a padding_id the offset must be at least 1: padding stands right before it")
        if self.head == "mlm" and self.head_activation == "tanh":
            raise ArgumentError('the activation "tanh" is for a head of classes; give one for masked tokens another')


class BERT(Model):
    """``model(tokens).hidden`` is [batch, length, width]; with ``head="mlm"`` there is ``.logits``, [batch, length,
    vocabulary], as well, and with ``head="classes"`` [batch, classes]."""

    family = "bert"
    config_class = BERTConfig
    config: BERTConfig
    reads = "text"
    task = "embed"
    answers = "vector"

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "mlm":
            self.task, self.answers = "fill", "tokens"
        elif config.head == "classes" and config.answer == "number":
            self.task, self.answers = "score", "numbers"
        elif config.head == "classes":
            self.task, self.answers = "classify", "classes"
            self.independent_classes = config.answer == "several"
        width, epsilon = config.width, config.epsilon
        self.embedding = make_embedding(config.vocabulary, width)
        self.positions = LearnedPositions(config.offset + config.length, width)
        self.segments = make_embedding(config.segments, width) if config.segments else None
        self.norm = LayerNorm(width, eps=epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.head = _head(config)
        self.finish()

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self.config.length

    @property
    def class_count(self) -> int | None:
        """The number of classes; None without a classification head."""
        return self.config.classes if self.config.head == "classes" else None

    def initialise(self) -> None:
        initialise_linear(self, lambda parameter: normal_(parameter, 0.02))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        segments: Int[Tensor, "batch key"] | None = None,
        weights: bool = False,
    ) -> Output:
        """token_mask: True = a real token, on either side; without it nothing is masked, whatever the tokens are.
        segments: of which segment each token is; by default all of the first.
        """
        check_tokens(tokens, self.config.vocabulary)
        check_padding(tokens, token_mask)
        hidden = self.embedding(tokens) + self.positions(self._places(tokens, token_mask))
        if self.segments is not None:
            hidden = hidden + (self.segments.weight[0] if segments is None else self._of_segments(tokens, segments))
        elif segments is not None:
            raise ArgumentError("this model has no segments; leave them out")
        hidden, found = self.through(
            self.blocks,
            self.dropout(self.norm(hidden)),
            mask=None if token_mask is None else mask.padding(token_mask),
            weights=weights,
        )
        logits = None
        if isinstance(self.head, MaskedOutput):
            logits = self.head(hidden, self.embedding.weight)
        elif self.head is not None:
            logits = self.head(first_of(hidden, token_mask))
        return Output(logits, hidden, tuple(found) if weights else None)

    def _places(self, tokens: Tensor, token_mask: Tensor | None) -> Positions:
        """Counted over the tokens that take a position, so that a text stands where it would stand alone."""
        first, counted = self.config.offset, token_mask
        if self.config.padding_id is not None:
            takes = tokens != self.config.padding_id
            counted = takes if counted is None else takes & counted
        if counted is None:
            return range(first, first + tokens.shape[1])
        # RoBERTa's padding token stands right before the first position; elsewhere nobody sees where padding stands
        return (counted.long().cumsum(-1) * counted + first - 1).clamp_min(0)

    def _of_segments(self, tokens: Tensor, segments: Tensor) -> Tensor:
        assert self.segments is not None
        if segments.shape != tokens.shape:
            raise ShapeError(f"segments are {list(segments.shape)}, but the tokens {list(tokens.shape)}")
        lowest, highest = int(segments.min()), int(segments.max())
        if lowest < 0 or highest >= self.config.segments:
            wrong = lowest if lowest < 0 else highest
            raise ArgumentError(f"segment {wrong} is unknown: this model has 0 to {self.config.segments - 1}")
        embedded: Tensor = self.segments(segments)
        return embedded


def check_padding(tokens: Tensor, token_mask: Tensor | None) -> None:
    """A truth value for each token; a sentence otherwise."""
    if token_mask is not None and token_mask.shape != tokens.shape:
        raise ShapeError(f"token_mask is {list(token_mask.shape)}, but the tokens {list(tokens.shape)}")


def first_of(
    hidden: Float[Tensor, "batch length width"], token_mask: Bool[Tensor, "batch length"] | None
) -> Float[Tensor, "batch width"]:
    """The first real token's vector, wherever it stands."""
    if token_mask is None:
        return hidden[:, 0]
    place = token_mask.long().argmax(-1)[:, None, None]
    return hidden.gather(1, place.expand(-1, -1, hidden.shape[-1]))[:, 0]


class ClassOutput(nn.Module):
    """inner map, activation, then every class's score: BERT's and RoBERTa's with "tanh", DistilBERT's with "relu"."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.width)
        self.activation = torch.tanh if config.head_activation == "tanh" else get_activation(config.head_activation)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.width, config.classes)

    def forward(self, first: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        logits: Tensor = self.output(self.dropout(self.activation(self.inner(first))))
        return logits


def _head(config: BERTConfig) -> nn.Module | None:
    if config.head == "none":
        return None
    if config.head == "classes":
        return ClassOutput(config)
    return MaskedOutput(
        config.width, config.vocabulary, config.head_activation, epsilon=config.epsilon, tied=config.tied
    )


def _block(config: BERTConfig) -> EncoderBlock:
    return EncoderBlock(
        MultiHead(config.width, config.heads, dropout=config.dropout),
        FeedForward(config.width, config.hidden, config.activation),
        norm=lambda: LayerNorm(config.width, eps=config.epsilon),
        order="post",
        dropout=config.dropout,
    )
