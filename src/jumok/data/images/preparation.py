"""How a model wants its images: Preparation, and preprocessor_config.json, which says so in a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as short  # whose depth and length have bounds
from typing import Any

import torch

from jumok.errors import ImageError

from .image_files import Pixels, image_to_tensor, open_image

MOST_PIXELS = 4096 * 4096  # of what a model reads; a file that says more is wrong
# in the order of Pillow's own numbers, by which the file names them
RESAMPLINGS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
PREPROCESSOR_FILE = "preprocessor_config.json"


@dataclass(frozen=True)
class Preparation:
    """How a model wants its images: resized to ``size``, the middle cut out where there is a ``crop`` (both rows and
    columns), pixels of 0 to 255 times ``rescale``, then minus ``mean`` and divided by ``std``, a number a channel.

    >>> from PIL import Image
    >>> Preparation((32, 48)).tensor(Image.new("RGB", (100, 100))).shape
    torch.Size([3, 32, 48])
    """

    size: tuple[int, int] | None  # None = as the picture comes
    crop: tuple[int, int] | None = None
    resampling: str = "bilinear"
    rescale: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        for name in ("size", "crop"):
            pair = getattr(self, name)
            if pair is not None and (min(pair) < 1 or pair[0] * pair[1] > MOST_PIXELS):
                raise ImageError(
                    f"{name} of an image is (rows, columns), at least 1 of each and at most {MOST_PIXELS:,} pixels in "
                    f"all, not {short(pair)}"
                )
        if self.resampling not in RESAMPLINGS:
            raise ImageError(f"unknown resampling {self.resampling[:40]!r}; known are {', '.join(RESAMPLINGS)}")
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ImageError(
                f"mean and std need a number a channel, 1 or 3 of them, not {len(self.mean)} and {len(self.std)}"
            )
        if not all(1e-9 < abs(number) < 1e9 for number in (self.rescale, *self.std)):
            raise ImageError("rescale and std must be numbers that can be multiplied with and divided by, not 0")
        if not all(abs(number) < 1e9 for number in self.mean):
            raise ImageError("mean must be of finite numbers")

    @property
    def channels(self) -> int:
        return len(self.mean)

    def tensor(self, given: object) -> Pixels:
        """A file or a Pillow image, as the model wants it."""
        picture = open_image(given, self.channels)
        if self.size is not None:
            rows, columns = self.size
            picture = picture.resize((columns, rows), RESAMPLINGS.index(self.resampling))
        if self.crop is not None:
            rows, columns = self.crop
            top, left = (picture.height - rows) // 2, (picture.width - columns) // 2
            picture = picture.crop((left, top, left + columns, top + rows))  # black where the picture is smaller
        pixels = (image_to_tensor(picture).double() * self.rescale).float()
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (self.mean, self.std))
        return (pixels - mean) / std

    def to_json(self) -> dict[str, Any]:
        """As transformers' ViTImageProcessor and DeiTImageProcessor write it."""
        told: dict[str, Any] = {
            "image_processor_type": "ViTImageProcessor" if self.crop is None else "DeiTImageProcessor",
            "do_resize": self.size is not None,
            "size": None if self.size is None else {"height": self.size[0], "width": self.size[1]},
            "resample": RESAMPLINGS.index(self.resampling),
            "do_center_crop": self.crop is not None,
            "crop_size": None if self.crop is None else {"height": self.crop[0], "width": self.crop[1]},
            "do_rescale": True,
            "rescale_factor": self.rescale,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }
        return {name: value for name, value in told.items() if value is not None}

    @staticmethod
    def from_json(told: dict[str, Any], channels: int = 3) -> Preparation:
        """From preprocessor_config.json; what it leaves out is as the processor that it names has it."""
        deit = _kind(told) == "DeiTImageProcessor"
        side = 256 if deit else 224
        _refuse_unless(told, default_to_square=True, do_pad=False, size_divisor=None)
        size = _size(told, "size", side) if _truth(told, "do_resize", True) else None
        crop = _size(told, "crop_size", 224) if _truth(told, "do_center_crop", deit) else None
        resample = told.get("resample", 3 if deit else 2)
        if type(resample) is not int or not 0 <= resample < len(RESAMPLINGS):
            raise ImageError(f"resample in {PREPROCESSOR_FILE} must be a number from 0 to 5, not {short(resample)}")
        normal = _truth(told, "do_normalize", True)
        return Preparation(
            size,
            crop,
            RESAMPLINGS[resample],
            _number(told, "rescale_factor", 1 / 255) if _truth(told, "do_rescale", True) else 1.0,
            _numbers(told, "image_mean", channels) if normal else (0.0,) * channels,
            _numbers(told, "image_std", channels) if normal else (1.0,) * channels,
        )


def _kind(told: dict[str, Any]) -> str:
    """Which processor the file is of: the name has changed over the years, and the first files had none."""
    named = told.get("image_processor_type", told.get("feature_extractor_type"))
    if named is None:
        return "DeiTImageProcessor" if told.get("do_center_crop") else "ViTImageProcessor"
    kind = named if isinstance(named, str) else ""
    kind = kind.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
    if kind not in ("ViTImageProcessor", "DeiTImageProcessor"):
        raise ImageError(
            f"{PREPROCESSOR_FILE} is of a {short(named)}; known are ViTImageProcessor and DeiTImageProcessor. Without "
            "that file images are resized to the model's size, and their mean and deviation are taken as 0.5"
        )
    return kind


def _refuse_unless(told: dict[str, Any], **expected: Any) -> None:
    for name, value in expected.items():
        found = told.get(name)
        if found is not None and found != value:
            raise ImageError(f"{PREPROCESSOR_FILE} has {name} = {short(found)}; only {value!r} is known")


def _truth(told: dict[str, Any], name: str, default: bool) -> bool:
    found = told.get(name)
    if found is not None and not isinstance(found, bool):
        raise ImageError(f"{name} in {PREPROCESSOR_FILE} must be true or false, not {short(found)}")
    return default if found is None else found


def _size(told: dict[str, Any], name: str, default: int) -> tuple[int, int]:
    """Rows and columns: one number for both, or {"height": ..., "width": ...}."""
    found = told.get(name)
    if found is None:
        found = default
    pair = [found, found]
    if isinstance(found, dict):
        pair = [found.get("height"), found.get("width")]
    if not all(type(side) is int for side in pair):
        raise ImageError(
            f"{name} in {PREPROCESSOR_FILE} must be one whole number, or a height and a width, not {short(found)}"
        )
    return pair[0], pair[1]


def _number(told: dict[str, Any], name: str, default: float) -> float:
    found = told.get(name)
    whole = isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**53
    if found is not None and not whole and not isinstance(found, float):
        raise ImageError(f"{name} in {PREPROCESSOR_FILE} must be a number, not {short(found)}")
    return default if found is None else float(found)


def _numbers(told: dict[str, Any], name: str, channels: int) -> tuple[float, ...]:
    """A number a channel, or one for all."""
    found = told.get(name)
    if not isinstance(found, list):
        return (_number(told, name, 0.5),) * channels
    if len(found) != channels:
        raise ImageError(
            f"{name} in {PREPROCESSOR_FILE} has {len(found)} numbers, but the model reads {channels} channels"
        )
    return tuple(_number({name: one}, name, 0.5) for one in found)
