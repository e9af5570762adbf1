"""Prepare images for training: resize and store them once, normalise them, and augment them at each step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import create_generator
from jumok.data.images.preparation import Preparation
from jumok.data.readers.lines import ProblemLog
from jumok.draw import save_gallery
from jumok.errors import DataError, ImageError
from jumok.files import replace_file
from jumok.models.captioner import CaptionerConfig
from jumok.models.swin import SwinConfig
from jumok.models.vit import ViTConfig
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.stored_data import load_tensors, save_tensors

IMAGES_FILE = "pictures.safetensors"
EXAMPLE_FILE = "example.png"

PixelBytes = UInt8[Tensor, "image channel row column"]
NormalisedImages = Float[Tensor, "image channel row column"]
Moves = Float[Tensor, "image 4"]
ImageConfig = ViTConfig | SwinConfig | CaptionerConfig


class LabelledPixels(NamedTuple):
    """Images of one size as bytes, each with its class or its caption."""

    pixels: PixelBytes
    texts: list[str]

    def select(self, indices: Iterable[int]) -> LabelledPixels:
        """Return the selected images."""
        chosen = list(indices)
        return LabelledPixels(self.pixels[chosen], [self.texts[index] for index in chosen])


def get_image_folder(request: TrainingRequest) -> str:
    """Return the user's folder of images; it need not exist any more if the run has stored the images."""
    is_stored = (request.folder / IMAGES_FILE).is_file()
    return str(request.data) if is_stored else request.require_files()


def load_or_resize_images(
    request: TrainingRequest, files: Iterable[tuple[Path, str]], preparation: Preparation, problems: ProblemLog
) -> LabelledPixels:
    """Resize images and store them in the run's folder; a resumed run reads them from there."""
    path = request.folder / IMAGES_FILE
    if path.is_file():
        return load_tensors(path, lambda tensors, metadata: LabelledPixels(tensors["pixels"], metadata["texts"]))
    pixels: list[Tensor] = []
    texts: list[str] = []
    for file, text in files:
        try:
            pixels.append(convert_to_bytes(file, preparation))
        except ImageError as error:
            problems.report(str(file), str(error).removeprefix(f"{file} "))
            continue
        texts.append(text)
        if len(texts) % 5000 == 0:
            request.show_message(f"{len(texts):,} images read")
    request.show_problems(problems)
    if not pixels:
        raise DataError(f"no image could be read: {problems}")
    images = LabelledPixels(torch.stack(pixels), texts)
    save_tensors(path, {"pixels": images.pixels}, texts=texts)
    return images


def convert_to_bytes(image: object, preparation: Preparation) -> UInt8[Tensor, "channel row column"]:
    """Resize an image and return its pixels as bytes."""
    channels = preparation.channels
    without_scaling = replace(preparation, rescale=1.0, mean=(0.0,) * channels, std=(1.0,) * channels)
    return without_scaling.apply(image).round().to(torch.uint8)


def normalise(pixels: PixelBytes, preparation: Preparation) -> NormalisedImages:
    """Convert pixel bytes to the normalised floats that a model reads."""
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (preparation.mean, preparation.std))
    return (pixels.float() * preparation.rescale - mean) / std


def create_preparation(config: ImageConfig, loaded: Loaded | None) -> Preparation:
    """Return the preparation of the loaded model, or one with the config's image size."""
    if loaded is not None and loaded.preparation is not None:
        return loaded.preparation
    rows, columns = config.image
    return Preparation((rows, columns), mean=(0.5,) * config.channels, std=(0.5,) * config.channels)


def measure_preparation(pixels: PixelBytes, preparation: Preparation) -> Preparation:
    """Return the preparation that gives each channel mean 0 and standard deviation 1 over these images."""
    channels = [channel.float() / 255 for channel in pixels.transpose(0, 1).flatten(1)]
    mean = tuple(round(float(channel.mean()), 4) for channel in channels)
    std = tuple(max(round(float(channel.std()), 4), 1e-3) for channel in channels)
    return replace(preparation, mean=mean, std=std)


def sample_moves(count: int, seed: int, step: int) -> Moves:
    """Draw the random augmentation of a step's images, numbers from -1 to 1, as a pure function of seed and step."""
    return torch.rand(count, 4, generator=create_generator(f"moves {seed} {step}")) * 2 - 1


def move_images(
    images: NormalisedImages, moves: Moves, *, shift: int = 0, turn: int = 0, flip: bool = False
) -> NormalisedImages:
    """Shift, rotate and mirror images; pixels from outside the image repeat its edge.

    Args:
        moves: Four numbers from -1 to 1 for each image: rotation, shift in columns, shift in rows, mirroring.
    """
    if not (shift or turn or flip):
        return images
    rows, columns = images.shape[2:]
    angle = moves[:, 0] * turn * math.pi / 180
    mirror = torch.where(moves[:, 3] < 0, -1.0, 1.0) if flip else torch.ones(len(moves))
    # affine_grid maps output coordinates to input coordinates, both from -1 to 1; without the row/column ratios a
    # rotation would shear an image that is not square
    to_columns = [angle.cos() * mirror, -angle.sin() * rows / columns, moves[:, 1] * shift * 2 / columns]
    to_rows = [angle.sin() * columns / rows * mirror, angle.cos(), moves[:, 2] * shift * 2 / rows]
    affine = torch.stack([torch.stack(to_columns, -1), torch.stack(to_rows, -1)], 1)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def convert_to_array(image: UInt8[Tensor, "channel row column"]) -> UInt8[Tensor, ...]:
    """Return an image as Pillow expects it: [row, column, channel], or [row, column] with one channel."""
    return image.permute(1, 2, 0).squeeze(-1)


def save_sheet(
    request: TrainingRequest, path: Path, pixels: PixelBytes, expected: list[str], predicted: list[str], title: str
) -> dict[str, str]:
    """Draw images with their expected and predicted texts, and return the report's field with the file's name."""
    images = [convert_to_array(image).numpy() for image in pixels]
    if images:
        with request.skip_undrawn(path.name):
            save_gallery(path, images, expected, predicted, title=title)
            return {"sheet": path.name}
    return {}


def save_example_image(folder: Path, pixels: PixelBytes) -> dict[str, str]:
    """Save the first image as a file to try the trained model on, and return the report's field with its name."""
    try:
        from PIL import Image
    except ImportError:  # without Pillow the example could not be used either
        return {}
    with replace_file(folder / EXAMPLE_FILE) as temporary:
        Image.fromarray(convert_to_array(pixels[0]).numpy()).save(temporary, "PNG")
    return {"try": EXAMPLE_FILE}
