"""BERT: a bidirectional encoder, text in, one vector per token out. Also RoBERTa, DistilBERT and MiniLM.

    tokens -> embedding + learned positions (+ segments) -> norm -> blocks: attention, norm, feed-forward, norm
           -> hidden (-> linear, norm, logits of masked tokens)
                     (-> first token, linear, logits of classes)

BERT (Devlin et al. 2018) marks two sentences with segments. RoBERTa (Liu et al. 2019) does not, and its positions start
after the position of its padding token. Without ``attention_bias``, with ``final_norm`` and without segments it is the
encoder of many tutorials (``simple_transformer_config``). DistilBERT (Sanh et al. 2019) and MiniLM (Wang et al. 2020)
are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.attention.grid import Positions
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import FeedForward, LayerNorm, LearnedPositions, MaskedOutput
from jumok.layers.feedforward import ACTIVATIONS, get_activation
from jumok.layers.token_inputs import (
    build_padding_mask,
    check_token_mask,
    check_tokens,
    make_embedding,
    select_first_token,
)

from .config import Config, declare_activation
from .encoder_decoder import build_encoder
from .model import Model, Output, initialise_linear_layers, initialise_normal


@dataclass(frozen=True)
class BERTConfig(Config):
    """The config of a BERT; the defaults are BERT base, uncased."""

    family: ClassVar[str] = "bert"

    vocabulary: int = integer(30522, "number of tokens")
    length: int = integer(512, "the longest text, in tokens")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "number of blocks")
    heads: int = integer(12, "number of attention heads")
    hidden: int = integer(3072, "inner width of the feed-forward network")
    segments: int = integer(2, "number of segments (token types); 0 = no segment embedding", least=0)
    offset: int = integer(0, "the position of the first token", least=0)
    padding_id: int | None = optional(
        integer(0, "the token that has no position (RoBERTa); None = every token has one", least=0)
    )
    epsilon: float = real(1e-12, "added to the variance in the norms")
    activation: str = declare_activation("gelu")
    head: str = choice("none", ("none", "mlm", "classes"), "no head, logits of masked tokens, or logits of classes")
    head_activation: str = choice("gelu", (*ACTIVATIONS, "tanh"), "activation of the head")
    classes: int = integer(2, "number of classes of the head")
    answer: str = choice(
        "one", ("one", "several", "number"), "exactly one class, several independent classes, or numbers (regression)"
    )
    tied: bool = flag(True, "the embedding is also the output layer of the head")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)
    attention_bias: bool = flag(True, "biases on query, key, value and the output of the attention")
    final_norm: bool = flag(False, "the norm outside the blocks is behind the last one instead of on the embeddings")

    def check(self) -> None:
        self.check_heads(self.width, self.heads)
        if self.padding_id is not None and not self.offset:
            raise ArgumentError("with a padding_id the offset must be at least 1: padding has position offset - 1")
        if self.head == "mlm" and self.head_activation == "tanh":
            raise ArgumentError('head_activation "tanh" is only for the head "classes"; choose another for "mlm"')


def simple_transformer_config(**fields: object) -> BERTConfig:
    """Return the config of the encoder that tutorials call SimpleTransformer: embeddings of 10,000 tokens and of 5,000
    positions, 6 post-norm blocks of width 512 with 8 heads and a feed-forward network of 2,048, and a norm. With
    attentions without biases it has 26,583,040 parameters.

    Args:
        **fields: Other fields of the config, such as the vocabulary.
    """
    sizes: dict[str, object] = {"vocabulary": 10_000, "length": 5000, "width": 512, "layers": 6, "heads": 8}
    sizes |= {"hidden": 2048, "segments": 0, "activation": "relu", "epsilon": 1e-5, "dropout": 0.1}
    return BERTConfig.from_json({**sizes, "attention_bias": False, "final_norm": True, **fields})


# the config of a BERT, or of a family that is built on it and has the same settings, such as Long
EncoderConfig = BERTConfig | Any


class BERT(Model):
    """A bidirectional encoder: ``model(tokens).hidden`` is [batch, length, width]. With ``head="mlm"`` there is
    ``.logits``, [batch, length, vocabulary], as well, and with ``head="classes"`` [batch, classes].

    Args:
        config: Sizes and variants.
    """

    family = "bert"
    config_class = BERTConfig
    config: BERTConfig
    reads = "text"
    task = "embed"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "mlm":
            self.task = "fill"
        elif config.head == "classes" and config.answer == "number":
            self.task = "score"
        elif config.head == "classes":
            self.task = "classify"
            self.independent_classes = config.answer == "several"
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.offset + config.length, config.width)
        self.segments = make_embedding(config.segments, config.width) if config.segments else None
        self.norm = LayerNorm(config.width, eps=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)
        feedforward = partial(FeedForward, config.width, config.hidden, config.activation)
        settings = {"norm": partial(LayerNorm, config.width, eps=config.epsilon), "dropout": config.dropout}
        self.blocks = build_encoder(config.layers, self._build_attention, feedforward, order="post", **settings)
        self.head: nn.Module | None = None
        if config.head == "classes":
            self.head = ClassOutput(config)
        elif config.head == "mlm":
            sizes = (config.width, config.vocabulary, config.head_activation)
            self.head = MaskedOutput(*sizes, epsilon=config.epsilon, tied=config.tied)
        self.finish_construction()

    def initialise(self) -> None:
        """Initialise the parameters as BERT does: standard deviation 0.02."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        segments: Int[Tensor, "batch key"] | None = None,
        positions_to_score: Bool[Tensor, "batch length"] | None = None,
    ) -> Output:
        """Return hidden vectors and the head's logits; ``model(tokens, weights=True)`` returns the weights too.

        Args:
            tokens: Token ids.
            token_mask: True = real token, on either side; None = all are real, whatever their ids.
            segments: The segment of each token; by default all are in segment 0.
            positions_to_score: With a masked-language-model head, compute logits only where this is True; they are then
                [selected position, vocabulary] in row-major order. Training needs only the masked positions, and
                computing all logits takes almost half of a training step. None = logits of every position.

        Raises:
            ArgumentError: ``positions_to_score`` is given, but the model has no masked-language-model head.
        """
        check_tokens(tokens, self.config.vocabulary)
        check_token_mask(tokens, token_mask)
        hidden = self._encode(tokens, token_mask, segments)
        if isinstance(self.head, MaskedOutput):
            if positions_to_score is None:
                return Output(self.head(hidden, self.embedding.weight), hidden)
            return Output(self.head(hidden[positions_to_score][None], self.embedding.weight)[0], hidden)
        if positions_to_score is not None:
            raise ArgumentError(
                f'positions_to_score needs a masked-language-model head (head="mlm"); this model has head='
                f"{self.config.head!r}"
            )
        logits = None if self.head is None else self.head(select_first_token(hidden, token_mask))
        return Output(logits, hidden)

    def compute_logits(self, stream: Tensor) -> Tensor | None:
        if not isinstance(self.head, MaskedOutput):
            return None
        logits: Tensor = self.head(self.norm(stream) if self.config.final_norm else stream, self.embedding.weight)
        return logits

    def _encode(self, tokens: Tensor, token_mask: Tensor | None, segments: Tensor | None) -> Tensor:
        hidden = self.embedding(tokens) + self.positions(self._compute_positions(tokens, token_mask))
        if self.segments is not None:
            hidden = hidden + self._embed_segments(self.segments, tokens, segments)
        elif segments is not None:
            raise ArgumentError("this model has no segment embedding; omit segments")

        hidden = self.dropout(hidden if self.config.final_norm else self.norm(hidden))
        hidden = self._mix(hidden, token_mask)
        return self.norm(hidden) if self.config.final_norm else hidden

    def _mix(self, hidden: Tensor, token_mask: Tensor | None) -> Tensor:
        """Apply the blocks."""
        return self.run_blocks(self.blocks, hidden, mask=build_padding_mask(token_mask, hidden.shape[1]))

    def _build_attention(self) -> nn.Module:
        config = self.config
        return MultiHead(config.width, config.heads, bias=config.attention_bias, dropout=config.dropout)

    def _compute_positions(self, tokens: Tensor, token_mask: Tensor | None) -> Positions:
        """Count positions over the real tokens, so that a text has the same positions with and without padding."""
        first, counted = self.config.offset, token_mask
        if self.config.padding_id is not None:
            has_position = tokens != self.config.padding_id
            counted = has_position if counted is None else has_position & counted
        if counted is None:
            return range(first, first + tokens.shape[1])
        # RoBERTa gives its padding token the position before the first; in other models padding is masked anyway
        return (counted.long().cumsum(-1) * counted + first - 1).clamp_min(0)

    def _embed_segments(self, embedding: nn.Embedding, tokens: Tensor, segments: Tensor | None) -> Tensor:
        if segments is None:
            return embedding.weight[0]
        if segments.shape != tokens.shape:
            raise ShapeError(f"segments are {list(segments.shape)}, but the tokens are {list(tokens.shape)}")
        lowest, highest = int(segments.min()), int(segments.max())
        if lowest < 0 or highest >= self.config.segments:
            invalid = lowest if lowest < 0 else highest
            raise ArgumentError(f"segment {invalid} is out of range: this model has 0 to {self.config.segments - 1}")
        embedded: Tensor = embedding(segments)
        return embedded


class ClassOutput(nn.Module):
    """The classification head: linear, activation, linear. BERT and RoBERTa use "tanh", DistilBERT "relu"."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.width)
        self.activation = torch.tanh if config.head_activation == "tanh" else get_activation(config.head_activation)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.width, config.classes)

    def forward(self, first: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        """Return the logits of the classes."""
        logits: Tensor = self.output(self.dropout(self.activation(self.inner(first))))
        return logits
