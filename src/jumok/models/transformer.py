"""The Transformer of 2017: one text in, another out (Vaswani et al. 2017, "Attention Is All You Need").

    source -> embedding + positions -> blocks: attention, norm, feed-forward, norm -> encoded
    target -> embedding + positions -> blocks: causal attention, norm, cross-attention to encoded, norm, feed-forward,
              norm -> logits

Source and target may have their own vocabularies. With sinusoids in halves, "silu" and a bias on the logits it is
Marian (Junczys-Dowmunt et al. 2018), the translator of the OPUS-MT models; with norms in front, Pegasus (Zhang et al.
2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, mask
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, LearnedPositions, SinusoidalPositions
from jumok.layers.embedding import make_embedding
from jumok.small_batch_linear import Linear

from .config import Config
from .gpt import places
from .model import Model, Output, check_tokens, initialise_linear, normal_, token_logits


@dataclass(frozen=True)
class TransformerConfig(Config):
    """The defaults are the paper's base model."""

    family: ClassVar[str] = "transformer"

    vocabulary: int = integer(37000, "how many tokens the source has")
    target_vocabulary: int | None = optional(integer(1, "how many tokens the target has; None = as many as the source"))
    length: int = integer(512, "the longest text")
    width: int = integer(512, "width of the model")
    layers: int = integer(6, "how many blocks the encoder has")
    decoder_layers: int | None = optional(integer(1, "how many blocks the decoder has; None = as many as the encoder"))
    heads: int = integer(8, "how many attention heads")
    hidden: int = integer(2048, "width inside the feed-forward")
    positions: str = choice("sinusoidal", ("sinusoidal", "learned"), "how a token learns where it stands")
    layout: str = choice("interleaved", ("interleaved", "halves"), "sines and cosines in turn, or all sines first")
    order: str = choice("post", ("post", "pre"), "norms behind each part, or in front of it")
    final_norm: bool | None = optional(flag(False, "a norm behind each stack; None = where norms stand in front"))
    epsilon: float = real(1e-5, "added inside the norms' root")
    activation: str = choice("relu", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    scaled_embedding: bool = flag(True, "embeddings times sqrt(width)")
    shared: bool = flag(True, "source and target have one embedding")
    tied: bool = flag(True, "the target's embedding is also the output map")
    output_bias: bool = flag(False, "a bias on the logits")
    start: int = integer(1, "the token a target begins with", least=0)
    end: int = integer(2, "the token a text ends with", least=0)
    pad: int = integer(0, "the token that fills up a batch", least=0)
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")
        if self.shared and self.target_vocabulary_size != self.vocabulary:
            raise ArgumentError(
                f"vocabularies of {self.vocabulary} and {self.target_vocabulary_size} tokens cannot share one "
                "embedding; say shared=False"
            )
        target = self.target_vocabulary_size
        for name, tokens in (("start", target), ("end", target), ("pad", min(target, self.vocabulary))):
            if getattr(self, name) >= tokens:
                raise ArgumentError(f"{name} is token {getattr(self, name)}, but there are {tokens} tokens")

    @property
    def target_vocabulary_size(self) -> int:
        """How many tokens the target has."""
        return self.target_vocabulary or self.vocabulary


class Transformer(Model):
    """``model(source, target).logits`` is [batch, target, target vocabulary]: at each place the next token's."""

    family = "transformer"
    config_class = TransformerConfig
    config: TransformerConfig
    reads = "text"
    task = "translate"
    answers = "text"
    is_encoder_decoder = True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.target_embedding = None if config.shared else make_embedding(config.target_vocabulary_size, config.width)
        self.source_positions, self.target_positions = _positions(config), _positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_encoder_block(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(_decoder_block(config) for _ in range(config.decoder_layers or config.layers))
        last = config.order == "pre" if config.final_norm is None else config.final_norm
        self.encoder_norm = _norm(config) if last else None
        self.decoder_norm = _norm(config) if last else None
        self.output = None if config.tied else Linear(config.width, config.target_vocabulary_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size)) if config.output_bias else None
        self.finish()

    @property
    def context_length(self) -> int:
        """The longest source or target in tokens."""
        return self.config.length

    @property
    def start_token(self) -> int:
        """The token that every target begins with."""
        return self.config.start

    @property
    def end_token(self) -> int:
        """The token that ends a target."""
        return self.config.end

    @torch.no_grad()
    def initialise(self) -> None:
        # Glorot and Bengio 2010: maps keep the variance both ways. Query, key and value are maps of their own, though
        # they lie in one matrix. Embeddings have length 1, and after their scaling numbers of size 1.
        initialise_linear(self, nn.init.xavier_uniform_)
        for module in self.modules():
            if isinstance(module, Fused):
                for part in module.joined.weight.split(module.widths):
                    nn.init.xavier_uniform_(part)
            if isinstance(module, nn.Embedding):
                normal_(module.weight, self.config.width**-0.5)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """target: what the decoder reads, beginning with ``config.start``.
        source_token_mask, target_token_mask: True = a real token, on either side; the target's
        covers the cached tokens too.
            Positions are counted over real tokens.
        last: logits of the last so many tokens alone, which is all that generation needs.
        weights: a dict of tuples, a tensor a layer: "encoder", "decoder" and "cross".
        """
        encoded, found = self._encoded(source, source_token_mask, weights)
        output = self.decode(
            target,
            encoded,
            source_token_mask=source_token_mask,
            target_token_mask=target_token_mask,
            cache=cache,
            weights=weights,
            last=last,
        )
        return Output(output.logits, output.hidden, {"encoder": tuple(found), **output.weights} if weights else None)

    def encode(
        self, source: Int[Tensor, "batch source"], *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        """What the decoder reads of a source; made once, however long the target becomes."""
        return self._encoded(source, source_token_mask, False)[0]

    def decode(
        self,
        target: Int[Tensor, "batch target"],
        encoded: Float[Tensor, "batch source width"],
        *,
        source_token_mask: Bool[Tensor, "batch source"] | None = None,
        target_token_mask: Bool[Tensor, "batch key"] | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        last: int | None = None,
    ) -> Output:
        """The target's half. With a cache, ``target`` is what is new since the last call."""
        check_tokens(target, self.config.target_vocabulary_size)
        table = self.embedding if self.target_embedding is None else self.target_embedding
        seen = 0 if cache is None else cache.length
        hidden, found = self.through(
            self.decoder,
            self._embedded(target, table, self.target_positions, seen, target_token_mask),
            encoded,
            mask=mask.causal if target_token_mask is None else mask.causal & mask.padding(target_token_mask),
            source_mask=None if source_token_mask is None else mask.padding(source_token_mask),
            cache=cache,
            weights=weights,
        )
        hidden = hidden if last is None else hidden[:, -last:]
        if self.decoder_norm is not None:
            hidden = self.decoder_norm(hidden)
        logits = token_logits(hidden, self.output, table)
        if self.output_bias is not None:
            logits = logits + self.output_bias
        watched = {"decoder": tuple(own for own, _ in found), "cross": tuple(cross for _, cross in found)}
        return Output(logits, hidden, watched if weights else None)

    def _encoded(self, source: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, list[Any]]:
        check_tokens(source, self.config.vocabulary)
        hidden, found = self.through(
            self.encoder,
            self._embedded(source, self.embedding, self.source_positions, 0, token_mask),
            mask=None if token_mask is None else mask.padding(token_mask),
            weights=weights,
        )
        return (hidden if self.encoder_norm is None else self.encoder_norm(hidden)), found

    def _embedded(
        self,
        tokens: Tensor,
        table: nn.Embedding,
        positions: LearnedPositions | SinusoidalPositions,
        seen: int,
        token_mask: Tensor | None,
    ) -> Tensor:
        length = tokens.shape[1]
        if seen + length > self.config.length:
            raise ShapeError(f"{seen + length} tokens are more than this model's {self.config.length}")
        hidden: Tensor = table(tokens)
        if self.config.scaled_embedding:
            hidden = hidden * math.sqrt(self.config.width)
        where = places(length, seen, token_mask)
        told = positions(where, hidden.device) if isinstance(positions, SinusoidalPositions) else positions(where)
        embedded: Tensor = self.dropout(hidden + told.to(hidden.dtype))
        return embedded


def _positions(config: TransformerConfig) -> LearnedPositions | SinusoidalPositions:
    if config.positions == "learned":
        return LearnedPositions(config.length, config.width)
    return SinusoidalPositions(config.width, layout=config.layout)


def _norm(config: TransformerConfig) -> LayerNorm:
    return LayerNorm(config.width, eps=config.epsilon)


def _attention(config: TransformerConfig) -> MultiHead:
    return MultiHead(config.width, config.heads, dropout=config.dropout)


def _feedforward(config: TransformerConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, config.activation, dropout=config.dropout)


def _encoder_block(config: TransformerConfig) -> EncoderBlock:
    return EncoderBlock(
        _attention(config), _feedforward(config), norm=lambda: _norm(config), order=config.order, dropout=config.dropout
    )


def _decoder_block(config: TransformerConfig) -> DecoderBlock:
    return DecoderBlock(
        _attention(config),
        _attention(config),
        _feedforward(config),
        norm=lambda: _norm(config),
        order=config.order,
        dropout=config.dropout,
    )
