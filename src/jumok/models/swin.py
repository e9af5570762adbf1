"""Swin: an image classifier with attention in shifted windows (Liu et al. 2021).

    image -> patches -> norm -> stages: blocks, then four neighbours merged to one -> norm -> mean -> classes
    a block: norm, attention inside windows, norm, feed-forward; every second block shifts its windows by half a window

A window has window x window patches at any image size, so the cost grows linearly with the number of patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, PatchEmbedding
from jumok.layers.patches import Images, PatchLayout, check_images, compute_patch_grid
from jumok.layers.window_attention import WindowAttention, list_window_patches

from .config import Config, declare_activation
from .model import Model, Output, initialise_linear_layers, initialise_truncated


@dataclass(frozen=True)
class SwinConfig(Config):
    """The config of a Swin; the defaults are Swin-T. Each stage is twice as wide as the one before it and has a quarter
    of its patches."""

    family: ClassVar[str] = "swin"

    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels; other sizes are read too")
    patch: Sequence[int] = integers((4, 4), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers per pixel: 3 for red, green and blue, 1 for grey")
    width: int = integer(96, "width of the first stage")
    depths: Sequence[int] = integers((2, 2, 6, 2), "number of blocks of each stage")
    heads: Sequence[int] = integers((3, 6, 12, 24), "number of attention heads of each stage")
    window: int = integer(7, "rows and columns of a window, in patches")
    ratio: float = real(4.0, "inner width of the feed-forward network / width of the stage", least=0.01, most=1024.0)
    activation: str = declare_activation("gelu")
    attention_bias: bool = flag(True, "biases on query, key and value")
    epsilon: float = real(1e-5, "added to the variance in the norms")
    positions: str = choice("none", ("none", "learned"), "none, or learned positions for images of one size")
    head: str = choice("classes", ("none", "classes"), "no head, or classes of the mean over all patches")
    classes: int = integer(1000, "number of classes")
    dropout: float = real(0.0, "dropout rate in training", most=0.99)

    def check(self) -> None:
        if len(self.depths) != len(self.heads) or not self.depths:
            raise ArgumentError(f"depths {self.depths} and heads {self.heads} need one number for each stage")
        if len(self.image) != 2 or len(self.patch) != 2:
            raise ArgumentError(f"image {self.image} and patch {self.patch} must be (rows, columns) each")
        if self.positions == "learned":
            compute_patch_grid(self.image, self.patch)
        for stage, heads in enumerate(self.heads):
            width = self.compute_stage_width(stage)
            if width % heads:
                raise ArgumentError(f"stage {stage} is {width} wide, which cannot be split evenly into {heads} heads")

    def compute_stage_width(self, stage: int) -> int:
        """Return the width of a stage.

        Args:
            stage: The stage, from 0.
        """
        return self.width * 2**stage


class Swin(Model):
    """An image classifier: ``model(images).logits`` is [batch, classes]; ``.hidden`` is [batch, patch, width of the
    last stage] after the last norm, patches row by row. Without a head there are no logits.

    Images may have any size (with learned positions only the config's): they are padded with zeros to a multiple of the
    patch, and the normed patches to a multiple of the window. Padding inside a window can be attended to.

    The weights are a tensor per block, [batch x windows, head, patch, patch]: the first image's windows row by row,
    then the next image's. ``list_window_patches`` maps them to the patches of the image.

    Args:
        config: Sizes and variants.
    """

    family = "swin"
    config_class = SwinConfig
    config: SwinConfig
    reads = "image"
    task = "classify"

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "none":
            self.task = "embed"
        self.patches = PatchEmbedding(config.channels, config.patch, config.width)
        self.patch_norm = LayerNorm(config.width)
        self.positions: nn.Parameter | None = None
        if config.positions == "learned":
            rows, columns = compute_patch_grid(config.image, config.patch)
            self.positions = nn.Parameter(torch.zeros(1, rows * columns, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.stages = nn.ModuleList(Stage(config, stage) for stage in range(len(config.depths)))
        last_width = config.compute_stage_width(len(config.depths) - 1)
        self.norm = LayerNorm(last_width, eps=config.epsilon)
        self.output = None if config.head == "none" else nn.Linear(last_width, config.classes)
        self.finish_construction()

    def locate_patches(self, site: str, image: tuple[int, int]) -> PatchLayout:
        attention = self.get_submodule(site)
        stage = next(index for index, stage in enumerate(self.stages) if attention in stage.modules())
        assert isinstance(attention, WindowAttention)
        patch_rows, patch_columns = (side * 2**stage for side in self.config.patch)
        # every stage pads an odd side, as dividing by the larger patches and rounding up does
        rows, columns = -(-image[0] // patch_rows), -(-image[1] // patch_columns)
        window, shift = attention.select_window_and_shift((rows, columns))
        padded_columns = columns + -columns % window
        patches = list_window_patches((rows + -rows % window, padded_columns), window, shift)
        row, column = patches // padded_columns, patches % padded_columns
        windows = torch.where((row < rows) & (column < columns), row * columns + column, -1)
        return PatchLayout((rows, columns), (patch_rows, patch_columns), windows=windows)

    def initialise(self) -> None:
        """Initialise the parameters as published: standard deviation 0.02, also for the relative position biases."""
        initialise_linear_layers(self, initialise_truncated)
        for name, parameter in self.named_parameters():
            if name == "positions" or name.endswith("attention.table"):
                initialise_truncated(parameter)

    def forward(self, images: Images) -> Output:
        """Return the logits of the classes and hidden vectors; ``model(images, weights=True)`` returns the weights too.

        Args:
            images: Images, [batch, channel, row, column].
        """
        hidden, grid = self._embed(images)
        for stage in self.stages:
            assert isinstance(stage, Stage)  # a ModuleList does not keep the type
            hidden = self.run_blocks(stage.blocks, hidden, grid=grid)
            if stage.merge is not None:
                hidden, grid = stage.merge(hidden, grid)
        hidden = self.norm(hidden)
        logits = None if self.output is None else self.output(hidden.mean(1))
        return Output(logits, hidden)

    def _embed(self, images: Images) -> tuple[Float[Tensor, "batch patch width"], tuple[int, int]]:
        """Return the embedded patches, and their rows and columns."""
        check_images(images, self.config.channels, None if self.positions is None else self.config.image)
        (rows, columns), (patch_rows, patch_columns) = images.shape[2:], self.config.patch
        if not rows or not columns:
            raise ShapeError(f"images {list(images.shape)} have no pixels")
        images = functional.pad(images, (0, -columns % patch_columns, 0, -rows % patch_rows))
        hidden = self.patch_norm(self.patches(images))
        if self.positions is not None:
            hidden = hidden + self.positions
        return self.dropout(hidden), compute_patch_grid(images.shape[2:], self.config.patch)


class Stage(nn.Module):
    """The blocks of one stage, followed by a merge of patches, except in the last stage."""

    def __init__(self, config: SwinConfig, stage: int) -> None:
        super().__init__()
        width = config.compute_stage_width(stage)
        attention = partial(WindowAttention, width, config.heads[stage], config.window, bias=config.attention_bias)
        norm = partial(LayerNorm, width, eps=config.epsilon)
        self.blocks = nn.ModuleList()
        for index in range(config.depths[stage]):
            shifted_attention = attention(shifted=bool(index % 2), dropout=config.dropout)
            feedforward = FeedForward(width, max(1, int(config.ratio * width)), config.activation)
            block = EncoderBlock(shifted_attention, feedforward, norm=norm, order="pre", dropout=config.dropout)
            self.blocks.append(block)
        self.merge = Merge(width) if stage + 1 < len(config.depths) else None


class Merge(nn.Module):
    """Concatenate 2 x 2 neighbouring patches, normalise, and project to twice the width of one patch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = LayerNorm(4 * width)
        self.map = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(
        self, hidden: Float[Tensor, "batch patch width"], grid: tuple[int, int]
    ) -> tuple[Float[Tensor, "batch merged wider"], tuple[int, int]]:
        """Return the merged patches, and their rows and columns."""
        padded = functional.pad(hidden.unflatten(1, grid), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))
        neighbours = [padded[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        merged = self.map(self.norm(torch.cat(neighbours, -1)))
        return merged.flatten(1, 2), (merged.shape[1], merged.shape[2])
