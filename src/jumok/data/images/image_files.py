"""Pictures as numbers: a file, which may be hostile, becomes a tensor [channel, row, column]."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
MOST_PIXELS = 64_000_000
LARGEST_FILE = 512 * 2**20

Pixels = Float[Tensor, "channel row column"]
Picture = Any  # PIL.Image.Image: Pillow is imported when a picture is read, not before


def read_image(given: object, channels: int = 3) -> Pixels:
    """A picture (a file, or a Pillow image) as numbers from 0 to 1; 3 channels are red, green, blue, and 1 is grey."""
    return image_to_tensor(open_image(given, channels)).float() / 255


def open_image(given: object, channels: int = 3) -> Picture:
    """A file, or a Pillow image, as one of 8 bits: upright, on white where it is transparent, RGB or grey.

    A file is hostile until proven otherwise: only five formats are read, the size that its header tells is checked
    before a pixel is, and what is damaged is refused.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ImageError("reading pictures needs one more package: pip install 'jumok[images]'") from None
    if channels not in (1, 3):
        raise ImageError(f"a picture has 3 channels, or 1 for grey, not {channels}")
    if isinstance(given, Image.Image):
        return _decoded("the picture", lambda: given, channels)
    if not isinstance(given, str | Path):
        raise ImageError(f"a picture is a path, a Pillow image or a tensor, not a {type(given).__name__}")
    path = Path(given)
    if not is_existing_file(path):
        raise ImageError(f"there is no file {str(path)[:200]!r}; give the path of a picture ({', '.join(ENDINGS)})")
    if path.stat().st_size > LARGEST_FILE:
        raise ImageError(f"{path} has {path.stat().st_size:,} bytes; pictures of up to {LARGEST_FILE:,} are read")
    if not path.stat().st_size:
        raise ImageError(f"{path} is empty: it has no bytes, and so no picture")
    with path.open("rb") as file:
        return _decoded(str(path), lambda: Image.open(file, formats=FORMATS), channels)


def is_image_path(text: str) -> bool:
    """Whether a text is the path of a picture that is there."""
    return text.lower().endswith(ENDINGS) and is_existing_file(Path(text))


def is_existing_file(path: Path) -> bool:
    """Whether there is such a file; a text that no file can be called is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _decoded(name: str, opened: Callable[[], Picture], channels: int) -> Picture:
    from PIL import Image, ImageOps, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd but readable files
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            picture = opened()
            if picture.width * picture.height > MOST_PIXELS:
                raise Image.DecompressionBombError
            picture.load()
            return _flat(ImageOps.exif_transpose(picture), channels)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise ImageError(f"{name} has more than {MOST_PIXELS:,} pixels; make it smaller") from None
        except UnidentifiedImageError:
            raise ImageError(f"{name} is not a picture that can be read; known are {', '.join(FORMATS)}") from None
        except ImageError:
            raise
        except Exception as wrong:  # whatever a decoder says of an untrusted file
            raise ImageError(f"{name} is damaged and cannot be read: {str(wrong)[:200]}") from None


def _flat(picture: Picture, channels: int) -> Picture:
    """Without a palette, without transparency, 8 bits a number."""
    from PIL import Image

    if picture.mode.startswith("I"):  # 16 bits of grey; Pillow would cut where it should scale
        numbers = numpy.asarray(picture).astype(numpy.float32) / 257
        picture = Image.fromarray(numbers.clip(0, 255).round().astype(numpy.uint8))
    elif picture.mode == "F":
        raise ImageError("a picture of real numbers says nothing of its black and white; give a tensor")
    elif picture.has_transparency_data:
        on_white = Image.new("RGBA", picture.size, "white")
        on_white.alpha_composite(picture.convert("RGBA"))
        picture = on_white
    elif picture.mode not in ("L", "RGB"):
        picture = picture.convert("RGB")
    return picture.convert("RGB" if channels == 3 else "L")


def image_to_tensor(picture: Picture) -> Tensor:
    """[channel, row, column] of 0 to 255."""
    pixels = torch.from_numpy(numpy.array(picture))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
