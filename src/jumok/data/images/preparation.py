"""Prepare images as a model expects: resize, crop and normalize, as described by preprocessor_config.json."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as abbreviate  # limits depth and length
from typing import Any

import numpy
import torch
from jaxtyping import UInt8

from jumok.data.images.image_files import Pixels, image_to_tensor, open_image
from jumok.errors import ImageError

MAX_INPUT_PIXELS = 4096 * 4096  # limit for a model's input
MAX_OVERSIZE = 8  # how much longer than the model's input the sides may be before the crop
# index = Pillow's number of the filter, as stored in preprocessor_config.json
RESAMPLINGS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
PREPROCESSOR_FILE = "preprocessor_config.json"


@dataclass(frozen=True)
class Preparation:
    """How images become a model's input: resize, center crop, rescale, subtract the mean, divide by the deviation.

    Attributes:
        size: (rows, columns) to resize to; None keeps the size of the image.
        crop: (rows, columns) of the center crop; None crops nothing.
        rescale: Factor for pixels from 0 to 255.
        mean: One number per channel (1 or 3), subtracted after rescaling.
        std: One number per channel to divide by.

    >>> from PIL import Image
    >>> Preparation((32, 48)).apply(Image.new("RGB", (100, 100))).shape
    torch.Size([3, 32, 48])
    """

    size: tuple[int, int] | None
    crop: tuple[int, int] | None = None
    resampling: str = "bilinear"
    rescale: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        for name, pair in (("size", self.size), ("crop", self.crop)):
            if pair is not None and (min(pair) < 1 or pair[0] * pair[1] > MAX_INPUT_PIXELS):
                raise ImageError(
                    f"{name} must be (rows, columns) of at least 1 each and at most {MAX_INPUT_PIXELS:,} pixels in "
                    f"total, not {abbreviate(pair)}"
                )
        if self.resampling not in RESAMPLINGS:
            raise ImageError(f"unknown resampling {self.resampling[:40]!r}; choose one of {', '.join(RESAMPLINGS)}")
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ImageError(
                f"mean and std need one number per channel, 1 or 3, not {len(self.mean)} and {len(self.std)}"
            )
        if not all(1e-9 < abs(number) < 1e9 for number in (self.rescale, *self.std)):
            raise ImageError("rescale and std must be finite and not 0")
        if not all(abs(number) < 1e9 for number in self.mean):
            raise ImageError("mean must be finite")

    @property
    def channels(self) -> int:
        """Number of channels: 3 for RGB, 1 for grey."""
        return len(self.mean)

    def apply(self, image: object) -> Pixels:
        """Prepare an image: the path of a file, or a Pillow image."""
        pillow_image = open_image(image, self.channels, self.size)
        if self.size is not None:
            rows, columns = self.size
            pillow_image = pillow_image.resize((columns, rows), RESAMPLINGS.index(self.resampling))
        if self.crop is not None:
            rows, columns = self.crop
            top = (pillow_image.height - rows) // 2
            left = (pillow_image.width - columns) // 2
            # black where the crop exceeds the image
            pillow_image = pillow_image.crop((left, top, left + columns, top + rows))

        pixels = (image_to_tensor(pillow_image).double() * self.rescale).float()
        mean = torch.tensor(self.mean)[:, None, None]
        std = torch.tensor(self.std)[:, None, None]
        return (pixels - mean) / std

    def restore(self, pixels: Pixels) -> UInt8[numpy.ndarray, "row column *channel"]:
        """Return a prepared image as bytes, as the model sees it: resized and cropped, but not normalized."""
        mean = torch.tensor(self.mean)[:, None, None]
        std = torch.tensor(self.std)[:, None, None]
        restored = (pixels.detach().float().cpu() * std + mean) / self.rescale
        return _to_bytes(restored)

    def check_model_size(self, model_size: tuple[int, int]) -> None:
        """Raise an error if images are resized or cropped to far more pixels than the model reads."""
        for name, pair in (("size", self.size), ("crop_size", self.crop)):
            if pair is not None and max(pair) > MAX_OVERSIZE * max(model_size):
                raise ImageError(
                    f"{name} in {PREPROCESSOR_FILE} is {pair[0]:,} x {pair[1]:,} pixels, but the model reads "
                    f"{model_size[0]:,} x {model_size[1]:,}; the limit is {MAX_OVERSIZE} times that"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the content of preprocessor_config.json, as transformers' image processors write it."""
        settings: dict[str, Any] = {
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
        return {name: setting for name, setting in settings.items() if setting is not None}

    @staticmethod
    def from_json(settings: dict[str, Any], channels: int = 3) -> Preparation:
        """Read the content of preprocessor_config.json.

        Args:
            settings: The content; missing settings have the defaults of the processor that it names.
        """
        is_deit = _read_processor_type(settings) == "DeiTImageProcessor"
        default_size = 256 if is_deit else 224
        _require_settings(settings, {"default_to_square": True, "do_pad": False, "size_divisor": None})

        resample = settings.get("resample", 3 if is_deit else 2)
        if type(resample) is not int or not 0 <= resample < len(RESAMPLINGS):
            raise ImageError(
                f"resample in {PREPROCESSOR_FILE} must be an integer from 0 to 5, not {abbreviate(resample)}"
            )

        do_normalize = _read_flag(settings, "do_normalize", True)
        return Preparation(
            size=_read_size(settings, "size", default_size) if _read_flag(settings, "do_resize", True) else None,
            crop=_read_size(settings, "crop_size", 224) if _read_flag(settings, "do_center_crop", is_deit) else None,
            resampling=RESAMPLINGS[resample],
            rescale=(
                _read_number(settings, "rescale_factor", 1 / 255) if _read_flag(settings, "do_rescale", True) else 1.0
            ),
            mean=_read_channels(settings, "image_mean", channels) if do_normalize else (0.0,) * channels,
            std=_read_channels(settings, "image_std", channels) if do_normalize else (1.0,) * channels,
        )


def stretch_pixels(pixels: Pixels) -> UInt8[numpy.ndarray, "row column *channel"]:
    """Return an image as bytes if its normalization is not known: the darkest pixel black, the brightest white."""
    pixels = pixels.detach().float().cpu()
    if pixels.shape[0] != 3:
        pixels = pixels.mean(0, keepdim=True)
    lowest, highest = pixels.min(), pixels.max()
    return _to_bytes((pixels - lowest) / (highest - lowest).clamp(min=1e-12) * 255)


def _to_bytes(pixels: Pixels) -> UInt8[numpy.ndarray, "row column *channel"]:
    array: numpy.ndarray = pixels.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    return array[..., 0] if array.shape[2] == 1 else array


def _read_processor_type(settings: dict[str, Any]) -> str:
    """Return the name of the processor; its key changed over the years, and the oldest files have none."""
    declared = settings.get("image_processor_type", settings.get("feature_extractor_type"))
    if declared is None:
        return "DeiTImageProcessor" if settings.get("do_center_crop") else "ViTImageProcessor"

    name = declared if isinstance(declared, str) else ""
    name = name.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
    if name not in ("ViTImageProcessor", "DeiTImageProcessor"):
        raise ImageError(
            f"{PREPROCESSOR_FILE} is for {abbreviate(declared)}; only ViTImageProcessor and DeiTImageProcessor are "
            "supported. Without the file, images are resized to the model's size with a mean and deviation of 0.5"
        )
    return name


def _require_settings(settings: dict[str, Any], expected: dict[str, bool | None]) -> None:
    """Refuse settings that are present and differ from the only supported ones."""
    for name, supported in expected.items():
        setting = settings.get(name)
        if setting is not None and setting != supported:
            raise ImageError(f"{PREPROCESSOR_FILE} has {name} = {abbreviate(setting)}; only {supported!r} is supported")


def _read_flag(settings: dict[str, Any], name: str, default: bool) -> bool:
    flag = settings.get(name)
    if flag is None:
        return default
    if not isinstance(flag, bool):
        raise ImageError(f"{name} in {PREPROCESSOR_FILE} must be true or false, not {abbreviate(flag)}")
    return flag


def _read_size(settings: dict[str, Any], name: str, default: int) -> tuple[int, int]:
    """Read rows and columns: one integer for both, or {"height": ..., "width": ...}."""
    size = settings.get(name)
    if size is None:
        size = default
    height, width = (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)
    if type(height) is not int or type(width) is not int:
        raise ImageError(
            f"{name} in {PREPROCESSOR_FILE} must be an integer, or a height and a width, not {abbreviate(size)}"
        )
    return height, width


def _read_number(settings: dict[str, Any], name: str, default: float) -> float:
    number = settings.get(name)
    if number is None:
        return default
    is_exact_integer = isinstance(number, int) and not isinstance(number, bool) and abs(number) < 2**53
    if not is_exact_integer and not isinstance(number, float):
        raise ImageError(f"{name} in {PREPROCESSOR_FILE} must be a number, not {abbreviate(number)}")
    return float(number)


def _read_channels(settings: dict[str, Any], name: str, channels: int) -> tuple[float, ...]:
    """Read one number per channel, or one number for all."""
    numbers = settings.get(name)
    if not isinstance(numbers, list):
        return (_read_number(settings, name, 0.5),) * channels
    if len(numbers) != channels:
        raise ImageError(
            f"{name} in {PREPROCESSOR_FILE} has {len(numbers)} numbers, but the model reads {channels} channels"
        )
    return tuple(_read_number({name: number}, name, 0.5) for number in numbers)
