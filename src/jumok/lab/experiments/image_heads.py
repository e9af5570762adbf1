"""Experiment ``images``: how far a convolution and attention see in one layer, and what the heads of a ViT look at.

The heads' weights are compared with three properties of two patches: similar colour, small distance, equal meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention import MultiHead
from jumok.bilingual_text import Texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.experiments.setups.toy_training import train_steps
from jumok.lab.result import Result, build_table, count_steps
from jumok.models.vit import ViT, ViTConfig
from jumok.reporting import Progress

TEXTS = Texts(__file__)

FULL: dict[str, Any] = {"steps": 800}
SIDE, GRID = 224, 14  # a photograph, and its patches in a ViT
PLANE, SHADOW = 1, 12  # the rows of the patches of a plane and of its shadow
PATCH, CELLS = 4, 6  # of the drawn images: pixels of a patch, patches of a side
TEXTURES = 4
BLOCKS, HEADS, WIDTH = 2, 4, 32
BATCH = 32
PROPERTIES = ("colour", "distance", "meaning")
CLEAR = 0.1  # a smaller correlation, or one within three times the control, names no head


@dataclass(frozen=True)
class ReachRow:
    """One kind of layer.

    Attributes:
        formula: After how many layers one output depends on the plane and on its shadow, by formula.
        measured: The same by gradients: the smallest number of layers with which both gradients are not 0.
    """

    kind: str
    formula: int
    measured: int


@dataclass(frozen=True)
class HeadRow:
    """One head: the correlation of its weights with each of ``PROPERTIES``, and with those of another image."""

    layer: int
    head: int
    correlations: tuple[float, ...]
    controls: tuple[float, ...]

    @property
    def kind(self) -> str:
        """The property with the largest correlation of either sign, or "mixed" if none is clear."""
        clear = [
            (abs(correlation), name)
            for name, correlation, control in zip(PROPERTIES, self.correlations, self.controls, strict=True)
            if abs(correlation) > max(CLEAR, 3 * abs(control))
        ]
        return max(clear)[1] if clear else "mixed"


class Gallery(NamedTuple):
    """Drawn images: three coloured squares with textures, two of them with the same texture.

    Attributes:
        labels: The texture that occurs twice.
        meanings: The texture of each patch; -1 for the background.
        squares: The number of each patch's square; -1 for the background.
    """

    images: Float[Tensor, "image colour row column"]
    labels: Int[Tensor, " image"]
    meanings: Int[Tensor, "image patch"]
    squares: Int[Tensor, "image patch"]


def measure_images(*, steps: int = 300, seed: int = 0, progress: Progress | None = None) -> Result:
    """Compare the reach of layers, then train a small ViT on drawn images and correlate its heads' weights.

    Args:
        steps: The training steps; the model names the texture that occurs twice, whatever its colours.
    """
    if steps < 1:
        raise ArgumentError("measure_images needs at least 1 step")
    count_step = count_steps(steps + 1, progress)
    reach = tuple(measure_reach(seed))
    count_step()
    torch.manual_seed(seed)
    config = ViTConfig(
        image=(PATCH * CELLS, PATCH * CELLS),
        patch=(PATCH, PATCH),
        width=WIDTH,
        layers=BLOCKS,
        heads=HEADS,
        hidden=2 * WIDTH,
        classes=TEXTURES,
    )
    model, generator = ViT(config), torch.Generator().manual_seed(seed)

    def compute_loss() -> Tensor:
        batch = draw_gallery(BATCH, generator)
        return nn.functional.cross_entropy(model(batch.images).logits, batch.labels)

    train_steps(model, compute_loss, steps=steps, learning_rate=2e-3, after_step=count_step)
    gallery = draw_gallery(200, torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        output = model(gallery.images, weights=True)
    accuracy = float((output.logits.argmax(-1) == gallery.labels).double().mean())
    heads = tuple(
        HeadRow(layer, head, *correlate_head(weights[:, head], gallery))
        for layer, weights in enumerate(output.weights)
        for head in range(HEADS)
    )
    return describe_images(seed, steps, accuracy, reach, heads)


def describe_images(
    seed: int, steps: int, accuracy: float, reach: tuple[ReachRow, ...], heads: tuple[HeadRow, ...]
) -> Result:
    """Say after how many layers the plane and its shadow meet, and which properties have a head."""
    names = TEXTS.group("kinds")
    tables = [
        build_table(TEXTS, "reach", ({"row": row, "name": names[row.kind]} for row in reach), side=SIDE, grid=GRID),
        build_table(
            TEXTS,
            "heads",
            ({"row": row, "name": names[row.kind]} for row in heads),
            steps=steps,
            accuracy=accuracy,
            chance=1 / TEXTURES,
        ),
    ]
    found_kinds = [row.kind for row in heads]
    differ = sum(min(row.correlations) < -CLEAR for row in heads)
    counts = {f"{name}_count": found_kinds.count(name) for name in (*PROPERTIES, "mixed")}
    sentences = [
        TEXTS("meet", first=reach[0], last=reach[-1]),
        TEXTS("kinds_of_heads", total=len(heads), differ=differ, **counts),
    ]
    exceptions = [TEXTS("no_head", name=names[name]) for name in PROPERTIES if name not in found_kinds]
    if accuracy < 0.9:
        exceptions.append(TEXTS("not_learned", accuracy=accuracy))
    numbers = {"seed": seed, "steps": steps, "accuracy": accuracy, "reach": reach, "heads": heads}
    return Result(numbers, tables, sentences, exceptions, partial(_draw_correlations, heads))


def _draw_correlations(heads: Sequence[HeadRow], target: str | Path, language: str) -> Path:
    labels, names = TEXTS.select("picture", language), TEXTS.select("kinds", language)
    lines = {
        names[name]: [(number, row.correlations[index]) for number, row in enumerate(heads, 1)]
        for index, name in enumerate(PROPERTIES)
    }
    return save_line_plot(lines, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def measure_reach(seed: int) -> list[ReachRow]:
    """Return the reach of convolutions on pixels, with stride 2, on patches, and of attention on patches."""
    torch.manual_seed(seed)
    patch = SIDE // GRID
    pixels = (SHADOW - PLANE) * patch
    ends = [row * patch + patch // 2 for row in (PLANE, SHADOW)]
    rows = []
    for kind, side, (first, last), stride, formula in (
        ("pixels", SIDE, ends, 1, math.ceil(pixels / 2)),
        ("strided", SIDE, ends, 2, math.ceil(math.log2(pixels + 2)) - 1),  # a field of 2^(layers + 1) - 1 pixels
        ("patches", GRID, (PLANE, SHADOW), 1, math.ceil((SHADOW - PLANE) / 2)),
    ):
        create_layer = partial(nn.Conv2d, 1, 1, 3, stride=stride, padding=1, bias=False, dtype=torch.float64)
        layers = [create_layer() for _ in range(formula - 3)]
        while not _see_both(nn.Sequential(*layers), side, first, last):
            layers.append(create_layer())
        rows.append(ReachRow(kind, formula, len(layers)))
    attention = MultiHead(8, 2)
    hidden = torch.randn(1, GRID**2, 8, requires_grad=True)
    shadow = SHADOW * GRID + GRID // 2
    (gradient,) = torch.autograd.grad(attention(hidden)[0, shadow].sum(), hidden)
    is_reached = bool(gradient[0, PLANE * GRID + GRID // 2].any())
    return [*rows, ReachRow("attention", 1, 1 if is_reached else 2)]


def _see_both(layers: nn.Module, side: int, first: int, last: int) -> bool:
    """Return whether some output in the middle column has a gradient at both rows of the middle column of the input."""
    inputs = torch.ones(1, 1, side, side, dtype=torch.float64, requires_grad=True)
    outputs = layers(inputs)[0, 0]
    count = outputs.shape[0]
    middle = count * (first + last) // (2 * side)
    for row in {middle, min(count - 1, middle + 1)}:
        (gradient,) = torch.autograd.grad(outputs[row, count // 2], inputs, retain_graph=True)
        if gradient[0, 0, first].any() and gradient[0, 0, last].any():
            return True
    return False


def draw_gallery(count: int, generator: torch.Generator) -> Gallery:
    """Draw images with three squares of 2 x 2 patches, in random colours, on a background of noise."""
    lines = torch.arange(PATCH)
    textures = torch.stack(
        [(lines[:, None] + 0 * lines) % 2, (lines + 0 * lines[:, None]) % 2, (lines[:, None] + lines) % 2]
    )
    textures = torch.cat([textures, (lines[:, None] // 2 + lines // 2)[None] % 2]).float()
    images = 0.1 * torch.rand(count, 3, PATCH * CELLS, PATCH * CELLS, generator=generator)
    labels = torch.randint(TEXTURES, (count,), generator=generator)
    meanings, squares = torch.full((2, count, CELLS, CELLS), -1)
    for index, label in enumerate(labels.tolist()):
        other = (label + int(torch.randint(1, TEXTURES, (), generator=generator))) % TEXTURES
        corners = torch.randperm((CELLS // 2) ** 2, generator=generator)[:3].tolist()
        for square, (corner, texture) in enumerate(zip(corners, (label, label, other), strict=True)):
            row, column = (2 * part for part in divmod(corner, CELLS // 2))
            colour = 0.2 + 0.8 * torch.rand(3, 1, 1, generator=generator)
            pixels = colour * (0.3 + 0.7 * textures[texture].repeat(2, 2))
            area = (slice(row * PATCH, (row + 2) * PATCH), slice(column * PATCH, (column + 2) * PATCH))
            images[(index, slice(None), *area)] = pixels
            meanings[index, row : row + 2, column : column + 2] = texture
            squares[index, row : row + 2, column : column + 2] = square
    return Gallery(images, labels, meanings.flatten(1), squares.flatten(1))


def correlate_head(
    weights: Float[Tensor, "image query key"], gallery: Gallery
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Correlate the weights between patches of different squares with the properties of their image, and, as a control,
    with those of the image before, whose patches are in another order."""
    prefix = weights.shape[-1] - CELLS**2
    patches = weights[:, prefix:, prefix:]
    properties = _compute_properties(gallery)
    # The background is dark, and patches of one square are alike in everything.
    is_square = gallery.squares >= 0
    is_other = gallery.squares[:, :, None] != gallery.squares[:, None]
    cells = is_square[:, :, None] & is_square[:, None] & is_other
    order = torch.randperm(CELLS**2, generator=torch.Generator().manual_seed(0))
    correlations = tuple(_correlate(patches[cells], table[cells]) for table in properties)
    controls = tuple(_correlate(patches[cells], table.roll(1, 0)[:, order][:, :, order][cells]) for table in properties)
    return correlations, controls


def _compute_properties(gallery: Gallery) -> list[Float[Tensor, "image query key"]]:
    """Return how similar two patches are in colour, how near, and whether they have the same texture."""
    images = nn.functional.avg_pool2d(gallery.images, PATCH).flatten(2).mT
    centres = torch.cartesian_prod(torch.arange(CELLS), torch.arange(CELLS)).float()
    distance = torch.cdist(centres, centres).expand(len(images), -1, -1)
    is_same = gallery.meanings[:, :, None] == gallery.meanings[:, None]
    return [-torch.cdist(images, images), -distance, is_same.float()]


def _correlate(first: Tensor, second: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([first, second]))[0, 1])
