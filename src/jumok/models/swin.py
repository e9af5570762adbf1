"""Swin: an image in, classes out, by windows that shift (Liu et al. 2021).

    image -> patches -> norm -> stages: blocks, then four neighbours merged to one -> norm -> mean -> classes
    a block: norm, attention inside windows, norm, feed-forward; every second block's windows are shifted by half a one

A window has window x window places, whatever the image's size: the cost grows with the number of patches, not with its
square. The shift is a roll of the map, so that as many windows of one size remain; the windows at the edge then hold
pieces that are not neighbours, and a mask keeps those apart. Inside a window a learned number for each head and each
distance (rows, columns) is added to the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from jumok import axes
from jumok.attention import MultiHead, mask
from jumok.attention.bias import Bias
from jumok.attention.grid import Grid
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError, ShapeError
from jumok.fields import choice, flag, integer, integers, real
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, PatchEmbedding
from jumok.layers.patches import Images, check_images, compute_patch_grid

from .config import Config
from .model import Model, Output, initialise_linear


@dataclass(frozen=True)
class SwinConfig(Config):
    """The defaults are Swin-T. A stage is twice as wide as the one before it and has a quarter of its places."""

    family: ClassVar[str] = "swin"

    image: Sequence[int] = integers((224, 224), "rows and columns of an image, in pixels; others are read too")
    patch: Sequence[int] = integers((4, 4), "rows and columns of a patch, in pixels")
    channels: int = integer(3, "numbers a pixel: 3 for red, green and blue, 1 for grey")
    width: int = integer(96, "width of the first stage")
    depths: Sequence[int] = integers((2, 2, 6, 2), "how many blocks each stage has")
    heads: Sequence[int] = integers((3, 6, 12, 24), "how many attention heads each stage has")
    window: int = integer(7, "rows and columns of a window, in places")
    ratio: float = real(4.0, "width inside the feed-forward, as a multiple of the stage's", least=0.01, most=1024.0)
    activation: str = choice("gelu", ("relu", "gelu", "gelu_tanh", "silu"), "of the feed-forward")
    attention_bias: bool = flag(True, "biases on query, key and value")
    epsilon: float = real(1e-5, "added inside the norms' root")
    positions: str = choice("none", ("none", "learned"), "none; or learned ones, for images of one size")
    head: str = choice("classes", ("none", "classes"), "none; or classes of the mean over all places")
    classes: int = integer(1000, "how many classes there are")
    dropout: float = real(0.0, "share dropped while training", most=0.99)

    def check(self) -> None:
        if len(self.depths) != len(self.heads) or not self.depths:
            raise ArgumentError(f"depths {self.depths} and heads {self.heads} need one number for each stage")
        if len(self.image) != 2 or len(self.patch) != 2:
            raise ArgumentError(f"image {self.image} and patch {self.patch} are (rows, columns) each")
        if self.positions == "learned":
            compute_patch_grid(self.image, self.patch)
        for stage, heads in enumerate(self.heads):
            if self.stage_width(stage) % heads:
                raise ArgumentError(
                    f"stage {stage} is {self.stage_width(stage)} wide, which does not divide into {heads} heads"
                )

    def stage_width(self, stage: int) -> int:
        return self.width * 2**stage


class Swin(Model):
    """``model(images).logits`` is [batch, classes]; ``.hidden`` is [batch, place, width of the last stage] behind the
    last norm, places row by row. Without a head no logits.

    Images may have any size (with learned positions only the config's): pixels are filled up with zeros to whole
    patches, and the normed map to whole windows, where the zeros are places like others and may be attended to.

    weights: a tensor a block, [batch x windows, head, place, place]: the first image's windows, row by row, then the
    next image's. ``window_places`` tells which place of the map each of them is.
    """

    family = "swin"
    config_class = SwinConfig
    config: SwinConfig
    reads = "image"
    task = "classify"
    answers = "classes"

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        if config.head == "none":
            self.task, self.answers = "embed", "vector"
        self.patches = PatchEmbedding(config.channels, config.patch, config.width)
        self.patch_norm = LayerNorm(config.width)
        self.positions: nn.Parameter | None = None
        if config.positions == "learned":
            rows, columns = compute_patch_grid(config.image, config.patch)
            self.positions = nn.Parameter(torch.zeros(1, rows * columns, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.stages = nn.ModuleList(Stage(config, stage) for stage in range(len(config.depths)))
        last = config.stage_width(len(config.depths) - 1)
        self.norm = LayerNorm(last, eps=config.epsilon)
        self.output = None if config.head == "none" else nn.Linear(last, config.classes)
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
        (rows, columns), (patch_rows, patch_columns) = self.config.image, self.config.patch
        return rows // patch_rows, columns // patch_columns

    def initialise(self) -> None:
        # as published: deviation 0.02, the tables of distances too
        initialise_linear(self, _drawn)
        for name, parameter in self.named_parameters():
            if name == "positions" or name.endswith("attention.table"):
                _drawn(parameter)

    def forward(self, images: Images, *, weights: bool = False) -> Output:
        check_images(images, self.config.channels)
        (rows, columns), (patch_rows, patch_columns) = images.shape[2:], self.config.patch
        if self.positions is not None and (rows, columns) != self.config.image:
            wanted = self.config.image
            raise ShapeError(
                f"this model has learned positions for images of {wanted[0]} x {wanted[1]} pixels, not "
                f"{rows} x {columns}; resize the images"
            )
        if not rows or not columns:
            raise ShapeError(f"images {list(images.shape)} have no pixels")
        images = functional.pad(images, (0, -columns % patch_columns, 0, -rows % patch_rows))
        grid = compute_patch_grid(images.shape[2:], self.config.patch)
        hidden = self.patch_norm(self.patches(images))
        if self.positions is not None:
            hidden = hidden + self.positions
        hidden = self.dropout(hidden)
        seen: list[Tensor] = []
        for stage in self.stages:
            assert isinstance(stage, Stage)  # what a ModuleList forgets
            hidden, found = self.through(stage.blocks, hidden, grid=grid, weights=weights)
            seen += found
            if stage.merge is not None:
                hidden, grid = stage.merge(hidden, grid)
        hidden = self.norm(hidden)
        logits = None if self.output is None else self.output(hidden.mean(1))
        return Output(logits, hidden, tuple(seen) if weights else None)


class Stage(nn.Module):
    """Blocks on a map of one size, and the merge that ends it; the last stage has none."""

    def __init__(self, config: SwinConfig, stage: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _block(config, stage, shifted=bool(turn % 2)) for turn in range(config.depths[stage])
        )
        self.merge = Merge(config.stage_width(stage)) if stage + 1 < len(config.depths) else None


class Merge(nn.Module):
    """Two by two neighbours side by side, normed, and mapped to twice the width: a quarter of the places remains."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = LayerNorm(4 * width)
        self.map = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(
        self, hidden: Float[Tensor, "batch place width"], grid: tuple[int, int]
    ) -> tuple[Float[Tensor, "batch merged wider"], tuple[int, int]]:
        # an odd row or column gets zeros for neighbours
        whole = functional.pad(hidden.unflatten(1, grid), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))
        neighbours = [whole[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        merged = self.map(self.norm(torch.cat(neighbours, -1)))
        return merged.flatten(1, 2), (merged.shape[1], merged.shape[2])


class WindowAttention(MultiHead):
    """Self-attention inside the windows of a map, each window a row of the door's batch."""

    def __init__(self, width: int, heads: int, window: int, shifted: bool, *, bias: bool, dropout: float) -> None:
        super().__init__(width, heads, bias=bias, output_bias=True, dropout=dropout)
        self.window, self.shifted = window, shifted
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))

    def forward(  # type: ignore[override]  # a map has neither source nor cache, and makes its own mask and bias
        self, inputs: axes.Hidden, *, grid: tuple[int, int], weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """inputs: the map's places row by row; grid: its rows and columns."""
        window, shift = self.cut(grid)
        rows, columns = grid
        whole = functional.pad(inputs.unflatten(1, grid), (0, 0, 0, -columns % window, 0, -rows % window))
        parts = _windows(whole.roll((-shift, -shift), (1, 2)), window)
        who = None if not shift else neighbours_only((whole.shape[1], whole.shape[2]), window, shift, len(inputs))
        distance = WindowDistance(self.table, self.window, window)
        answer = super().forward(parts.flatten(0, 1), mask=who, bias=distance, weights=weights)
        output, found = answer if isinstance(answer, tuple) else (answer, None)
        joined = _joined(output.unflatten(0, (len(inputs), -1)), window, whole.shape[2] // window)
        joined = joined.roll((shift, shift), (1, 2))[:, :rows, :columns].flatten(1, 2)
        return joined if found is None else (joined, found)

    def convert_projection(self, projection: str) -> MultiHead:
        raise ArgumentError("window attention is more than its maps, which are all that could be converted")

    def cut(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Window and shift on such a map: one no larger than a window is not shifted, there is nothing beyond it."""
        if min(grid) <= self.window:
            return min(grid), 0
        return self.window, self.window // 2 if self.shifted else 0


@dataclass(frozen=True, eq=False)
class WindowDistance(Bias):
    """One learned number for each head and each distance (rows, columns) between two places of a window."""

    table: Tensor  # [(2 window - 1)^2, head]
    window: int  # that the table was made for
    side: int  # rows and columns of the windows at hand: smaller ones have a part of the distances

    def evaluate(self, grid: Grid) -> axes.BiasValues:
        table = self.table[:, grid.heads.start : grid.heads.stop].to(grid.key.device)
        rows = grid.query // self.side - grid.key // self.side + self.window - 1
        columns = grid.query % self.side - grid.key % self.side + self.window - 1
        # [batch or 1, 1, query, key] -> [batch or 1, head, query, key]
        return table[(rows * (2 * self.window - 1) + columns).squeeze(1)].permute(0, 3, 1, 2)

    def check(self, grid: Grid) -> None:
        if self.table.shape[1] != len(grid.heads):
            raise ShapeError(
                f"the distances have numbers for {self.table.shape[1]} heads, but the query has {len(grid.heads)}"
            )
        for axis in ("query", "key"):
            grid.check_covered(axis, self.side**2, f"a window of {self.side} x {self.side}")

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


def window_places(grid: tuple[int, int], window: int, shift: int = 0) -> Int[Tensor, "window place"]:
    """Which place of a map (rows x columns, both whole windows, counted row by row) each window's places are.

    >>> window_places((4, 4), 2, 1)[0].tolist()
    [5, 6, 9, 10]
    """
    places = torch.arange(grid[0] * grid[1]).view(1, *grid, 1)
    return _windows(places.roll((-shift, -shift), (1, 2)), window)[0, :, :, 0]


def neighbours_only(grid: tuple[int, int], window: int, shift: int, batch: int) -> Mask:
    """Inside each window of a rolled map: only places that were neighbours before it was rolled. On the map itself
    this is ``mask.blocks((window, window), grid=grid, shift=(shift, shift))``."""
    places = window_places(grid, window, shift)
    rolled_rows, rolled_columns = places // grid[1] < shift, places % grid[1] < shift
    return mask.documents((2 * rolled_rows.long() + rolled_columns.long()).repeat(batch, 1))


def _windows(
    whole: Shaped[Tensor, "batch row column width"], window: int
) -> Shaped[Tensor, "batch window place width"]:
    return whole.unflatten(2, (-1, window)).unflatten(1, (-1, window)).transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _joined(
    parts: Float[Tensor, "batch window place width"], window: int, across: int
) -> Float[Tensor, "batch row column width"]:
    """What ``_windows`` took apart; ``across``: how many windows stand side by side."""
    split = parts.unflatten(2, (window, window)).unflatten(1, (-1, across))
    return split.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _drawn(parameter: Tensor) -> None:
    nn.init.trunc_normal_(parameter, std=0.02)


def _block(config: SwinConfig, stage: int, shifted: bool) -> EncoderBlock:
    width = config.stage_width(stage)
    attention = WindowAttention(
        width, config.heads[stage], config.window, shifted, bias=config.attention_bias, dropout=config.dropout
    )
    feedforward = FeedForward(width, max(1, int(config.ratio * width)), config.activation)
    return EncoderBlock(
        attention,
        feedforward,
        norm=lambda: LayerNorm(width, eps=config.epsilon),
        order="pre",
        dropout=config.dropout,
    )
