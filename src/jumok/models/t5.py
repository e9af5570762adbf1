"""T5: text in, text out (Raffel et al. 2020). Versions 1 and 1.1 (Flan-T5 is a 1.1).

    source -> embedding -> blocks: norm, attention, norm, feed-forward -> norm -> encoded
    target -> embedding -> blocks: norm, causal attention, norm, cross-attention to encoded, norm, feed-forward -> norm
           -> logits

Positions enter only as a relative bias, one table for the encoder and one for the decoder, each shared by all blocks of
its stack; the cross-attention has none. Scores are not scaled (the initial parameters are smaller instead), and neither
norms nor linear layers have biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from jumok.attention import MultiHead, bias, score
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import FeedForward, GatedFeedForward, RMSNorm
from jumok.layers.token_inputs import check_tokens, compute_token_logits, make_embedding
from jumok.small_batch_linear import Linear

from .config import Config, declare_activation
from .encoder_decoder import BlockSettings, EncoderDecoder, build_decoder, build_encoder
from .model import Output, initialise_normal


@dataclass(frozen=True)
class T5Config(Config):
    """The config of a T5; the defaults are T5 small. Version 1.1 is ``feedforward="gated", activation="gelu_tanh",
    tied=False``."""

    family: ClassVar[str] = "t5"

    vocabulary: int = integer(32128, "number of tokens")
    width: int = integer(512, "width of the model")
    layers: int = integer(6, "number of blocks of the encoder")
    decoder_layers: int | None = optional(integer(1, "number of blocks of the decoder; None = as the encoder"))
    heads: int = integer(8, "number of attention heads")
    head_width: int = integer(64, "width of a head; heads x head_width may differ from width")
    hidden: int = integer(2048, "inner width of the feed-forward network")
    buckets: int = integer(32, "number of buckets of relative distances, each with its own bias", least=4)
    max_distance: int = integer(128, "all distances from this one on share a bucket", least=2)
    epsilon: float = real(1e-6, "added to the mean square in the norms")
    feedforward: str = choice("plain", ("plain", "gated"), "feed-forward network: two layers, or gated (version 1.1)")
    activation: str = declare_activation("relu")
    tied: bool = flag(True, "the embedding is also the output layer")
    scaled_output: bool | None = optional(
        flag(True, "divide by sqrt(width) before the output layer; None = if it is tied")
    )
    start: int = integer(0, "the token that a target begins with", least=0)
    end: int = integer(1, "the token that ends a text", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        # the decoder looks in one direction and has a bucket for each of twice as many distances
        if self.max_distance <= self.buckets // 2:
            raise ArgumentError(
                f"max_distance must be above {self.buckets // 2}, the distances with a bucket each; "
                f"not {self.max_distance}"
            )
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)


class T5(EncoderDecoder):
    """An encoder-decoder: ``model(source, target).logits`` is [batch, target, vocabulary], at each position the logits
    of the next token.

    Args:
        config: Sizes and variants.
    """

    family = "t5"
    config_class = T5Config
    config: T5Config
    reads = "text"
    task = "translate"

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        attention = partial(
            MultiHead,
            config.width,
            config.heads,
            head_width=config.head_width,
            bias=False,
            score=score.Dot(),
            dropout=config.dropout,
        )
        feedforward_class = FeedForward if config.feedforward == "plain" else GatedFeedForward
        feedforward = partial(
            feedforward_class, config.width, config.hidden, config.activation, bias=False, dropout=config.dropout
        )
        norm = partial(RMSNorm, config.width, eps=config.epsilon)
        settings = {"norm": norm, "order": "pre", "dropout": config.dropout}

        self.embedding = make_embedding(config.vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = build_encoder(config.layers, attention, feedforward, **settings)
        self.encoder_bias = make_embedding(config.buckets, config.heads)
        self.encoder_norm = norm()
        layers = config.decoder_layers or config.layers
        self.decoder = build_decoder(layers, attention, attention, feedforward, **settings)
        self.decoder_bias = make_embedding(config.buckets, config.heads)
        self.decoder_norm = norm()
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise the parameters so that every layer preserves the variance of its input; query projections are
        smaller by sqrt(head_width), because scores are not divided by it."""
        config = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_normal(module.weight, module.in_features**-0.5)
        for module in self.modules():
            if isinstance(module, Fused):
                initialise_normal(module.joined.weight[: module.widths[0]], (config.width * config.head_width) ** -0.5)
        initialise_normal(self.embedding.weight, 1.0)
        initialise_normal(self.encoder_bias.weight, config.width**-0.5)
        initialise_normal(self.decoder_bias.weight, config.width**-0.5)

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        return self._embed(source, self.encoder_bias, bidirectional=True)

    def _embed_target(self, target: Tensor, cached: int, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        return self._embed(target, self.decoder_bias, bidirectional=False)

    def _embed(self, tokens: Tensor, table: nn.Embedding, bidirectional: bool) -> tuple[Tensor, BlockSettings]:
        check_tokens(tokens, self.config.vocabulary)
        relative = bias.t5(table.weight, bidirectional=bidirectional, max_distance=self.config.max_distance)
        return self.embedding(tokens), {"bias": relative}

    def _normalize(self, hidden: Tensor, norm: nn.Module | None) -> Tensor:
        normed: Tensor = self.dropout(super()._normalize(hidden, norm))
        return normed

    def _answer(self, hidden: Tensor) -> Output:
        scaled = self.config.tied if self.config.scaled_output is None else self.config.scaled_output
        # the tied embedding has a larger scale than an output layer
        inputs = hidden * self.config.width**-0.5 if scaled else hidden
        return Output(compute_token_logits(inputs, self.output, self.embedding), hidden)
