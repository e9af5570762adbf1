"""Prepare images as a model expects: resize, crop and normalize, as described by preprocessor_config.json."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as abbreviate  # limits depth and length
from typing import Annotated, Any

import msgspec
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
UNSUPPORTED = {"default_to_square": False, "do_pad": True}  # settings of other processors


@dataclass(frozen=True)
class Preparation:
    """How images become a model's input: resize, center crop, rescale, subtract the mean, divide by the deviation.

    >>> from PIL import Image
    >>> Preparation((32, 48)).apply(Image.new("RGB", (100, 100))).shape
    torch.Size([3, 32, 48])
    """

    size: tuple[int, int] | None  # (rows, columns); None keeps the size of the image
    crop: tuple[int, int] | None = None  # (rows, columns); None crops nothing
    resampling: str = "bilinear"
    rescale: float = 1 / 255  # factor for pixels from 0 to 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel (1 or 3)
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
        mean, std = torch.tensor([self.mean, self.std])[..., None, None]
        return (pixels - mean) / std

    def restore(self, pixels: Pixels) -> UInt8[numpy.ndarray, "row column *channel"]:
        """Return a prepared image as bytes, as the model sees it: resized and cropped, but not normalized."""
        mean, std = torch.tensor([self.mean, self.std])[..., None, None]
        return _to_bytes((pixels.detach().float().cpu() * std + mean) / self.rescale)

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
        """Read the content of preprocessor_config.json; missing settings have the defaults of its processor."""
        try:
            read = msgspec.convert(settings, _Settings)
        except (msgspec.ValidationError, OverflowError) as error:
            raise ImageError(f"{PREPROCESSOR_FILE} has an unusable setting: {str(error)[:200]}") from None
        is_deit = read.is_deit
        for name, setting in UNSUPPORTED.items():
            if getattr(read, name) is setting:
                raise ImageError(f"{PREPROCESSOR_FILE} has {name} = {setting}; only {not setting} is supported")

        size = (256 if is_deit else 224) if read.size is None else read.size
        crop = 224 if read.crop_size is None else read.crop_size
        do_crop = is_deit if read.do_center_crop is None else read.do_center_crop
        resample = (3 if is_deit else 2) if read.resample is None else read.resample
        mean, std = (0.0,) * channels, (1.0,) * channels
        if read.do_normalize is not False:
            mean = _repeat_channels("image_mean", read.image_mean, channels)
            std = _repeat_channels("image_std", read.image_std, channels)
        rescale = 1 / 255 if read.rescale_factor is None else read.rescale_factor
        return Preparation(
            size=None if read.do_resize is False else _get_rows_and_columns(size),
            crop=_get_rows_and_columns(crop) if do_crop else None,
            resampling=RESAMPLINGS[resample],
            rescale=1.0 if read.do_rescale is False else rescale,
            mean=mean,
            std=std,
        )


class _Size(msgspec.Struct):
    height: int
    width: int


class _Settings(msgspec.Struct):
    """The content of preprocessor_config.json; None where the processor's default applies."""

    image_processor_type: str | None = None
    feature_extractor_type: str | None = None
    do_resize: bool | None = None
    size: int | _Size | None = None
    resample: Annotated[int, msgspec.Meta(ge=0, lt=len(RESAMPLINGS))] | None = None
    do_center_crop: bool | None = None
    crop_size: int | _Size | None = None
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: float | list[float] | None = None
    image_std: float | list[float] | None = None
    default_to_square: bool | None = None
    do_pad: bool | None = None
    size_divisor: None = None

    @property
    def is_deit(self) -> bool:
        """Whether the processor is DeiT's and not ViT's; its key changed over the years, the oldest files have none."""
        declared = self.image_processor_type or self.feature_extractor_type
        if declared is None:
            return bool(self.do_center_crop)
        name = declared.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
        if name not in ("ViTImageProcessor", "DeiTImageProcessor"):
            raise ImageError(
                f"{PREPROCESSOR_FILE} is for {abbreviate(declared)}; only ViTImageProcessor and DeiTImageProcessor are "
                "supported. Without the file, images are resized to the model's size with a mean and deviation of 0.5"
            )
        return name == "DeiTImageProcessor"


def _get_rows_and_columns(size: int | _Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size.height, size.width)


def _repeat_channels(name: str, numbers: float | list[float] | None, channels: int) -> tuple[float, ...]:
    """Return one number per channel; a single number is for all of them, and None is 0.5."""
    if not isinstance(numbers, list):
        return (0.5 if numbers is None else float(numbers),) * channels
    if len(numbers) != channels:
        raise ImageError(
            f"{name} in {PREPROCESSOR_FILE} has {len(numbers)} numbers, but the model reads {channels} channels"
        )
    return tuple(numbers)


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
