"""The original encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need").

    source -> embedding + positions -> blocks: attention, norm, feed-forward, norm -> encoded
    target -> embedding + positions -> blocks: causal attention, norm, cross-attention to encoded, norm, feed-forward,
              norm -> logits

Source and target may have separate vocabularies. With sinusoids in halves, "silu" and a bias on the logits it is Marian
(Junczys-Dowmunt et al. 2018), the translator of the OPUS-MT models; with pre-norm it is Pegasus (Zhang et al. 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead
from jumok.attention.grid import Positions
from jumok.attention.mask import Mask
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from jumok.layers.embedding import make_embedding
from jumok.layers.token_inputs import (
    build_causal_mask,
    build_padding_mask,
    check_tokens,
    compute_positions,
    compute_token_logits,
)
from jumok.small_batch_linear import Linear

from .config import Config
from .model import LayerWeights, Model, Output, collect_decoder_weights, initialise_linear_layers, initialise_normal


@dataclass(frozen=True)
class TransformerConfig(Config):
    """The config of a Transformer; the defaults are the paper's base model."""

    family: ClassVar[str] = "transformer"

    vocabulary: int = integer(37000, "number of tokens of the source")
    target_vocabulary: int | None = optional(integer(1, "number of tokens of the target; None = as the source"))
    length: int = integer(512, "the longest source or target, in tokens")
    width: int = integer(512, "width of the model")
    layers: int = integer(6, "number of blocks of the encoder")
    decoder_layers: int | None = optional(integer(1, "number of blocks of the decoder; None = as the encoder"))
    heads: int = integer(8, "number of attention heads")
    hidden: int = integer(2048, "inner width of the feed-forward network")
    positions: str = choice(
        "sinusoidal",
        ("sinusoidal", "learned", "rotary"),
        "position encoding: added vectors, or rotated queries and keys",
    )
    layout: str = choice("interleaved", ("interleaved", "halves"), "sines and cosines in turn, or all sines first")
    order: str = choice("post", ("post", "pre"), "post-norm or pre-norm")
    final_norm: bool | None = optional(flag(False, "a norm after each stack; None = if pre-norm"))
    epsilon: float = real(1e-5, "added to the variance in the norms")
    activation: str = choice("relu", ("relu", "gelu", "gelu_tanh", "silu"), "activation of the feed-forward network")
    scaled_embedding: bool = flag(True, "multiply embeddings by sqrt(width)")
    shared: bool = flag(True, "source and target share one embedding")
    tied: bool = flag(True, "the target's embedding is also the output layer")
    output_bias: bool = flag(False, "a bias on the logits")
    start: int = integer(1, "the token that a target begins with", least=0)
    end: int = integer(2, "the token that ends a text", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        self.check_heads(self.width, self.heads)
        if self.shared and self.target_vocabulary_size != self.vocabulary:
            raise ArgumentError(
                f"vocabularies of {self.vocabulary} and {self.target_vocabulary_size} tokens cannot share one "
                "embedding; use shared=False"
            )
        self.check_special_tokens(self.target_vocabulary_size, start=self.start, end=self.end)
        self.check_special_tokens(min(self.target_vocabulary_size, self.vocabulary), pad=self.pad)

    @property
    def target_vocabulary_size(self) -> int:
        """The number of tokens of the target."""
        return self.target_vocabulary or self.vocabulary


class Transformer(Model):
    """An encoder-decoder: ``model(source, target).logits`` is [batch, target, target vocabulary], at each position the
    logits of the next token.

    Args:
        config: Sizes and variants.
    """

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
        self.source_positions = _build_positions(config)
        self.target_positions = _build_positions(config)
        self.dropout = nn.Dropout(config.dropout)
        rotary = RotaryPositions(config.width // config.heads) if config.positions == "rotary" else None
        self.encoder = nn.ModuleList(_build_encoder_block(config, rotary) for _ in range(config.layers))
        decoder_layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(_build_decoder_block(config, rotary) for _ in range(decoder_layers))
        final_norm = config.order == "pre" if config.final_norm is None else config.final_norm
        self.encoder_norm = _build_norm(config) if final_norm else None
        self.decoder_norm = _build_norm(config) if final_norm else None
        self.output = None if config.tied else Linear(config.width, config.target_vocabulary_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size)) if config.output_bias else None
        self.finish_construction()

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
        """Initialise the parameters as in Glorot and Bengio 2010. Query, key and value are initialised as separate
        layers, though they share one matrix. Embeddings have a norm of about 1 before they are scaled."""
        initialise_linear_layers(self, nn.init.xavier_uniform_)
        for module in self.modules():
            if isinstance(module, Fused):
                for part in module.joined.weight.split(module.widths):
                    nn.init.xavier_uniform_(part)
            if isinstance(module, nn.Embedding):
                initialise_normal(module.weight, self.config.width**-0.5)

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
        check_tokens(target, self.config.target_vocabulary_size)
        embedding = self.embedding if self.target_embedding is None else self.target_embedding
        cached = 0 if cache is None else cache.length
        self._check_length(cached + target.shape[1])
        positions = compute_positions(target.shape[1], cached, target_token_mask)
        hidden, layer_weights = self.run_blocks(
            self.decoder,
            self._embed(target, embedding, self.target_positions, positions),
            encoded,
            mask=build_causal_mask(target_token_mask, cached + target.shape[1]),
            source_mask=build_padding_mask(source_token_mask, encoded.shape[1]),
            cache=cache,
            weights=weights,
            **self._select_rotation(positions),
        )
        hidden = hidden if last is None else hidden[:, -last:]
        if self.decoder_norm is not None:
            hidden = self.decoder_norm(hidden)
        logits = compute_token_logits(hidden, self.output, embedding)
        if self.output_bias is not None:
            logits = logits + self.output_bias
        return Output(logits, hidden, collect_decoder_weights(layer_weights) if weights else None)

    def _run_encoder(self, source: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, LayerWeights]:
        check_tokens(source, self.config.vocabulary)
        positions = self._locate_source(source, token_mask)
        hidden, layer_weights = self.run_blocks(
            self.encoder,
            self._embed(source, self.embedding, self.source_positions, positions),
            mask=self._build_encoder_mask(source, token_mask),
            weights=weights,
            **self._select_rotation(positions),
        )
        if self.encoder_norm is not None:
            hidden = self.encoder_norm(hidden)
        return hidden, tuple(layer_weights)

    def _locate_source(self, source: Tensor, token_mask: Tensor | None) -> Positions:
        """Return the positions of the source; a family whose positions start anew overrides it."""
        self._check_length(source.shape[1])
        return compute_positions(source.shape[1], 0, token_mask)

    def _build_encoder_mask(self, source: Tensor, token_mask: Tensor | None) -> Mask | None:
        return build_padding_mask(token_mask, source.shape[1])

    def _select_rotation(self, positions: Positions) -> dict[str, Positions]:
        """Return the positions by which the blocks rotate queries and keys, as a setting; {} without rotation."""
        return {"positions": positions} if self.config.positions == "rotary" else {}

    def _check_length(self, length: int) -> None:
        if length > self.config.length:
            raise ShapeError(f"{length} tokens exceed the context length of {self.config.length}")

    def _embed(
        self,
        tokens: Tensor,
        embedding: nn.Embedding,
        encoding: LearnedPositions | SinusoidalPositions | None,
        positions: Positions,
    ) -> Tensor:
        """Return token embeddings plus position encodings, unless positions are rotations."""
        hidden: Tensor = embedding(tokens)
        if self.config.scaled_embedding:
            hidden = hidden * math.sqrt(self.config.width)
        if encoding is None:
            rotated: Tensor = self.dropout(hidden)
            return rotated
        if isinstance(encoding, SinusoidalPositions):
            encoded_positions = encoding(positions, hidden.device)
        else:
            encoded_positions = encoding(positions)
        embedded: Tensor = self.dropout(hidden + encoded_positions.to(hidden.dtype))
        return embedded


def _build_positions(config: TransformerConfig) -> LearnedPositions | SinusoidalPositions | None:
    if config.positions == "rotary":
        return None
    if config.positions == "learned":
        return LearnedPositions(config.length, config.width)
    return SinusoidalPositions(config.width, layout=config.layout)


def _build_norm(config: TransformerConfig) -> LayerNorm:
    return LayerNorm(config.width, eps=config.epsilon)


def _build_attention(config: TransformerConfig, rotary: RotaryPositions | None = None) -> MultiHead:
    return MultiHead(config.width, config.heads, rotation=rotary, dropout=config.dropout)


def _build_feedforward(config: TransformerConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, config.activation, dropout=config.dropout)


def _build_encoder_block(config: TransformerConfig, rotary: RotaryPositions | None) -> EncoderBlock:
    return EncoderBlock(
        _build_attention(config, rotary),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order=config.order,
        dropout=config.dropout,
    )


def _build_decoder_block(config: TransformerConfig, rotary: RotaryPositions | None) -> DecoderBlock:
    return DecoderBlock(
        _build_attention(config, rotary),
        _build_attention(config),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order=config.order,
        dropout=config.dropout,
    )
