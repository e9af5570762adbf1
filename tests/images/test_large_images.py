"""Large images are read in memory that depends on the model's input and not on the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from jumok.data.images import image_files
from jumok.data.images.image_files import open_image
from jumok.data.images.preparation import Preparation
from jumok.errors import ImageError

SMALL = Preparation((32, 32))


@pytest.fixture
def _low_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat images of half a million pixels as large, so that the tests are quick."""
    monkeypatch.setattr(image_files, "LARGE_IMAGE_PIXELS", 2**19)


def build_large(columns: int, rows: int, mode: str = "RGB") -> Image.Image:
    """Return a large image of four coloured quarters."""
    colours = Image.new("RGB", (2, 2))
    colours.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)])
    return colours.convert(mode).resize((columns, rows), Image.Resampling.NEAREST)


@pytest.mark.usefixtures("_low_threshold")
@pytest.mark.parametrize(
    ("name", "mode", "settings"),
    [
        ("a.jpg", "RGB", {}),
        ("progressive.jpg", "RGB", {"progressive": True}),
        ("grey.jpg", "L", {}),
        ("a.png", "RGB", {"compress_level": 1}),
        ("palette.png", "P", {"compress_level": 1}),
        ("alpha.png", "RGBA", {"compress_level": 1}),
    ],
)
def test_a_large_image_is_prepared_like_a_small_one(
    name: str, mode: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    columns, rows = 1301, 900
    build_large(columns, rows, mode).save(tmp_path / name, **settings)
    expected = SMALL.apply(build_large(columns // 3, rows // 3, mode))
    assert (SMALL.apply(tmp_path / name) - expected).abs().mean() < 0.02
    assert open_image(tmp_path / name, fit=(32, 32)).width < 500
    assert open_image(tmp_path / name).size == (columns, rows)  # without a size to fit, nothing is reduced


@pytest.mark.usefixtures("_low_threshold")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_large_image_is_rotated_like_a_small_one(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    build_large(1301, 900).save(tmp_path / "large.jpg", exif=exif)
    build_large(434, 300).save(tmp_path / "small.jpg", exif=exif)
    difference = SMALL.apply(tmp_path / "large.jpg") - SMALL.apply(tmp_path / "small.jpg")
    assert difference.abs().mean() < 0.02


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [("a.png", {"compress_level": 1}, "a PNG file"), ("a.jpg", {"progressive": True}, "a progressive JPEG file")],
)
def test_an_image_that_must_be_decoded_in_full_has_a_limit(
    name: str, settings: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    build_large(3000, 2800).save(tmp_path / name, **settings)
    message = (
        f"has 8,400,000 pixels; of {kind}, at most 8,388,608 are decoded for a model that reads 32 x 32 pixels; "
        "shrink it to 2,896 x 2,896, or save it as a JPEG that is not progressive"
    )
    with pytest.raises(ImageError, match=message):
        SMALL.apply(tmp_path / name)
    assert torch.isfinite(Preparation((200, 200)).apply(tmp_path / name)).all()  # up to 256 times what the model reads
    decoded = Image.open(tmp_path / name)
    decoded.load()
    assert torch.isfinite(SMALL.apply(decoded)).all()  # it is in memory already


def test_a_photograph_of_63_million_pixels_is_read_by_a_small_model(tmp_path: Path) -> None:
    build_large(7900, 8000).save(tmp_path / "a.jpg")
    assert torch.isfinite(SMALL.apply(tmp_path / "a.jpg")).all()


def test_memory_depends_on_the_model_and_not_on_the_file(tmp_path: Path) -> None:
    build_large(7900, 8000).save(tmp_path / "a.jpg")
    build_large(3840, 2160, "RGBA").save(tmp_path / "a.png", compress_level=1)
    build_large(2800, 2800).save(tmp_path / "progressive.jpg", progressive=True)
    program = (
        "import json, resource, sys\n"
        "from PIL import Image\n"
        "from jumok.data.images.preparation import Preparation\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "small = Preparation((32, 32)); small.apply(Image.new('RGB', (64, 64)))\n"
        "for path in sys.argv[1:]:\n"
        "    before = peak(); small.apply(path); print(peak() - before)\n"
    )
    paths = [str(tmp_path / name) for name in ("a.jpg", "progressive.jpg", "a.png")]  # from less memory to more
    command = [sys.executable, "-c", program, *paths]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    jpeg, progressive, png = map(json.loads, completed.stdout.split())
    assert jpeg < 30 * 2**20  # 63 million pixels, 190 MB when decoded
    assert progressive < 45 * 2**20  # 7.8 million pixels: their coefficients, but not the pixels
    assert png < 60 * 2**20  # 8.3 million pixels of 4 bytes, once
