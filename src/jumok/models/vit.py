"""ViT: an image in, classes out. The Vision Transformer (Dosovitskiy et al. 2021), and DeiT (Touvron et al. 2021).

    image -> patches -> class token in front, + learned positions -> blocks: norm, attention, norm, feed-forward -> norm
    -> the class token's vector -> classes

DeiT has a distillation token beside the class token, which learned from a teacher: with the head "teacher" each of the
two has a map to classes, and the logits are the mean of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, PatchEmbedding
from jumok.layers.patches import Images, check_images, compute_patch_grid

from .config import Config
from .model import Model, Output, initialise_linear


@dataclass(frozen=True)
class ViTConfig(Config):
    """The defaults are ViT-B/16."""

    family: ClassVar[str] = "vit"

    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels")
    patch: Sequence[int] = integers((16, 16), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers a pixel: 3 for red, green and blue, 1 for grey")
    width: int = integer(768, "width of the model")
    layers: int = integer(12, "how many blocks")
    heads: int = integer(12, "how many attention heads")
    hidden: int = integer(3072, "width inside the feed-forward")
    activation: str = choice("gelu", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    attention_bias: bool = flag(True, "biases on query, key and value")
    epsilon: float = real(1e-12, "added inside the norms' root")
    distilled: bool = flag(False, "a distillation token behind the class token (DeiT)")
    head: str = choice(
        "classes",
        ("none", "classes", "teacher"),
        "none; classes of the class token; or the mean of the class token's and the distillation token's (DeiT)",
    )
    classes: int = integer(1000, "how many classes there are")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        compute_patch_grid(self.image, self.patch)
        if self.width % self.heads:
            raise ArgumentError(f"width {self.width} does not divide into {self.heads} heads")
        if self.head == "teacher" and not self.distilled:
            raise ArgumentError('the head "teacher" reads the distillation token: it needs distilled=True')


class ViT(Model):
    """``model(images).logits`` is [batch, classes]; ``.hidden`` is [batch, token, width] behind the last norm: the
    class token, the distillation token where there is one, then the patches row by row. Without a head no logits."""

    family = "vit"
    config_class = ViTConfig
    config: ViTConfig
    reads = "image"
    task = "classify"
    answers = "classes"
    prefix_tokens: tuple[str, ...] = ("[class]",)

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "none":
            self.task, self.answers = "embed", "vector"
        if config.distilled:
            self.prefix_tokens = ("[class]", "[distilled]")
        rows, columns = compute_patch_grid(config.image, config.patch)
        tokens = rows * columns + 1 + config.distilled
        self.patches = PatchEmbedding(config.channels, config.patch, config.width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.width)) if config.distilled else None
        self.positions = nn.Parameter(torch.zeros(1, tokens, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.width, eps=config.epsilon)
        self.output = None if config.head == "none" else nn.Linear(config.width, config.classes)
        self.teacher_output = nn.Linear(config.width, config.classes) if config.head == "teacher" else None
        self.finish()

    @property
    def class_count(self) -> int | None:
        """The number of classes; None without a classification head."""
        return None if self.config.head == "none" else self.config.classes

    @property
    def image_size(self) -> tuple[int, int]:
        """Rows and columns of an image in pixels."""
        rows, columns = self.config.image
        return rows, columns

    @property
    def image_channels(self) -> int:
        """Numbers in a pixel."""
        return self.config.channels

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of patches in an image of the config's size."""
        return compute_patch_grid(self.config.image, self.config.patch)

    def initialise(self) -> None:
        # DeiT: everything from a normal distribution of deviation 0.02, tokens and positions too
        initialise_linear(self, _drawn)
        for parameter in (self.class_token, self.distillation_token, self.positions):
            if parameter is not None:
                _drawn(parameter)

    def forward(self, images: Images, *, weights: bool = False) -> Output:
        """images: of the config's size, [batch, channel, row, column]."""
        check_images(images, self.config.channels)
        if tuple(images.shape[2:]) != self.config.image:
            (rows, columns), (wanted_rows, wanted_columns) = images.shape[2:], self.config.image
            raise ShapeError(
                f"this model has learned positions for images of {wanted_rows} x {wanted_columns} pixels, not "
                f"{rows} x {columns}; resize the images"
            )
        hidden = torch.cat([*self._tokens(len(images)), self.patches(images)], 1) + self.positions
        hidden, found = self.through(self.blocks, self.dropout(hidden), weights=weights)
        hidden = self.norm(hidden)
        return Output(self._logits(hidden), hidden, tuple(found) if weights else None)

    def _tokens(self, batch: int) -> list[Float[Tensor, "batch 1 width"]]:
        """What stands before the patches, for each image."""
        tokens = [self.class_token, self.distillation_token]
        return [token.expand(batch, -1, -1) for token in tokens if token is not None]

    def _logits(self, hidden: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch classes"] | None:
        if self.output is None:
            return None
        logits: Tensor = self.output(hidden[:, 0])
        if self.teacher_output is not None:
            logits = (logits + self.teacher_output(hidden[:, 1])) / 2
        return logits


def _drawn(parameter: Tensor) -> None:
    nn.init.trunc_normal_(parameter, std=0.02)


def _block(config: ViTConfig) -> EncoderBlock:
    attention = MultiHead(
        config.width, config.heads, bias=config.attention_bias, output_bias=True, dropout=config.dropout
    )
    feedforward = FeedForward(config.width, config.hidden, config.activation)
    return EncoderBlock(
        attention,
        feedforward,
        norm=lambda: LayerNorm(config.width, eps=config.epsilon),
        order="pre",
        dropout=config.dropout,
    )
