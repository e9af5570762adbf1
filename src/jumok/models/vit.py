"""ViT: the Vision Transformer (Dosovitskiy et al. 2021) for image classification, and DeiT (Touvron et al. 2021).

    image -> patches -> class token in front, + learned positions -> blocks: norm, attention, norm, feed-forward -> norm
    -> the class token's vector -> classes

DeiT has a distillation token after the class token, which was trained to agree with a teacher: with the head "teacher"
each of the two has a linear layer to classes, and the logits are the mean of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import nn

from jumok.attention import MultiHead
from jumok.errors import ArgumentError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import FeedForward, LayerNorm, PatchEmbedding
from jumok.layers.patches import Images, check_images, compute_patch_grid

from .config import Config, declare_activation
from .encoder_decoder import build_encoder
from .model import Model, Output, initialise_linear_layers, initialise_truncated


@dataclass(frozen=True)
class ViTConfig(Config):
    """The config of a ViT; the defaults are ViT-B/16."""

    family: ClassVar[str] = "vit"

    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels")
    patch: Sequence[int] = integers((16, 16), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers per pixel: 3 for red, green and blue, 1 for grey")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "number of blocks")
    heads: int = integer(12, "number of attention heads")
    hidden: int = integer(3072, "inner width of the feed-forward network")
    activation: str = declare_activation("gelu")
    attention_bias: bool = flag(True, "biases on query, key and value")
    epsilon: float = real(1e-12, "added to the variance in the norms")
    distilled: bool = flag(False, "a distillation token after the class token (DeiT)")
    head: str = choice(
        "classes",
        ("none", "classes", "teacher"),
        "no head; logits from the class token; or the mean of logits from the class and the distillation token (DeiT)",
    )
    classes: int = integer(1000, "number of classes")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        compute_patch_grid(self.image, self.patch)
        self.check_heads(self.width, self.heads)
        if self.head == "teacher" and not self.distilled:
            raise ArgumentError('the head "teacher" reads the distillation token, so it needs distilled=True')


class ViT(Model):
    """An image classifier: ``model(images).logits`` is [batch, classes]; ``.hidden`` is [batch, token, width] after the
    last norm: the class token, the distillation token if there is one, then the patches row by row. Without a head
    there are no logits.

    Args:
        config: Sizes and variants.
    """

    family = "vit"
    config_class = ViTConfig
    config: ViTConfig
    reads = "image"
    task = "classify"
    prefix_tokens: tuple[str, ...] = ("[class]",)

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "none":
            self.task = "embed"
        if config.distilled:
            self.prefix_tokens = ("[class]", "[distilled]")
        rows, columns = compute_patch_grid(config.image, config.patch)
        tokens = rows * columns + len(self.prefix_tokens)
        self.patches = PatchEmbedding(config.channels, config.patch, config.width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.width)) if config.distilled else None
        self.positions = nn.Parameter(torch.zeros(1, tokens, config.width))
        self.dropout = nn.Dropout(config.dropout)
        attention = partial(
            MultiHead, config.width, config.heads, bias=config.attention_bias, output_bias=True, dropout=config.dropout
        )
        feedforward = partial(FeedForward, config.width, config.hidden, config.activation)
        norm = partial(LayerNorm, config.width, eps=config.epsilon)
        settings = {"norm": norm, "order": "pre", "dropout": config.dropout}
        self.blocks = build_encoder(config.layers, attention, feedforward, **settings)
        self.norm = norm()
        self.output = None if config.head == "none" else nn.Linear(config.width, config.classes)
        self.teacher_output = nn.Linear(config.width, config.classes) if config.head == "teacher" else None
        self.finish_construction()

    def initialise(self) -> None:
        """Initialise the parameters as DeiT does: standard deviation 0.02, also for special tokens and positions."""
        initialise_linear_layers(self, initialise_truncated)
        for parameter in (self.class_token, self.distillation_token, self.positions):
            if parameter is not None:
                initialise_truncated(parameter)

    def forward(self, images: Images) -> Output:
        """Return the logits of the classes and hidden vectors; ``model(images, weights=True)`` returns the weights too.

        Args:
            images: Images of the config's size, [batch, channel, row, column].
        """
        check_images(images, self.config.channels, self.config.image)
        prefix = [token for token in (self.class_token, self.distillation_token) if token is not None]
        tokens = [*(token.expand(len(images), -1, -1) for token in prefix), self.patches(images)]
        hidden = self.norm(self.run_blocks(self.blocks, self.dropout(torch.cat(tokens, 1) + self.positions)))
        logits = None if self.output is None else self.output(hidden[:, 0])
        if self.teacher_output is not None:
            logits = (logits + self.teacher_output(hidden[:, 1])) / 2
        return Output(logits, hidden)
