"""Draw images for tests."""

from __future__ import annotations

import numpy
from PIL import Image, ImageDraw


def draw_image(columns: int, rows: int, mode: str = "RGB") -> Image.Image:
    """Draw an image with edges, slopes and no symmetry; half transparent if the mode supports it."""
    generator = numpy.random.default_rng(columns * 1000 + rows)
    noise = generator.integers(0, 60, (rows, columns, 4))
    slope = numpy.add.outer(numpy.arange(rows), numpy.arange(columns))[..., None] * [1, 2, 3, 5] % 190
    image = Image.fromarray((noise + slope).astype(numpy.uint8))
    ImageDraw.Draw(image).ellipse((columns // 5, rows // 7, columns // 2, rows // 2), (250, 30, 90, 128))
    return image.convert(mode)
