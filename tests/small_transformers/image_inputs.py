"""Build images and videos as the config of a vision model describes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .config_tree import find_field
from .text_inputs import BATCH

DEFAULT_SIZE = 64
GRID = 4  # patches per side of an image that is given as a list of patches
FRAMES = 4


def draw_noise(*shape: int, seed: int = 1) -> Tensor:
    """Draw standard normal numbers.

    Args:
        shape: The shape of the tensor.
        seed: The seed of the random numbers.
    """
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def list_image_inputs(config: PreTrainedConfig, names: set[str]) -> list[dict[str, Tensor]]:
    """List the ways in which a model may expect its images; the first that the model accepts is used.

    Args:
        config: The config of the model.
        names: The parameters of the model's ``forward``.
    """
    if "image_grid_thw" in names or "grid_thw" in names:
        return [_build_patches(config, names)]
    rows, columns = get_image_size(config)
    channels = _get_integer(config, 3, "num_channels", "in_channels", "in_chans", "channels")
    images = draw_noise(BATCH, channels, rows, columns)
    frames = _get_integer(config, FRAMES, "num_frames", "frames_per_clip")
    videos = draw_noise(BATCH, frames, channels, rows, columns)
    several = images[:, None]
    pairs = torch.stack([images, images.flip(0)], 1)
    if "pixel_values_videos" in names and "pixel_values" not in names:
        return [{"pixel_values_videos": videos}]
    layouts = [videos, images] if find_field(config, "tubelet_size", "num_frames") else [images, several, pairs, videos]
    inputs = [{"pixel_values": layout} for layout in layouts]
    if "image_sizes" in names:
        sizes = torch.tensor([[rows, columns]] * BATCH)
        inputs = [
            {"pixel_values": several.repeat(1, 2, 1, 1, 1), "image_sizes": sizes},
            *({**layout, "image_sizes": sizes} for layout in inputs),
            *inputs,
        ]
    return inputs


def get_image_size(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the rows and columns of the images that a config describes.

    Args:
        config: The config of the model.
    """
    size = find_field(config, "image_size", "img_size", "input_size")
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) >= 2:
        return int(size[-2]), int(size[-1])
    return DEFAULT_SIZE, DEFAULT_SIZE


def _build_patches(config: PreTrainedConfig, names: set[str]) -> dict[str, Tensor]:
    """Build images as flat lists of patches with the grid of each image, as Qwen-VL reads them."""
    vision = getattr(config, "vision_config", config)
    patch = _get_integer(vision, 14, "patch_size", "spatial_patch_size")
    channels = _get_integer(vision, 3, "in_channels", "num_channels", "in_chans")
    depth = _get_integer(vision, 1, "temporal_patch_size")
    patches = draw_noise(BATCH * GRID * GRID, channels * depth * patch * patch)
    grid = torch.tensor([[1, GRID, GRID]] * BATCH)
    if "image_grid_thw" in names:
        return {"pixel_values": patches, "image_grid_thw": grid}
    return {"hidden_states" if "hidden_states" in names else "pixel_values": patches, "grid_thw": grid}


def _get_integer(config: PreTrainedConfig, default: int, *names: str) -> int:
    """Return the first of several fields if it is an integer, else the default."""
    entry: Any = find_field(config, *names)
    return entry if isinstance(entry, int) else default
