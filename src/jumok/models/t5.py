"""T5: text in, text out (Raffel et al. 2020). Versions 1 and 1.1 (Flan-T5 is a 1.1).

    source -> embedding -> blocks: norm, attention, norm, feed-forward -> norm -> encoded
    target -> embedding -> blocks: norm, causal attention, norm, cross-attention to encoded, norm, feed-forward -> norm
           -> logits

Positions enter only as a relative bias, one table for the encoder and one for the decoder, each shared by all blocks of
its stack; the cross-attention has none. Scores are not scaled (the initial parameters are smaller instead), and neither
norms nor linear layers have biases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, bias, score
from jumok.attention.bias import Bias
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, GatedFeedForward, RMSNorm
from jumok.layers.embedding import make_embedding
from jumok.layers.token_inputs import build_causal_mask, build_padding_mask, check_tokens, compute_token_logits
from jumok.small_batch_linear import Linear

from .config import Config
from .model import LayerWeights, Model, Output, collect_decoder_weights, initialise_normal


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
    activation: str = choice("relu", ("relu", "gelu", "gelu_tanh", "silu"), "activation of the feed-forward network")
    tied: bool = flag(True, "the embedding is also the output layer")
    scaled_output: bool | None = optional(
        flag(True, "divide by sqrt(width) before the output layer; None = if it is tied")
    )
    start: int = integer(0, "the token that a target begins with", least=0)
    end: int = integer(1, "the token that ends a text", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        # the decoder looks in one direction and has a bucket for each of twice as many distances
        if self.max_distance <= self.buckets // 2:
            raise ArgumentError(
                f"max_distance must be above {self.buckets // 2}, the distances with a bucket each; "
                f"not {self.max_distance}"
            )
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)


class T5(Model):
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
    answers = "text"
    is_encoder_decoder = True

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_build_encoder_block(config) for _ in range(config.layers))
        self.encoder_bias = make_embedding(config.buckets, config.heads)
        self.encoder_norm = _build_norm(config)
        decoder_layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(_build_decoder_block(config) for _ in range(decoder_layers))
        self.decoder_bias = make_embedding(config.buckets, config.heads)
        self.decoder_norm = _build_norm(config)
        self.output = None if config.tied else Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

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
        """Initialise the parameters so that every layer preserves the variance of its input; query weights are smaller
        by sqrt(head_width), because scores are not divided by it."""
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
        """Return logits, hidden vectors and (if requested) attention weights.

        Args:
            source: Token ids of the source.
            target: The decoder's input, beginning with ``config.start``; with a cache, the new tokens.
            source_token_mask: True = real source token, on either side.
            target_token_mask: True = real target token, on either side, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer, as a dict of tuples: "encoder", "decoder" and "cross".
            last: Compute logits for only this many last tokens, which is all that generation needs.
        """
        encoded, encoder_weights = self._run_encoder(source, source_token_mask, weights)
        output = self.decode(
            target,
            encoded,
            source_token_mask=source_token_mask,
            target_token_mask=target_token_mask,
            cache=cache,
            weights=weights,
            last=last,
        )
        if not weights:
            return output
        return replace(output, weights={"encoder": encoder_weights, **output.weights})

    def encode(
        self, source: Int[Tensor, "batch source"], *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        """Return the encoder's output; generation computes it only once.

        Args:
            source: Token ids of the source.
            source_token_mask: True = real source token, on either side.
        """
        return self._run_encoder(source, source_token_mask, False)[0]

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
        """Run the decoder.

        Args:
            target: The decoder's input; with a cache, the new tokens.
            encoded: The encoder's output.
            source_token_mask: True = real source token.
            target_token_mask: True = real target token, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer: "decoder" and "cross".
            last: Compute logits for only this many last tokens.
        """
        check_tokens(target, self.config.vocabulary)
        cached = 0 if cache is None else cache.length
        hidden, layer_weights = self.run_blocks(
            self.decoder,
            self.dropout(self.embedding(target)),
            encoded,
            mask=build_causal_mask(target_token_mask, cached + target.shape[1]),
            source_mask=build_padding_mask(source_token_mask, encoded.shape[1]),
            bias=self._build_bias(self.decoder_bias, bidirectional=False),
            cache=cache,
            weights=weights,
        )
        hidden = self.dropout(self.decoder_norm(hidden if last is None else hidden[:, -last:]))
        return Output(self._compute_logits(hidden), hidden, collect_decoder_weights(layer_weights) if weights else None)

    def _run_encoder(self, source: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, LayerWeights]:
        check_tokens(source, self.config.vocabulary)
        hidden, layer_weights = self.run_blocks(
            self.encoder,
            self.dropout(self.embedding(source)),
            mask=build_padding_mask(token_mask, source.shape[1]),
            bias=self._build_bias(self.encoder_bias, bidirectional=True),
            weights=weights,
        )
        return self.dropout(self.encoder_norm(hidden)), tuple(layer_weights)

    def _build_bias(self, table: nn.Embedding, bidirectional: bool) -> Bias:
        return bias.t5(table.weight, bidirectional=bidirectional, max_distance=self.config.max_distance)

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        scaled = self.config.tied if self.config.scaled_output is None else self.config.scaled_output
        if scaled:
            hidden = hidden * self.config.width**-0.5  # the tied embedding has a larger scale than an output layer
        return compute_token_logits(hidden, self.output, self.embedding)


def _build_norm(config: T5Config) -> RMSNorm:
    return RMSNorm(config.width, eps=config.epsilon)


def _build_attention(config: T5Config) -> MultiHead:
    return MultiHead(
        config.width,
        config.heads,
        head_width=config.head_width,
        bias=False,
        score=score.Dot(),
        dropout=config.dropout,
    )


def _build_feedforward(config: T5Config) -> nn.Module:
    feedforward_class = FeedForward if config.feedforward == "plain" else GatedFeedForward
    return feedforward_class(config.width, config.hidden, config.activation, bias=False, dropout=config.dropout)


def _build_encoder_block(config: T5Config) -> EncoderBlock:
    return EncoderBlock(
        _build_attention(config),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order="pre",
        dropout=config.dropout,
    )


def _build_decoder_block(config: T5Config) -> DecoderBlock:
    return DecoderBlock(
        _build_attention(config),
        _build_attention(config),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order="pre",
        dropout=config.dropout,
    )
