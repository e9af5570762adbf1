"""Images as sequences: cut into patches, row by row, and each patch mapped to a vector."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from jumok.errors import ArgumentError, ShapeError

Images = Float[Tensor, "batch channel row column"]


def compute_patch_grid(image: Sequence[int], patch: Sequence[int]) -> tuple[int, int]:
    """How many rows and columns of patches an image of (rows, columns) pixels has; refused where they do not divide.

    >>> patch_grid((30, 40), (5, 10))
    (6, 4)
    """
    for name, pair in (("an image", image), ("a patch", patch)):
        if len(pair) != 2 or min(pair) < 1:
            raise ShapeError(f"{name} is (rows, columns) of at least 1 pixel each, not {list(pair)}")
    if image[0] % patch[0] or image[1] % patch[1]:
        raise ShapeError(
            f"an image of {image[0]} x {image[1]} pixels does not divide into patches of {patch[0]} x {patch[1]}; "
            "resize or cut the image, or choose another patch"
        )
    return image[0] // patch[0], image[1] // patch[1]


def check_images(images: Tensor, channels: int) -> None:
    """Images [batch, channel, row, column] of numbers, with as many channels as the model reads; a sentence else."""
    if images.dim() != 4 or not images.is_floating_point():
        raise ShapeError(
            f"images must be floating-point numbers [batch, channel, row, column], not {images.dtype}"
            f"{list(images.shape)}"
        )
    if images.shape[1] != channels:
        raise ShapeError(f"this model reads images of {channels} channels, not {images.shape[1]} {list(images.shape)}")


class PatchEmbedding(nn.Module):
    """Every patch by one map to ``width`` numbers (Dosovitskiy et al. 2021): a convolution whose step is its size,
    which is a linear map of the patch's pixels. Patches need not be square.

    >>> import torch
    >>> Patches(3, 16, 768)(torch.randn(2, 3, 224, 224)).shape
    torch.Size([2, 196, 768])
    """

    def __init__(self, channels: int, patch: int | Sequence[int], width: int) -> None:
        super().__init__()
        sizes = (patch, patch) if isinstance(patch, int) else tuple(patch)
        if len(sizes) != 2 or min(*sizes, channels, width) < 1:
            raise ArgumentError(
                f"patches take at least 1 channel, (rows, columns) of at least 1 pixel and a width of at least 1, "
                f"not {channels}, {patch}, {width}"
            )
        self.patch = (sizes[0], sizes[1])
        self.map = nn.Conv2d(channels, width, self.patch, stride=self.patch)

    def forward(self, images: Images) -> Float[Tensor, "batch patch width"]:
        check_images(images, self.map.in_channels)
        compute_patch_grid(images.shape[2:], self.patch)
        mapped: Tensor = self.map(images.to(self.map.weight.dtype))
        return mapped.flatten(2).transpose(1, 2)
