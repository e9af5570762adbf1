"""Captioner: an image in, a sentence about it out.

    36 regions of 2,048 numbers, or an image's patches -> map -> blocks: norm, attention, norm, feed-forward -> norm
    caption so far -> embedding + learned positions -> blocks: norm, causal attention, norm, cross-attention to the
                      image, norm, feed-forward -> norm -> the next token's logits

Regions are what a detector found worth looking at (Anderson et al. 2018, "Bottom-Up and Top-Down Attention"): a set, so
they have no positions. Patches are a grid, and have learned ones. The caption is under a causal mask: a captioner that
sees the tokens to come copies its answer while it trains, and has nothing to copy when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Cache, MultiHead, mask
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, LearnedPositions, PatchEmbedding
from jumok.layers.embedding import make_embedding
from jumok.layers.patches import Images, check_images, compute_patch_grid

from .config import Config
from .gpt import places
from .model import Model, Output, check_tokens, initialise_linear, normal_, token_logits

Regions = Float[Tensor, "batch region feature"]


@dataclass(frozen=True)
class CaptionerConfig(Config):
    """The defaults read 36 regions of 2,048 numbers."""

    family: ClassVar[str] = "captioner"

    source: str = choice(
        "regions", ("regions", "patches"), "what is read of an image: a detector's regions, or patches"
    )
    regions: int = integer(36, "the most regions an image has")
    features: int = integer(2048, "how many numbers tell of a region")
    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels, where patches are read")
    patch: Sequence[int] = integers((16, 16), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers a pixel: 3 for red, green and blue, 1 for grey")
    vocabulary: int = integer(10_000, "how many tokens there are")
    length: int = integer(64, "the longest caption")
    width: int = integer(512, "width of the model")
    layers: int = integer(3, "how many blocks look at the image among itself; 0 = none", least=0)
    decoder_layers: int = integer(6, "how many blocks write the caption")
    heads: int = integer(8, "how many attention heads")
    hidden: int = integer(2048, "width inside the feed-forward")
    activation: str = choice("gelu", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    epsilon: float = real(1e-5, "added inside the norms' root")
    tied: bool = flag(True, "the embedding is also the output map")
    start: int = integer(1, "the token a caption begins with", least=0)
    end: int = integer(2, "the token a caption ends with", least=0)
    pad: int = integer(0, "the token that fills up a batch", least=0)
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")
        if self.source == "patches":
            compute_patch_grid(self.image, self.patch)
        for name in ("start", "end", "pad"):
            if getattr(self, name) >= self.vocabulary:
                raise ArgumentError(f"{name} is token {getattr(self, name)}, but there are {self.vocabulary} tokens")


def regions_config(**fields: object) -> CaptionerConfig:
    """36 regions of 2,048 numbers, as a detector gives them; changed by ``fields``."""
    return CaptionerConfig.from_json({"source": "regions", "regions": 36, "features": 2048, **fields})


class Captioner(Model):
    """``model(images, target).logits`` is [batch, target, vocabulary]: at each place the next token's. ``images`` are
    regions [batch, region, feature] or images [batch, channel, row, column], as the config's source says."""

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
        if config.source == "patches":
            self.reads = "image"
        self.regions: nn.Linear | None = None
        self.patches: PatchEmbedding | None = None
        self.patch_positions: nn.Parameter | None = None
        if config.source == "regions":
            self.regions = nn.Linear(config.features, config.width)
        else:
            rows, columns = compute_patch_grid(config.image, config.patch)
            self.patches = PatchEmbedding(config.channels, config.patch, config.width)
            self.patch_positions = nn.Parameter(torch.zeros(1, rows * columns, config.width))
        self.encoder = nn.ModuleList(_encoder_block(config) for _ in range(config.layers))
        self.encoder_norm = _norm(config)
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(_decoder_block(config) for _ in range(config.decoder_layers))
        self.decoder_norm = _norm(config)
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.finish()

    @property
    def context_length(self) -> int:
        """The longest caption in tokens."""
        return self.config.length

    @property
    def start_token(self) -> int:
        """The token that every target begins with."""
        return self.config.start

    @property
    def end_token(self) -> int:
        """The token that ends a target."""
        return self.config.end

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Rows and columns of an image in pixels; None if the model reads regions."""
        rows, columns = self.config.image
        return (rows, columns) if self.reads == "image" else None

    @property
    def image_channels(self) -> int | None:
        """Numbers in a pixel; None if the model reads regions."""
        return self.config.channels if self.reads == "image" else None

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches in an image of the config's size; None if the model reads regions."""
        return compute_patch_grid(self.config.image, self.config.patch) if self.reads == "image" else None

    def initialise(self) -> None:
        # as GPT-2: norms stand in front, so small numbers everywhere
        initialise_linear(self, lambda parameter: normal_(parameter, 0.02))
        if self.patch_positions is not None:
            normal_(self.patch_positions, 0.02)

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
        """target: what the decoder reads of the caption, beginning with ``config.start``.
        source_token_mask: True = a real region (or patch), where images have fewer than others.
        target_token_mask: True = a real token, on either side, for those in the cache too. Positions are counted over
            real tokens.
        last: logits of the last so many tokens alone, which is all that generation needs.
        weights: a dict of tuples, a tensor a layer: "encoder", "decoder" and "cross" (which region each token saw).
        """
        encoded, found = self._encoded(images, source_token_mask, weights)
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
        self, images: Regions | Images, *, source_token_mask: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source width"]:
        """What the decoder reads of the images; made once, however long the caption becomes."""
        return self._encoded(images, source_token_mask, False)[0]

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
        """The caption's half. With a cache, ``target`` is what is new since the last call."""
        check_tokens(target, self.config.vocabulary)
        seen = 0 if cache is None else cache.length
        hidden = self.embedding(target) + self.positions(places(target.shape[1], seen, target_token_mask))
        hidden, found = self.through(
            self.decoder,
            self.dropout(hidden),
            encoded,
            mask=mask.causal if target_token_mask is None else mask.causal & mask.padding(target_token_mask),
            source_mask=None if source_token_mask is None else mask.padding(source_token_mask),
            cache=cache,
            weights=weights,
        )
        hidden = self.decoder_norm(hidden if last is None else hidden[:, -last:])
        watched = {"decoder": tuple(own for own, _ in found), "cross": tuple(cross for _, cross in found)}
        return Output(token_logits(hidden, self.output, self.embedding), hidden, watched if weights else None)

    def _encoded(self, images: Tensor, token_mask: Tensor | None, weights: bool) -> tuple[Tensor, list[Any]]:
        hidden, found = self.through(
            self.encoder,
            self.dropout(self._read(images)),
            mask=None if token_mask is None else mask.padding(token_mask),
            weights=weights,
        )
        return self.encoder_norm(hidden), found

    def _read(self, images: Tensor) -> Tensor:
        """A vector of the model's width for each region or patch."""
        config = self.config
        read: Tensor
        if self.regions is not None:
            if images.dim() != 3 or images.shape[2] != config.features or not 1 <= images.shape[1] <= config.regions:
                raise ShapeError(
                    f"this model reads regions [batch, up to {config.regions}, {config.features}], not "
                    f"{list(images.shape)}"
                )
            read = self.regions(images.to(self.regions.weight.dtype))
            return read
        assert self.patches is not None and self.patch_positions is not None
        check_images(images, config.channels)
        if tuple(images.shape[2:]) != config.image:
            raise ShapeError(
                f"this model has learned positions for images of {config.image[0]} x {config.image[1]} pixels, not "
                f"{images.shape[2]} x {images.shape[3]}; resize the images"
            )
        read = self.patches(images) + self.patch_positions
        return read


def _norm(config: CaptionerConfig) -> LayerNorm:
    return LayerNorm(config.width, eps=config.epsilon)


def _attention(config: CaptionerConfig) -> MultiHead:
    return MultiHead(config.width, config.heads, dropout=config.dropout)


def _feedforward(config: CaptionerConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, config.activation, dropout=config.dropout)


def _encoder_block(config: CaptionerConfig) -> EncoderBlock:
    return EncoderBlock(
        _attention(config), _feedforward(config), norm=lambda: _norm(config), order="pre", dropout=config.dropout
    )


def _decoder_block(config: CaptionerConfig) -> DecoderBlock:
    return DecoderBlock(
        _attention(config),
        _attention(config),
        _feedforward(config),
        norm=lambda: _norm(config),
        order="pre",
        dropout=config.dropout,
    )
