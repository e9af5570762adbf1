"""Read image files, which are not trusted, as tensors [channel, row, column]."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.defaults import IMAGE_EXTENSIONS
from jumok.errors import ImageError, describe_type

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage  # Pillow is imported only when an image is read

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 64_000_000
MAX_FILE_SIZE = 512 * 2**20  # bytes
# Limits for images that a model will read at a smaller size. Pillow needs 4 bytes for each decoded pixel, and as many
# again for each conversion; a progressive JPEG needs up to 6, at any size that it is decoded at.
LARGE_IMAGE_PIXELS = 2**21  # above full HD, an image is reduced by averaging squares before all other steps
MAX_DECODED_SHARE = 256  # a file is decoded in full if it has at most this many times the pixels that the model reads,
MIN_DECODED_PIXELS = 2**23  # or this many, so that a small model reads the picture of a 4K screen
# EXIF orientation -> Pillow's transposition
ORIENTATION = 0x0112
TRANSPOSITIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}

Pixels = Float[Tensor, "channel row column"]


def open_image(image: object, channels: int = 3, fit: tuple[int, int] | None = None) -> PillowImage:
    """Read an image as an 8-bit Pillow image: rotated by its EXIF orientation, transparency blended onto white.

    Files are not trusted: only five formats are read, the size in the header is checked before the pixels are decoded,
    and damaged files are refused.

    A large image is reduced while it is read, to at least four times the (rows, columns) of ``fit``, which it will be
    resized to, and one that cannot be reduced so is refused: the memory depends on this size and not on the file.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImageError('reading images needs Pillow; install it with: pip install "jumok[images]"') from None
    if channels not in (1, 3):
        raise ImageError(f"channels must be 3 (RGB) or 1 (grey), not {channels}")

    if isinstance(image, Image.Image):
        pillow_image = image
        return _decode("the image", lambda: pillow_image, channels, fit)
    if not isinstance(image, str | Path):
        raise ImageError(f"an image must be a path, a Pillow image or a tensor, not {describe_type(image)}")

    path = Path(image)
    if not is_existing_file(path):
        extensions = ", ".join(IMAGE_EXTENSIONS)
        raise ImageError(f"there is no file {str(path)[:200]!r}; give the path of an image ({extensions})")
    size = path.stat().st_size
    if size > MAX_FILE_SIZE:
        raise ImageError(f"{path} has {size:,} bytes; the limit for images is {MAX_FILE_SIZE:,}")
    if not size:
        raise ImageError(f"{path} is an empty file, not an image")
    with path.open("rb") as file:
        return _decode(str(path), lambda: Image.open(file, formats=FORMATS), channels, fit)


def is_image_path(text: str) -> bool:
    """Return whether a text is the path of an existing image file, by its extension."""
    return text.lower().endswith(IMAGE_EXTENSIONS) and is_existing_file(Path(text))


def is_existing_file(path: Path) -> bool:
    """Return whether a file exists; False for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _decode(
    name: str, open_source: Callable[[], PillowImage], channels: int, fit: tuple[int, int] | None
) -> PillowImage:
    """Decode an image within the limits; turn all errors into ImageError."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about unusual but readable files
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = open_source()
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if fit is not None and image.width * image.height > LARGE_IMAGE_PIXELS:
                return _decode_large(name, image, channels, fit)
            image.load()
            return _flatten(ImageOps.exif_transpose(image), channels)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise ImageError(f"{name} has more than {MAX_PIXELS:,} pixels; make it smaller") from None
        except UnidentifiedImageError:
            raise ImageError(f"{name} is not a readable image; supported formats are {', '.join(FORMATS)}") from None
        except ImageError:
            raise
        except Exception as error:  # decoders raise many kinds of errors on untrusted files
            raise ImageError(f"{name} is damaged and cannot be decoded: {str(error)[:200]}") from None


def _decode_large(name: str, image: PillowImage, channels: int, fit: tuple[int, int]) -> PillowImage:
    """Decode an image of many pixels in little memory: reduced to at least four times the size that it is needed in."""
    from PIL import Image

    side = 4 * max(fit)
    if getattr(image, "tile", None):  # a file that is not decoded yet
        pixels, is_progressive = image.width * image.height, bool(image.info.get("progressive"))
        if image.format == "JPEG":
            image.draft(None, (side, side))
        decoded = pixels if is_progressive else image.width * image.height
        limit = max(MIN_DECODED_PIXELS, MAX_DECODED_SHARE * fit[0] * fit[1], side * side)
        if decoded > limit:
            kind = f"{'progressive ' if is_progressive else ''}{image.format}"
            longest = math.isqrt(limit)
            raise ImageError(
                f"{name} has {pixels:,} pixels; of a {kind} file, at most {limit:,} are decoded for a model that reads "
                f"{fit[0]} x {fit[1]} pixels; shrink it to {longest:,} x {longest:,}, or save it as a JPEG that is not "
                "progressive, which is read at a fraction of its size"
            )
    image.load()
    factor = max(1, min(image.width, image.height) // side)
    rows = max(factor, 2**20 // image.width // factor * factor)
    reduced = Image.new(
        "RGB" if channels == 3 else "L", (-(-image.width // factor), -(-image.height // factor)), "white"
    )
    for top in range(0, image.height, rows):  # strips, because each conversion copies its image
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        reduced.paste(_flatten(strip, channels).reduce(factor), (0, top // factor))
    transposition = TRANSPOSITIONS.get(image.getexif().get(ORIENTATION, 1))
    return reduced if transposition is None else reduced.transpose(Image.Transpose(transposition))


def _flatten(image: PillowImage, channels: int) -> PillowImage:
    """Remove the palette and transparency, and convert to 8 bits per channel."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits of grey; Pillow would clip where it should scale
        numbers = numpy.asarray(image).astype(numpy.float32) / 257
        image = Image.fromarray(numbers.clip(0, 255).round().astype(numpy.uint8))
    elif image.mode == "F":
        raise ImageError("floating-point images have no defined range of values; pass a tensor instead")
    elif image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        background.alpha_composite(image.convert("RGBA"))
        image = background
    elif image.mode not in ("L", "RGB"):
        image = image.convert("RGB")
    return image.convert("RGB" if channels == 3 else "L")


def image_to_tensor(image: PillowImage) -> Tensor:
    """Convert a Pillow image to a tensor [channel, row, column] of integers from 0 to 255."""
    pixels = torch.from_numpy(numpy.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
