"""T5: text in, text out (Raffel et al. 2020). Versions 1 and 1.1 (Flan-T5 is a 1.1).

    source -> embedding -> blocks: norm, attention, norm, feed-forward -> norm -> encoded
    target -> embedding -> blocks: norm, causal attention, norm, cross-attention to encoded, norm, feed-forward -> norm
           -> logits

Where a token stands is told by a relative bias alone, one table for the encoder and one for the decoder, each shared by
all blocks of its stack; the cross-attention has none. Scores are not scaled (the first parameters are drawn smaller
instead), norms have no bias, and neither has any map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, bias, mask, score
from jumok.attention.bias import Bias
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, GatedFeedForward, RMSNorm
from jumok.layers.embedding import make_embedding
from jumok.small_batch_linear import Linear

from .config import Config
from .model import Model, Output, check_tokens, normal_, token_logits


@dataclass(frozen=True)
class T5Config(Config):
    """The defaults are T5 small. Version 1.1 is ``feedforward="gated", activation="gelu_tanh", tied=False``."""

    family: ClassVar[str] = "t5"

    vocabulary: int = integer(32128, "how many tokens there are")
    width: int = integer(512, "width of the model")
    layers: int = integer(6, "how many blocks the encoder has")
    decoder_layers: int | None = optional(integer(1, "how many blocks the decoder has; None = as many as the encoder"))
    heads: int = integer(8, "how many attention heads")
    head_width: int = integer(64, "width of a head; heads x head_width may differ from width")
    hidden: int = integer(2048, "width inside the feed-forward")
    buckets: int = integer(32, "how many ranges of distances have a bias of their own", least=4)
    max_distance: int = integer(128, "from this distance on all tokens are equally far", least=2)
    epsilon: float = real(1e-6, "added inside the norms' root")
    feedforward: str = choice("plain", ("plain", "gated"), "two maps, or gated (version 1.1)")
    activation: str = choice("relu", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    tied: bool = flag(True, "the embedding is also the output map")
    scaled_output: bool | None = optional(flag(True, "divide by sqrt(width) before the output map; None = where tied"))
    start: int = integer(0, "the token a target begins with", least=0)
    end: int = integer(1, "the token a text ends with", least=0)
    pad: int = integer(0, "the token that fills up a batch", least=0)
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        # the decoder looks one way and has a bucket for each of twice as many distances
        if self.max_distance <= self.buckets // 2:
            raise ArgumentError(
                f"max_distance must be above {self.buckets // 2}, the distances with a bucket each; "
                f"not {self.max_distance}"
            )
        for name in ("start", "end", "pad"):
            if getattr(self, name) >= self.vocabulary:
                raise ArgumentError(f"{name} is token {getattr(self, name)}, but there are {self.vocabulary} tokens")


class T5(Model):
    """``model(source, target).logits`` is [batch, target, vocabulary]: at each place the next token's."""

    family = "t5"
    config_class = T5Config
    config: T5Config
    reads = "text"
    task = "translate"
    answers = "text"
    is_encoder_decoder = True

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_encoder_block(config) for _ in range(config.layers))
        self.encoder_bias = make_embedding(config.buckets, config.heads)
        self.encoder_norm = _norm(config)
        self.decoder = nn.ModuleList(_decoder_block(config) for _ in range(config.decoder_layers or config.layers))
        self.decoder_bias = make_embedding(config.buckets, config.heads)
        self.decoder_norm = _norm(config)
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish()

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
        # so that every map keeps the variance of what it takes; queries are smaller by sqrt(head_width), because
        # scores are not divided by it
        config = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                normal_(module.weight, module.in_features**-0.5)
        for module in self.modules():
            if isinstance(module, Fused):
                normal_(module.joined.weight[: module.widths[0]], (config.width * config.head_width) ** -0.5)
        normal_(self.embedding.weight, 1.0)
        normal_(self.encoder_bias.weight, config.width**-0.5)
        normal_(self.decoder_bias.weight, config.width**-0.5)

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
        check_tokens(target, self.config.vocabulary)
        hidden, found = self.through(
            self.decoder,
            self.dropout(self.embedding(target)),
            encoded,
            mask=mask.causal if target_token_mask is None else mask.causal & mask.padding(target_token_mask),
            source_mask=None if source_token_mask is None else mask.padding(source_token_mask),
            bias=self._bias(self.decoder_bias, bidirectional=False),
            cache=cache,
            weights=weights,
        )
        hidden = self.dropout(self.decoder_norm(hidden if last is None else hidden[:, -last:]))
        seen = {"decoder": tuple(own for own, _ in found), "cross": tuple(cross for _, cross in found)}
        return Output(self._logits(hidden), hidden, seen if weights else None)

    def _encoded(self, source: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, list[Any]]:
        check_tokens(source, self.config.vocabulary)
        hidden, found = self.through(
            self.encoder,
            self.dropout(self.embedding(source)),
            mask=None if token_mask is None else mask.padding(token_mask),
            bias=self._bias(self.encoder_bias, bidirectional=True),
            weights=weights,
        )
        return self.dropout(self.encoder_norm(hidden)), found

    def _bias(self, table: nn.Embedding, bidirectional: bool) -> Bias:
        return bias.t5(table.weight, bidirectional=bidirectional, max_distance=self.config.max_distance)

    def _logits(self, hidden: Tensor) -> Tensor:
        config = self.config
        if config.tied if config.scaled_output is None else config.scaled_output:
            hidden = hidden * config.width**-0.5  # the embedding is drawn for reading, too large for an output map
        return token_logits(hidden, self.output, self.embedding)


def _norm(config: T5Config) -> RMSNorm:
    return RMSNorm(config.width, eps=config.epsilon)


def _attention(config: T5Config) -> MultiHead:
    return MultiHead(
        config.width,
        config.heads,
        head_width=config.head_width,
        bias=False,
        score=score.Dot(),
        dropout=config.dropout,
    )


def _feedforward(config: T5Config) -> nn.Module:
    made = FeedForward if config.feedforward == "plain" else GatedFeedForward
    return made(config.width, config.hidden, config.activation, bias=False, dropout=config.dropout)


def _encoder_block(config: T5Config) -> EncoderBlock:
    return EncoderBlock(
        _attention(config), _feedforward(config), norm=lambda: _norm(config), order="pre", dropout=config.dropout
    )


def _decoder_block(config: T5Config) -> DecoderBlock:
    return DecoderBlock(
        _attention(config),
        _attention(config),
        _feedforward(config),
        norm=lambda: _norm(config),
        order="pre",
        dropout=config.dropout,
    )
