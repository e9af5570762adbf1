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
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.errors import ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import FeedForward, LayerNorm, LearnedPositions, PatchEmbedding
from jumok.layers.patches import check_images, compute_patch_grid
from jumok.layers.token_inputs import make_embedding

from .config import Config, declare_activation
from .encoder_decoder import BlockSettings, EncoderDecoder, build_decoder, build_encoder
from .model import initialise_linear_layers, initialise_normal


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
    activation: str = declare_activation("gelu")
    epsilon: float = real(1e-5, "added to the variance in the norms")
    tied: bool = flag(True, "the embedding is also the output layer")
    start: int = integer(1, "the token that a caption begins with", least=0)
    end: int = integer(2, "the token that ends a caption", least=0)
    pad: int = integer(0, "the padding token", least=0)
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        self.check_heads(self.width, self.heads)
        if self.source == "patches":
            compute_patch_grid(self.image, self.patch)
        self.check_special_tokens(self.vocabulary, start=self.start, end=self.end, pad=self.pad)


def regions_config(**fields: object) -> CaptionerConfig:
    """Return the config of a captioner that reads 36 regions of 2,048 numbers, which is the default.

    Args:
        **fields: Other fields of ``CaptionerConfig``.
    """
    return CaptionerConfig.from_json(fields)


class Captioner(EncoderDecoder):
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

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        attention = partial(MultiHead, config.width, config.heads, dropout=config.dropout)
        feedforward = partial(FeedForward, config.width, config.hidden, config.activation, dropout=config.dropout)
        norm = partial(LayerNorm, config.width, eps=config.epsilon)
        settings = {"norm": norm, "order": "pre", "dropout": config.dropout}

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
        self.encoder = build_encoder(config.layers, attention, feedforward, **settings)
        self.encoder_norm = norm()
        self.embedding = make_embedding(config.vocabulary, config.width)
        self.positions = LearnedPositions(config.length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = build_decoder(config.decoder_layers, attention, attention, feedforward, **settings)
        self.decoder_norm = norm()
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)
        self.finish_construction()

    @property
    def source_shape(self) -> tuple[int, ...] | None:
        return (self.config.regions, self.config.features) if self.reads == "regions" else super().source_shape

    def initialise(self) -> None:
        """Initialise the parameters as GPT-2 does, which is also pre-norm: standard deviation 0.02."""
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))
        if self.patch_positions is not None:
            initialise_normal(self.patch_positions, 0.02)

    def _embed_source(self, source: Tensor, token_mask: Tensor | None) -> tuple[Tensor, BlockSettings]:
        config = self.config
        if self.regions is not None:
            if source.dim() != 3 or source.shape[2] != config.features or not 1 <= source.shape[1] <= config.regions:
                raise ShapeError(
                    f"this model reads regions [batch, up to {config.regions}, {config.features}], not "
                    f"{list(source.shape)}"
                )
            return self.regions(source.to(self.regions.weight.dtype)), {}
        assert self.patches is not None and self.patch_positions is not None
        check_images(source, config.channels, config.image)
        return self.patches(source) + self.patch_positions, {}
