"""Captioner: image in, caption out.

    36 regions of 2,048 numbers, or an image's patches -> linear -> blocks: norm, attention, norm, feed-forward -> norm
    caption so far -> embedding + learned positions -> blocks: norm, causal attention, norm, cross-attention to the
                      image, norm, feed-forward -> norm -> the next token's logits

Regions are objects found by a detector (Anderson et al. 2018, "Bottom-Up and Top-Down Attention"): a set, so they
have no positions. Patches are a grid, and have learned positions. The caption has a causal mask: without it, training
would teach the decoder to copy the next token from its input, which generation does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead
from jumok.errors import ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, LearnedPositions, PatchEmbedding
from jumok.layers.embedding import make_embedding
from jumok.layers.patches import Images, check_images, compute_patch_grid
from jumok.layers.token_inputs import (
    build_causal_mask,
    build_padding_mask,
    check_tokens,
    compute_positions,
    compute_token_logits,
)

from .config import Config
from .model import LayerWeights, Model, Output, collect_decoder_weights, initialise_linear_layers, initialise_normal

Regions = Float[Tensor, "batch region feature"]


@dataclass(frozen=True)
class CaptionerConfig(Config):
    """The config of a captioner; the defaults read 36 regions of 2,048 numbers."""

    family: ClassVar[str] = "captioner"

    source: str = choice("regions", ("regions", "patches"), "input: the regions of a detector, or patches of an image")
    regions: int = integer(36, "the largest number of regions of an image")
    features: int = integer(2048, "number of features of a region")
    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels, if patches are read")
    patch: Sequence[int] = integers((16, 16), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers per pixel: 3 for red, green and blue, 1 for grey")
    vocabulary: int = integer(10_000, "number of tokens")
    length: int = integer(64, "the longest caption, in tokens")
    width: int = integer(512, "width of the model")
    layers: int = integer(3, "number of blocks of the encoder; 0 = none", least=0)
    decoder_layers: int = integer(6, "number of blocks of the decoder")
    heads: int = integer(8, "number of attention heads")
    hidden: int = integer(2048, "inner width of the feed-forward network")
    activation: str = choice("gelu", ("relu", "gelu", "gelu_tanh", "silu"), "activation of the feed-forward network")
    epsilon: float = real(1e-5, "added to the variance in the norms")
    tied: bool = flag(True, "the embedding is also the output layer")
    start: int = integer(1, "the token that a caption begins with", least=0)
    end: int = integer(2, "the token that ends a caption", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        """Raise ArgumentError if fields contradict each other."""
        self.check_heads(self.width, self.heads)
        if self.source == "patches":
            compute_patch_grid(self.image, self.patch)
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)


def regions_config(**fields: object) -> CaptionerConfig:
    """Return the config of a captioner that reads 36 regions of 2,048 numbers.

    Args:
        **fields: Other fields of ``CaptionerConfig``.
    """
    return CaptionerConfig.from_json({"source": "regions", "regions": 36, "features": 2048, **fields})


class Captioner(Model):
    """An encoder-decoder: ``model(images, target).logits`` is [batch, target, vocabulary], at each position the logits
    of the next token. ``images`` are regions [batch, region, feature] or images [batch, channel, row, column].

    Args:
        config: Sizes, and the kind of input.
    """

    family = "captioner"
    config_class = CaptionerConfig
    config: CaptionerConfig
    reads = "regions"
    task = "caption"
    answers = "text"
    is_encoder_decoder = True

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.regions: nn.Linear | None = None
        self.patches: PatchEmbedding | None = None
        self.patch_positions: nn.Parameter | None = None
        if config.source == "regions":
            self.regions = nn.Linear(config.features, config.width)
        else:
            self.reads = "image"
            rows, columns = compute_patch_grid(config.image, config.patch)
            self.patches = PatchEmbedding(config.channels, config.patch, config.width)
            self.patch_positions = nn.Parameter(torch.zeros(1, rows * columns, config.width))
        self.encoder = nn.ModuleList(_build_encoder_block(config) for _ in range(config.layers))
        self.encoder_norm = _build_norm(config)
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(_build_decoder_block(config) for _ in range(config.decoder_layers))
        self.decoder_norm = _build_norm(config)
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @property
    def context_length(self) -> int:
        """The longest caption in tokens."""
        return self.config.length

    @property
    def start_token(self) -> int:
        """The token that every caption begins with."""
        return self.config.start

    @property
    def end_token(self) -> int:
        """The token that ends a caption."""
        return self.config.end

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Rows and columns of an image in pixels; None if the model reads regions."""
        rows, columns = self.config.image
        return (rows, columns) if self.reads == "image" else None

    @property
    def image_channels(self) -> int | None:
        """Number of channels; None if the model reads regions."""
        return self.config.channels if self.reads == "image" else None

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches in an image; None if the model reads regions."""
        return compute_patch_grid(self.config.image, self.config.patch) if self.reads == "image" else None

    def initialise(self) -> None:
        """Initialise the parameters as GPT-2 does, which is also pre-norm: standard deviation 0.02."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))
        if self.patch_positions is not None:
            initialise_normal(self.patch_positions, 0.02)

    def forward(
        self,
        images: Regions | Images,
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
            images: Regions [batch, region, feature] or images [batch, channel, row, column].
            target: The decoder's input, beginning with ``config.start``; with a cache, the new tokens.
            source_token_mask: True = real region or patch, on either side.
            target_token_mask: True = real target token, on either side, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer, as a dict of tuples: "encoder", "decoder" and "cross".
            last: Compute logits for only this many last tokens, which is all that generation needs.
        """
        encoded, encoder_weights = self._run_encoder(images, source_token_mask, weights)
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
        self, images: Regions | Images, *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        """Return the encoder's output; generation computes it only once.

        Args:
            images: Regions [batch, region, feature] or images [batch, channel, row, column].
            source_token_mask: True = real region or patch, on either side.
        """
        return self._run_encoder(images, source_token_mask, False)[0]

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
            source_token_mask: True = real region or patch.
            target_token_mask: True = real target token, for all keys including the cached ones.
            cache: Keys and values of earlier target tokens; it is extended.
            weights: Return the weights of every layer: "decoder" and "cross".
            last: Compute logits for only this many last tokens.
        """
        check_tokens(target, self.config.vocabulary)
        cached = 0 if cache is None else cache.length
        positions = compute_positions(target.shape[1], cached, target_token_mask)
        hidden, layer_weights = self.run_blocks(
            self.decoder,
            self.dropout(self.embedding(target) + self.positions(positions)),
            encoded,
            mask=build_causal_mask(target_token_mask, cached + target.shape[1]),
            source_mask=build_padding_mask(source_token_mask, encoded.shape[1]),
            cache=cache,
            weights=weights,
        )
        hidden = self.decoder_norm(hidden if last is None else hidden[:, -last:])
        logits = compute_token_logits(hidden, self.output, self.embedding)
        return Output(logits, hidden, collect_decoder_weights(layer_weights) if weights else None)

    def _run_encoder(self, images: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, LayerWeights]:
        embedded = self.dropout(self._embed(images))
        hidden, layer_weights = self.run_blocks(
            self.encoder,
            embedded,
            mask=build_padding_mask(token_mask, embedded.shape[1]),
            weights=weights,
        )
        return self.encoder_norm(hidden), tuple(layer_weights)

    def _embed(self, images: Tensor) -> Tensor:
        """Return a vector of the model's width for each region or patch."""
        config = self.config
        embedded: Tensor
        if self.regions is not None:
            if images.dim() != 3 or images.shape[2] != config.features or not 1 <= images.shape[1] <= config.regions:
                raise ShapeError(
                    f"this model reads regions [batch, up to {config.regions}, {config.features}], not "
                    f"{list(images.shape)}"
                )
            embedded = self.regions(images.to(self.regions.weight.dtype))
            return embedded
        assert self.patches is not None and self.patch_positions is not None
        check_images(images, config.channels)
        if tuple(images.shape[2:]) != config.image:
            raise ShapeError(
                f"this model has learned positions for images of {config.image[0]} x {config.image[1]} pixels, not "
                f"{images.shape[2]} x {images.shape[3]}; resize the images"
            )
        embedded = self.patches(images) + self.patch_positions
        return embedded


def _build_norm(config: CaptionerConfig) -> LayerNorm:
    return LayerNorm(config.width, eps=config.epsilon)


def _build_attention(config: CaptionerConfig) -> MultiHead:
    return MultiHead(config.width, config.heads, dropout=config.dropout)


def _build_feedforward(config: CaptionerConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, config.activation, dropout=config.dropout)


def _build_encoder_block(config: CaptionerConfig) -> EncoderBlock:
    return EncoderBlock(
        _build_attention(config),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order="pre",
        dropout=config.dropout,
    )


def _build_decoder_block(config: CaptionerConfig) -> DecoderBlock:
    return DecoderBlock(
        _build_attention(config),
        _build_attention(config),
        _build_feedforward(config),
        norm=lambda: _build_norm(config),
        order="pre",
        dropout=config.dropout,
    )
