"""The memory that reading a picture takes, by format and size of the model's input. Run: python bench/pictures.py

Prints the growth of the peak memory of a process that prepares one picture, in MB. The figures are in bench/results.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from PIL import Image

from measure import measure_peak_memory

PICTURES: dict[str, tuple[int, int, str, dict[str, bool | int]]] = {
    "photo-8.jpg": (3000, 2700, "RGB", {}),
    "photo-12.jpg": (4032, 3024, "RGB", {}),
    "photo-50.jpg": (8160, 6120, "RGB", {}),
    "progressive-12.jpg": (4032, 3024, "RGB", {"progressive": True}),
    "progressive-33.jpg": (6400, 5200, "RGB", {"progressive": True}),
    "screen-8.png": (3840, 2160, "RGBA", {"compress_level": 1}),
    "photo-12.png": (4032, 3024, "RGB", {"compress_level": 1}),
    "drawing-16.png": (4000, 4000, "RGBA", {"compress_level": 1}),
    "drawing-33.png": (6400, 5200, "RGBA", {"compress_level": 1}),
}
PROGRAM = """
from PIL import Image
from jumok.data.images.preparation import Preparation
from jumok.errors import ImageError
preparation = Preparation(({side}, {side}))
preparation.apply(Image.new("RGB", (64, 64)))  # load libraries before the mark
mark()
try:
    preparation.apply({path!r})
except ImageError:
    pass
"""


def main() -> None:
    """Measure every picture for models that read 32 x 32 and 224 x 224 pixels."""
    noise = torch.randint(256, (300, 400, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    small = Image.fromarray(noise.numpy())
    with tempfile.TemporaryDirectory() as folder:
        for name, (columns, rows, mode, settings) in PICTURES.items():
            path = Path(folder, name)
            small.resize((columns, rows)).convert(mode).save(path, **settings)
            peaks = [measure_peak_memory(PROGRAM.format(side=side, path=str(path))) / 2**20 for side in (32, 224)]
            print(f"{name}  32x32: {peaks[0]:.0f} MB  224x224: {peaks[1]:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
