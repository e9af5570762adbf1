"""The original encoder-decoder Transformer (Vaswani et al. 2017, "Attention Is All You Need").

    source -> embedding + positions -> blocks: attention, norm, feed-forward, norm -> encoded
    target -> embedding + positions -> blocks: causal attention, norm, cross-attention to encoded, norm, feed-forward,
              norm -> logits

Source and target may have separate vocabularies. With sinusoids in halves, "silu" and a bias on the logits it is Marian
(Junczys-Dowmunt et al. 2018), the translator of the OPUS-MT models; with pre-norm it is Pegasus (Zhang et al. 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.attention.grid import Positions
from jumok.attention.projection import Fused
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, optional, real
from jumok.layers import FeedForward, LayerNorm, LearnedPositions, RotaryPositions, SinusoidalPositions
from jumok.layers.token_inputs import check_tokens, compute_positions, compute_token_logits, make_embedding
from jumok.small_batch_linear import Linear

from .config import Config, declare_activation
from .encoder_decoder import BlockSettings, EncoderDecoder, build_decoder, build_encoder
from .model import Output, initialise_linear_layers, initialise_normal

AddedPositions = LearnedPositions | SinusoidalPositions


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
    activation: str = declare_activation("relu")
    scaled_embedding: bool = flag(True, "multiply embeddings by sqrt(width)")
    shared: bool = flag(True, "source and target share one embedding")
    tied: bool = flag(True, "the target's embedding is also the output layer")
    output_bias: bool = flag(False, "a bias on the logits")
    start: int = integer(1, "the token that a target begins with", least=0)
    end: int = integer(2, "the token that ends a text", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
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


class Transformer(EncoderDecoder):
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

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.target_embedding = None if config.shared else make_embedding(config.target_vocabulary_size, config.width)
        self.source_positions = _build_positions(config)
        self.target_positions = _build_positions(config)
        self.dropout = nn.Dropout(config.dropout)

        rotary = RotaryPositions(config.width // config.heads) if config.positions == "rotary" else None
        cross = partial(MultiHead, config.width, config.heads, dropout=config.dropout)
        attention = partial(cross, rotation=rotary)
        feedforward = partial(FeedForward, config.width, config.hidden, config.activation, dropout=config.dropout)
        norm = partial(LayerNorm, config.width, eps=config.epsilon)
        settings = {"norm": norm, "order": config.order, "dropout": config.dropout}
        self.encoder = build_encoder(config.layers, attention, feedforward, **settings)
        self.decoder = build_decoder(config.decoder_layers or config.layers, attention, cross, feedforward, **settings)
        final_norm = config.order == "pre" if config.final_norm is None else config.final_norm
        self.encoder_norm = norm() if final_norm else None
        self.decoder_norm = norm() if final_norm else None
        self.output = None if config.tied else Linear(config.width, config.target_vocabulary_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size)) if config.output_bias else None
        self.finish_construction()

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

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        check_tokens(source, self.config.vocabulary)
        positions = self._locate_source(source, token_mask)
        return self._embed(source, self.embedding, self.source_positions, positions)

    def _embed_target(self, target: Tensor, cached: int, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        check_tokens(target, self.config.target_vocabulary_size)
        self._check_length(cached + target.shape[1])
        positions = compute_positions(target.shape[1], cached, token_mask)
        return self._embed(target, self._select_target_embedding(), self.target_positions, positions)

    def _answer(self, hidden: Tensor) -> Output:
        logits = compute_token_logits(hidden, self.output, self._select_target_embedding())
        return Output(logits if self.output_bias is None else logits + self.output_bias, hidden)

    def _locate_source(self, source: Tensor, token_mask: Tensor | None) -> Positions:
        """Return the positions of the source; a family whose positions start anew overrides it."""
        self._check_length(source.shape[1])
        return compute_positions(source.shape[1], 0, token_mask)

    def _select_target_embedding(self) -> nn.Embedding:
        return self.embedding if self.target_embedding is None else self.target_embedding

    def _check_length(self, length: int) -> None:
        if length > self.config.length:
            raise ShapeError(f"{length} tokens exceed the context length of {self.config.length}")

    def _embed(
        self, tokens: Tensor, embedding: nn.Embedding, encoding: AddedPositions | None, positions: Positions
    ) -> tuple[Tensor, BlockSettings]:
        """Return token embeddings plus position encodings, or the positions by which the blocks rotate."""
        hidden: Tensor = embedding(tokens)
        if self.config.scaled_embedding:
            hidden = hidden * math.sqrt(self.config.width)
        if encoding is None:
            return hidden, {"positions": positions}
        if isinstance(encoding, SinusoidalPositions):
            encoded_positions = encoding(positions, hidden.device)
        else:
            encoded_positions = encoding(positions)
        return hidden + encoded_positions.to(hidden.dtype), {}


def _build_positions(config: TransformerConfig) -> AddedPositions | None:
    if config.positions == "rotary":
        return None
    if config.positions == "learned":
        return LearnedPositions(config.length, config.width)
    return SinusoidalPositions(config.width, layout=config.layout)
