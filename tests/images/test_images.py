"""Compare image preparation with transformers' image processors; read all image formats; refuse hostile files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from image_drawing import draw_image
from jumok.data.images.image_files import image_to_tensor, is_image_path, open_image
from jumok.data.images.preparation import RESAMPLINGS, Preparation
from jumok.errors import ImageError, JumokError


def read_image(image: object, channels: int = 3) -> torch.Tensor:
    """Read the path of a file, or a Pillow image, as numbers from 0 to 1."""
    return image_to_tensor(open_image(image, channels)).float() / 255


def blend_with_white(image: Image.Image) -> Image.Image:
    """Blend an image with white, rounded to integers like Pillow does."""
    pixels = numpy.asarray(image.convert("RGBA")).astype(float)
    share = pixels[..., 3:] / 255
    return Image.fromarray((pixels[..., :3] * share + 255 * (1 - share)).round().astype(numpy.uint8))


PROCESSORS: dict[str, Any] = {
    "vit": ViTImageProcessorPil(),
    "vit, small": ViTImageProcessorPil(size={"height": 30, "width": 47}, resample=3),
    "swin": ViTImageProcessorPil(
        size=224, resample=3, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
    ),
    "deit": DeiTImageProcessorPil(),
    "deit, odd": DeiTImageProcessorPil(size={"height": 51, "width": 64}, crop_size={"height": 32, "width": 33}),
    "deit, crop over the edge": DeiTImageProcessorPil(size=21, crop_size={"height": 16, "width": 32}),
    "plain": ViTImageProcessorPil(do_rescale=False, do_normalize=False),
    "scaled alone": ViTImageProcessorPil(do_normalize=False, rescale_factor=1 / 127.5),
    "not resized": ViTImageProcessorPil(do_resize=False),
    **{f"resample {number}": ViTImageProcessorPil(size=37, resample=number) for number in range(len(RESAMPLINGS))},
}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize(("columns", "rows"), [(224, 224), (301, 97), (13, 402), (1, 1)])
def test_pixels_agree_with_transformers(name: str, columns: int, rows: int, tmp_path: Path) -> None:
    PROCESSORS[name].save_pretrained(tmp_path)
    ours = Preparation.from_json(json.loads((tmp_path / "preprocessor_config.json").read_text()))
    for mode in ("RGB", "L"):
        draw_image(columns, rows, mode).save(tmp_path / "image.png")
        # without this conversion, the reference returns one channel for a grey image
        expected = PROCESSORS[name](Image.open(tmp_path / "image.png").convert("RGB"), return_tensors="pt")
        pixels = ours.apply(tmp_path / "image.png")
        torch.testing.assert_close(pixels, expected["pixel_values"][0].float(), rtol=0, atol=1e-5)
    copy = Preparation.from_json(json.loads(json.dumps(ours.to_json())))
    assert copy == ours


def test_transparent_pixels_are_blended_with_white(tmp_path: Path) -> None:
    image = draw_image(45, 61, "RGBA")
    image.save(tmp_path / "image.png")
    pixels = Preparation((45, 61)).apply(tmp_path / "image.png")
    expected = ViTImageProcessorPil(size={"height": 45, "width": 61})(blend_with_white(image), return_tensors="pt")
    # rounding may differ by one step of 255, before the division by 0.5
    assert (pixels - expected["pixel_values"][0]).abs().max() <= 1.01 / 127.5
    assert (pixels - expected["pixel_values"][0]).abs().mean() < 1e-3


def test_transformers_reads_our_preprocessor_config(tmp_path: Path) -> None:
    draw_image(50, 70).save(tmp_path / "image.png")
    for preparation in (
        Preparation((40, 32), resampling="lanczos", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
        Preparation((40, 32), (24, 16), "hamming", 1 / 128),
    ):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(preparation.to_json()))
        processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
        expected = processor(Image.open(tmp_path / "image.png"), return_tensors="pt")["pixel_values"][0].float()
        torch.testing.assert_close(preparation.apply(tmp_path / "image.png"), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [  # files of 2021, which do not name the processor
        ({"do_resize": True, "size": 224}, Preparation((224, 224))),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 384}, Preparation((384, 384))),
        ({"do_center_crop": True, "crop_size": 224, "size": 256}, Preparation((256, 256), (224, 224), "bicubic")),
        ({"image_processor_type": "DeiTImageProcessorFast"}, Preparation((256, 256), (224, 224), "bicubic")),
        ({"image_mean": 0.25, "image_std": 1}, Preparation((224, 224), mean=(0.25,) * 3, std=(1.0,) * 3)),
    ],
)
def test_old_preprocessor_configs(settings: dict[str, Any], expected: Preparation) -> None:
    assert Preparation.from_json(settings) == expected


def test_grey_images() -> None:
    preparation = Preparation.from_json({"size": 8, "image_mean": [0.5], "image_std": [0.25]}, channels=1)
    assert preparation.channels == 1
    image = draw_image(9, 7)
    expected = numpy.asarray(image.convert("L").resize((8, 8), Image.Resampling.BILINEAR))
    torch.testing.assert_close(preparation.apply(image)[0], (torch.tensor(expected) / 255 - 0.5) / 0.25)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_processor_type": "CLIPImageProcessor"},
        {"image_processor_type": ["ViTImageProcessor"]},
        {"size": {"shortest_edge": 224}},
        {"size": "224"},
        {"size": -1},
        {"size": 10**300},
        {"size": 10**9},
        {"size": {"height": 224, "width": True}},
        {"default_to_square": False},
        {"do_pad": True},
        {"do_resize": "yes"},
        {"do_center_crop": True, "crop_size": 0},
        {"resample": 6},
        {"resample": "2"},
        {"resample": True},
        {"rescale_factor": 0},
        {"rescale_factor": float("nan")},
        {"rescale_factor": 10**400},
        {"rescale_factor": "1/255"},
        {"image_mean": [0.5, 0.5]},
        {"image_mean": [0.5, 0.5, None, 0.5]},
        {"image_mean": [float("inf")] * 3},
        {"image_mean": {"red": 0.5}},
        {"image_std": [0.5, 0.0, 0.5]},
        {"image_std": [1e-30] * 3},
    ],
    ids=str,
)
def test_invalid_preprocessor_config_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ImageError) as refused:
        Preparation.from_json(settings)
    assert len(str(refused.value).split()) >= 4 and len(str(refused.value)) < 400


def test_all_pixel_formats(tmp_path: Path) -> None:
    """Read images of one colour in each format."""
    red = Image.new("RGB", (4, 3), (255, 0, 0))
    clear = Image.new("RGBA", (4, 3), (255, 0, 0, 0))
    half = Image.new("LA", (4, 3), (0, 128))
    keyed = Image.new("RGB", (4, 3), (7, 8, 9))
    deep = Image.fromarray(numpy.full((3, 4), 32768, numpy.uint16))
    for name, image, options, expected in (
        ("rgb.png", red, {}, (1, 0, 0)),
        ("rgb.bmp", red, {}, (1, 0, 0)),
        ("palette.gif", red, {}, (1, 0, 0)),
        ("palette.png", red.quantize(4), {}, (1, 0, 0)),
        ("rgb.webp", red, {"lossless": True}, (1, 0, 0)),
        ("cmyk.jpg", red.convert("CMYK"), {"quality": 100}, (1, 0, 0)),
        ("grey.png", Image.new("L", (4, 3), 51), {}, (0.2, 0.2, 0.2)),
        ("bits.png", Image.new("1", (4, 3), 1), {}, (1, 1, 1)),
        ("clear.png", clear, {}, (1, 1, 1)),
        ("clear.webp", clear, {"lossless": True, "exact": True}, (1, 1, 1)),
        ("clear.gif", clear, {}, (1, 1, 1)),
        ("half.png", half, {}, (0.498, 0.498, 0.498)),
        ("keyed.png", keyed, {"transparency": (7, 8, 9)}, (1, 1, 1)),
        ("deep.png", deep, {}, (0.502, 0.502, 0.502)),
    ):
        image.save(tmp_path / name, **options)
        pixels = read_image(tmp_path / name)
        assert pixels.shape == (3, 3, 4), name
        torch.testing.assert_close(pixels[:, 1, 1], torch.tensor(expected, dtype=torch.float32), atol=0.02, rtol=0)
    with Image.open(tmp_path / "deep.png") as deep, Image.open(tmp_path / "palette.png") as palette:
        assert deep.mode.startswith("I") and palette.mode == "P"  # check that the files really have these formats
    assert read_image(tmp_path / "rgb.png", 1).shape == (1, 3, 4)
    assert abs(float(read_image(tmp_path / "rgb.png", 1)[0, 0, 0]) - 0.299) < 0.003  # luminance of red
    with pytest.raises(ImageError, match="channels must be 3"):
        read_image(tmp_path / "rgb.png", 4)
    with pytest.raises(ImageError, match="floating-point images have no defined range"):
        read_image(Image.new("F", (3, 3)))


def test_rows_and_columns_are_not_swapped(tmp_path: Path) -> None:
    image = Image.new("RGB", (5, 2))
    image.putpixel((4, 1), (0, 0, 255))
    image.save(tmp_path / "x.png")
    pixels = read_image(tmp_path / "x.png")
    assert pixels.nonzero().tolist() == [[2, 1, 4]]


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_first_frame_of_an_animation_is_read(format: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    settings = {"lossless": True} if format == "WEBP" else {}
    frames[0].save(tmp_path / "x", format, save_all=True, append_images=frames[1:], **settings)
    assert read_image(tmp_path / "x")[:, 0, 0].tolist() == [1, 0, 0]


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = draw_image(6, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    image.save(tmp_path / "x.png", exif=exif)
    assert torch.equal(read_image(tmp_path / "x.png"), read_image(image.rotate(-90, expand=True)))


# hostile files and errors


def build_png(columns: int, rows: int) -> bytes:
    """Return a PNG whose header states this size, with too few pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(2_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def encode_image(format: str, **settings: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    draw_image(90, 80).save(file, format, **settings)
    return file.getvalue()


def build_webp(side: int) -> bytes:
    """Return a small image whose header states a large size."""
    raw = bytearray(encode_image("WEBP", lossless=True))
    bits = struct.unpack("<I", raw[21:25])[0]
    raw[21:25] = struct.pack("<I", bits & ~0xFFFFFFF | (side - 1) | (side - 1) << 14)
    return bytes(raw)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.png": (lambda: b"", "empty"),
    "text.png": (lambda: b"this is a text\n" * 30, "not a readable image"),
    "bomb.png": (lambda: build_png(60_000, 60_000), "more than 64,000,000 pixels"),
    "below Pillow's own bound.png": (lambda: build_png(8_000, 8_001), "more than 64,000,000 pixels"),
    "long.png": (lambda: build_png(2**31 - 1, 1), "more than 64,000,000 pixels"),
    "bomb.gif": (
        lambda: encode_image("GIF")[:6] + b"\xff\xff\xff\xff" + encode_image("GIF")[10:],
        "more than 64,000,000",
    ),
    "bomb.bmp": (
        lambda: encode_image("BMP")[:18] + struct.pack("<ii", 60_000, 60_000) + encode_image("BMP")[26:],
        "more than",
    ),
    "bomb.webp": (lambda: build_webp(16_383), "pixels"),
    "no pixels.png": (lambda: build_png(0, 5), "image"),
    "cut.png": (lambda: encode_image("PNG")[:-900], "damaged"),
    "cut.jpg": (lambda: encode_image("JPEG")[:-700], "damaged"),
    "cut.gif": (lambda: encode_image("GIF")[:-2000], "damaged"),
    "cut.bmp": (lambda: encode_image("BMP")[:-9000], "damaged"),
    "cut.webp": (lambda: encode_image("WEBP", lossless=True)[:-700], "image|damaged"),
    "header alone.jpg": (lambda: encode_image("JPEG")[:3], "not a readable image"),
    "flipped.png": (lambda: bytes(byte ^ (offset > 100) for offset, byte in enumerate(encode_image("PNG"))), "damaged"),
    "another format.png": (lambda: encode_image("TIFF"), "not a readable image"),
    "postscript.png": (lambda: encode_image("EPS"), "not a readable image"),
    "pickle.png": (lambda: b"\x80\x04cos\nsystem\n(S'true'\ntR.", "not a readable image"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Read all hostile files in another process; return its message, time and memory for each."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (build, _) in HOSTILE.items():
        (folder / name).write_bytes(build())
    draw_image(40, 30).save(folder / "good.png")
    program = (
        "import json, resource, sys, time\n"
        "from jumok.data.images.image_files import image_to_tensor, open_image\n"
        "from jumok.errors import JumokError\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "read_image = lambda path: image_to_tensor(open_image(path, 3))\n"
        "read_image(sys.argv[1] + '/good.png')\n"
        "for name in sys.argv[2:]:\n"
        "    start, before = time.process_time(), peak()\n"
        "    try: read_image(sys.argv[1] + '/' + name); message = 'read'\n"
        "    except JumokError as error: message = str(error)\n"
        "    except BaseException as error: message = 'crashed: ' + repr(error)\n"
        "    print(json.dumps([name, message, time.process_time() - start, peak() - before]))\n"
    )
    command = [sys.executable, "-c", program, str(folder), *HOSTILE]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0 and not process.stderr, process.stderr
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    return {name: {"message": message, "seconds": seconds, "bytes": growth} for name, message, seconds, growth in rows}


@pytest.mark.xdist_group("images")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_image_is_refused_with_a_message(refusals: dict[str, dict[str, Any]], name: str) -> None:
    row = refusals[name]
    expected = HOSTILE[name][1].split("|")
    assert any(word in row["message"] for word in expected) and not row["message"].startswith("crashed"), row
    assert len(row["message"].split()) >= 4 and len(row["message"]) < 500
    assert row["seconds"] < 2 and row["bytes"] < 150 * 2**20, row


def test_invalid_argument_is_an_image_error(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for argument in ("a cat", tmp_path / "none.png", tmp_path / "folder.png", "x" * 5000, "a\0b.png", "", 7, None, [1]):
        with pytest.raises(ImageError) as refused:
            open_image(argument)
        assert len(str(refused.value)) < 500
        assert not is_image_path(str(argument))
    with pytest.raises(ImageError, match="pixels"):
        open_image(Image.new("1", (9000, 9000)))


def test_unusual_but_readable_files_cause_no_warning(tmp_path: Path) -> None:
    """Pillow warns about a broken EXIF block, which does not matter to the user."""
    draw_image(8, 8).save(tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_image(tmp_path / "x.jpg").shape == (3, 8, 8)
    assert not caught


def test_missing_pillow_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(JumokError, match=r'pip install "jumok\[images\]"'):
        open_image("x.png")


def test_pillow_is_imported_lazily() -> None:
    program = "import sys, jumok; jumok.load; jumok.run; assert 'PIL' not in sys.modules, 'PIL'"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
