"""Images as sequences: an image is cut into patches, row by row, and each patch is mapped to a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError, ShapeError

Images = Float[Tensor, "batch channel row column"]


@dataclass(frozen=True, eq=False)
class PatchLayout:
    """Where the positions of an attention lie in an image."""

    grid: tuple[int, int]
    patch: tuple[int, int]  # in pixels; patches at the right and lower edge may reach beyond the image
    prefix: tuple[str, ...] = ()
    windows: Int[Tensor, "window patch"] | None = None  # the patches in every window, -1 for padding; None: no windows


def compute_patch_grid(image: Sequence[int], patch: Sequence[int]) -> tuple[int, int]:
    """Return how many rows and columns of patches an image has.

    >>> compute_patch_grid((30, 40), (5, 10))
    (6, 4)
    """
    for name, sides in (("an image", image), ("a patch", patch)):
        if len(sides) != 2 or min(sides) < 1:
            raise ShapeError(f"{name} must be (rows, columns) of at least 1 pixel each, not {list(sides)}")
    if image[0] % patch[0] or image[1] % patch[1]:
        raise ShapeError(
            f"an image of {image[0]} x {image[1]} pixels cannot be split evenly into patches of "
            f"{patch[0]} x {patch[1]}; resize or crop the image, or choose another patch size"
        )
    return image[0] // patch[0], image[1] // patch[1]


def check_images(images: Tensor, channels: int, size: Sequence[int] | None = None) -> None:
    """Raise ShapeError unless the images are floating-point numbers with this many channels, and have the size for
    which the model has learned positions, if there is one."""
    if images.dim() != 4 or not images.is_floating_point():
        raise ShapeError(
            f"images must be floating-point numbers [batch, channel, row, column], not {images.dtype}"
            f"{list(images.shape)}"
        )
    if images.shape[1] != channels:
        raise ShapeError(f"this model reads images of {channels} channels, not {images.shape[1]} {list(images.shape)}")
    if size is not None and tuple(images.shape[2:]) != tuple(size):
        raise ShapeError(
            f"this model has learned positions for images of {size[0]} x {size[1]} pixels, not "
            f"{images.shape[2]} x {images.shape[3]}; resize the images"
        )


class PatchEmbedding(nn.Module):
    """A linear map from each patch to ``width`` numbers (Dosovitskiy et al. 2021).

    The map is computed as a convolution whose stride is its size. Patches need not be square.

    Args:
        channels: Number of channels of the images.
        patch: Side of a square patch, or (rows, columns), in pixels.
        width: Width of the vectors.

    >>> import torch
    >>> PatchEmbedding(3, 16, 768)(torch.randn(2, 3, 224, 224)).shape
    torch.Size([2, 196, 768])
    """

    def __init__(self, channels: int, patch: int | Sequence[int], width: int) -> None:
        super().__init__()
        sizes = (patch, patch) if isinstance(patch, int) else tuple(patch)
        if len(sizes) != 2 or min(*sizes, channels, width) < 1:
            raise ArgumentError(
                "channels, patch and width must be at least 1, and patch an integer or (rows, columns); "
                f"not {channels}, {patch}, {width}"
            )
        self.patch = (sizes[0], sizes[1])
        self.map = nn.Conv2d(channels, width, self.patch, stride=self.patch)

    def forward(self, images: Images) -> Float[Tensor, "batch patch width"]:
        """Return one vector per patch, row by row, ``[batch, patch, width]``.

        Args:
            images: Images, ``[batch, channel, row, column]``.
        """
        check_images(images, self.map.in_channels)
        compute_patch_grid(images.shape[2:], self.patch)
        mapped: Tensor = self.map(images.to(self.map.weight.dtype))
        return mapped.flatten(2).transpose(1, 2)
