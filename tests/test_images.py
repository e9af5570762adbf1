"""Pictures: held to transformers' own image processors; read upright and whole; refused where they are hostile."""

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
from PIL import Image, ImageDraw
from transformers import AutoImageProcessor
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from jumok.data.images.image_files import is_image_path, open_image, read_image
from jumok.data.images.preparation import RESAMPLINGS, Preparation
from jumok.errors import ImageError, JumokError


def drawn(columns: int, rows: int, mode: str = "RGB") -> Image.Image:
    """Something that has edges, slopes and no symmetry; half transparent where the mode can be."""
    generator = numpy.random.default_rng(columns * 1000 + rows)
    noise = generator.integers(0, 60, (rows, columns, 4))
    slope = numpy.add.outer(numpy.arange(rows), numpy.arange(columns))[..., None] * [1, 2, 3, 5] % 190
    picture = Image.fromarray((noise + slope).astype(numpy.uint8))
    ImageDraw.Draw(picture).ellipse((columns // 5, rows // 7, columns // 2, rows // 2), (250, 30, 90, 128))
    return picture.convert(mode)


def on_white(picture: Image.Image) -> Image.Image:
    """By hand, in whole numbers as Pillow's own composition has them."""
    pixels = numpy.asarray(picture.convert("RGBA")).astype(float)
    share = pixels[..., 3:] / 255
    return Image.fromarray((pixels[..., :3] * share + 255 * (1 - share)).round().astype(numpy.uint8))


THEIRS: dict[str, Any] = {
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


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize(("columns", "rows"), [(224, 224), (301, 97), (13, 402), (1, 1)])
def test_pixels_are_those_of_transformers(name: str, columns: int, rows: int, tmp_path: Path) -> None:
    THEIRS[name].save_pretrained(tmp_path)
    ours = Preparation.from_json(json.loads((tmp_path / "preprocessor_config.json").read_text()))
    for mode in ("RGB", "L"):
        drawn(columns, rows, mode).save(tmp_path / "picture.png")
        # without the first conversion their processor would give a grey picture one channel
        wanted = THEIRS[name](Image.open(tmp_path / "picture.png").convert("RGB"), return_tensors="pt")
        found = ours.tensor(tmp_path / "picture.png")
        torch.testing.assert_close(found, wanted["pixel_values"][0].float(), rtol=0, atol=1e-5)
    again = Preparation.from_json(json.loads(json.dumps(ours.to_json())))
    assert again == ours


def test_what_is_transparent_lies_on_white(tmp_path: Path) -> None:
    picture = drawn(45, 61, "RGBA")
    picture.save(tmp_path / "picture.png")
    found = Preparation((45, 61)).tensor(tmp_path / "picture.png")
    wanted = ViTImageProcessorPil(size={"height": 45, "width": 61})(on_white(picture), return_tensors="pt")
    # a composition in whole numbers may round the other way: one step of 255, before the division by 0.5
    assert (found - wanted["pixel_values"][0]).abs().max() <= 1.01 / 127.5
    assert (found - wanted["pixel_values"][0]).abs().mean() < 1e-3


def test_what_we_write_is_read_by_transformers(tmp_path: Path) -> None:
    drawn(50, 70).save(tmp_path / "picture.png")
    for one in (
        Preparation((40, 32), resampling="lanczos", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
        Preparation((40, 32), (24, 16), "hamming", 1 / 128),
    ):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(one.to_json()))
        theirs = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
        wanted = theirs(Image.open(tmp_path / "picture.png"), return_tensors="pt")["pixel_values"][0].float()
        torch.testing.assert_close(one.tensor(tmp_path / "picture.png"), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [  # as folders of 2021 have it, before the processor was named
        ({"do_resize": True, "size": 224}, Preparation((224, 224))),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 384}, Preparation((384, 384))),
        ({"do_center_crop": True, "crop_size": 224, "size": 256}, Preparation((256, 256), (224, 224), "bicubic")),
        ({"image_processor_type": "DeiTImageProcessorFast"}, Preparation((256, 256), (224, 224), "bicubic")),
        ({"image_mean": 0.25, "image_std": 1}, Preparation((224, 224), mean=(0.25,) * 3, std=(1.0,) * 3)),
    ],
)
def test_older_files(told: dict[str, Any], wanted: Preparation) -> None:
    assert Preparation.from_json(told) == wanted


def test_one_channel() -> None:
    one = Preparation.from_json({"size": 8, "image_mean": [0.5], "image_std": [0.25]}, channels=1)
    assert one.channels == 1
    picture = drawn(9, 7)
    wanted = numpy.asarray(picture.convert("L").resize((8, 8), Image.Resampling.BILINEAR))
    torch.testing.assert_close(one.tensor(picture)[0], (torch.tensor(wanted) / 255 - 0.5) / 0.25)


@pytest.mark.parametrize(
    "told",
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
def test_a_preparation_that_cannot_be_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ImageError) as refused:
        Preparation.from_json(told)
    assert len(str(refused.value).split()) >= 4 and len(str(refused.value)) < 400


def test_every_kind_of_pixel(tmp_path: Path) -> None:
    """A left column of a known colour, as each format keeps it."""
    red = Image.new("RGB", (4, 3), (255, 0, 0))
    clear = Image.new("RGBA", (4, 3), (255, 0, 0, 0))
    half = Image.new("LA", (4, 3), (0, 128))
    keyed = Image.new("RGB", (4, 3), (7, 8, 9))
    deep = Image.fromarray(numpy.full((3, 4), 32768, numpy.uint16))
    for name, picture, settings, wanted in (
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
        picture.save(tmp_path / name, **settings)
        found = read_image(tmp_path / name)
        assert found.shape == (3, 3, 4), name
        torch.testing.assert_close(found[:, 1, 1], torch.tensor(wanted, dtype=torch.float32), atol=0.02, rtol=0)
    with Image.open(tmp_path / "deep.png") as deep, Image.open(tmp_path / "palette.png") as palette:
        assert deep.mode.startswith("I") and palette.mode == "P"  # else the cases would not be these
    assert read_image(tmp_path / "rgb.png", 1).shape == (1, 3, 4)
    assert abs(float(read_image(tmp_path / "rgb.png", 1)[0, 0, 0]) - 0.299) < 0.003  # the eye's red
    with pytest.raises(ImageError, match="3 channels, or 1"):
        read_image(tmp_path / "rgb.png", 4)
    with pytest.raises(ImageError, match="real numbers"):
        read_image(Image.new("F", (3, 3)))


def test_rows_and_columns_are_not_mixed_up(tmp_path: Path) -> None:
    picture = Image.new("RGB", (5, 2))
    picture.putpixel((4, 1), (0, 0, 255))
    picture.save(tmp_path / "x.png")
    found = read_image(tmp_path / "x.png")
    assert found.nonzero().tolist() == [[2, 1, 4]]


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_of_a_moving_picture_the_first_is_read(format: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    settings = {"lossless": True} if format == "WEBP" else {}
    frames[0].save(tmp_path / "x", format, save_all=True, append_images=frames[1:], **settings)
    assert read_image(tmp_path / "x")[:, 0, 0].tolist() == [1, 0, 0]


def test_a_picture_taken_sideways_is_turned(tmp_path: Path) -> None:
    picture = drawn(6, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it
    picture.save(tmp_path / "x.png", exif=exif)
    assert torch.equal(read_image(tmp_path / "x.png"), read_image(picture.rotate(-90, expand=True)))


# what is hostile, or a mistake


def png(columns: int, rows: int) -> bytes:
    """A header that promises so many pixels, and a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(2_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def encoded(format: str, **settings: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    drawn(90, 80).save(file, format, **settings)
    return file.getvalue()


def webp(side: int) -> bytes:
    """A small picture whose header says that it is large."""
    raw = bytearray(encoded("WEBP", lossless=True))
    bits = struct.unpack("<I", raw[21:25])[0]
    raw[21:25] = struct.pack("<I", bits & ~0xFFFFFFF | (side - 1) | (side - 1) << 14)
    return bytes(raw)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.png": (lambda: b"", "empty"),
    "text.png": (lambda: b"this is a text\n" * 30, "not a picture"),
    "bomb.png": (lambda: png(60_000, 60_000), "more than 64,000,000 pixels"),
    "below Pillow's own bound.png": (lambda: png(8_000, 8_001), "more than 64,000,000 pixels"),
    "long.png": (lambda: png(2**31 - 1, 1), "more than 64,000,000 pixels"),
    "bomb.gif": (lambda: encoded("GIF")[:6] + b"\xff\xff\xff\xff" + encoded("GIF")[10:], "more than 64,000,000"),
    "bomb.bmp": (lambda: encoded("BMP")[:18] + struct.pack("<ii", 60_000, 60_000) + encoded("BMP")[26:], "more than"),
    "bomb.webp": (lambda: webp(16_383), "pixels"),
    "no pixels.png": (lambda: png(0, 5), "picture"),
    "cut.png": (lambda: encoded("PNG")[:-900], "damaged"),
    "cut.jpg": (lambda: encoded("JPEG")[:-700], "damaged"),
    "cut.gif": (lambda: encoded("GIF")[:-2000], "damaged"),
    "cut.bmp": (lambda: encoded("BMP")[:-9000], "damaged"),
    "cut.webp": (lambda: encoded("WEBP", lossless=True)[:-700], "picture|damaged"),
    "header alone.jpg": (lambda: encoded("JPEG")[:3], "not a picture"),
    "flipped.png": (lambda: bytes(byte ^ (place > 100) for place, byte in enumerate(encoded("PNG"))), "damaged"),
    "another format.png": (lambda: encoded("TIFF"), "not a picture"),
    "postscript.png": (lambda: encoded("EPS"), "not a picture"),
    "pickle.png": (lambda: b"\x80\x04cos\nsystem\n(S'true'\ntR.", "not a picture"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is said of each, in a process of its own, whose memory can be watched."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (made, _) in HOSTILE.items():
        (folder / name).write_bytes(made())
    drawn(40, 30).save(folder / "good.png")
    program = (
        "import json, resource, sys, time\n"
        "from jumok.data.images.image_files import read_image\n"
        "from jumok.errors import JumokError\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "read_image(sys.argv[1] + '/good.png')\n"
        "for name in sys.argv[2:]:\n"
        "    start, before = time.process_time(), peak()\n"
        "    try: read_image(sys.argv[1] + '/' + name); said = 'read'\n"
        "    except JumokError as wrong: said = str(wrong)\n"
        "    except BaseException as wrong: said = 'crashed: ' + repr(wrong)\n"
        "    print(json.dumps([name, said, time.process_time() - start, peak() - before]))\n"
    )
    command = [sys.executable, "-c", program, str(folder), *HOSTILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: {"said": said, "seconds": seconds, "bytes": grown} for name, said, seconds, grown in rows}


@pytest.mark.xdist_group("pictures")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_picture_is_refused_in_a_sentence(refusals: dict[str, dict[str, Any]], name: str) -> None:
    row = refusals[name]
    wanted = HOSTILE[name][1].split("|")
    assert any(word in row["said"] for word in wanted) and not row["said"].startswith("crashed"), row
    assert len(row["said"].split()) >= 4 and len(row["said"]) < 500
    assert row["seconds"] < 2 and row["bytes"] < 150 * 2**20, row


def test_a_mistake_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for given in ("a cat", tmp_path / "none.png", tmp_path / "folder.png", "x" * 5000, "a\0b.png", "", 7, None, [1]):
        with pytest.raises(ImageError) as refused:
            open_image(given)
        assert len(str(refused.value)) < 500
        assert not is_image_path(str(given))
    with pytest.raises(ImageError, match="pixels"):
        open_image(Image.new("1", (9000, 9000)))


def test_odd_but_readable_files_are_read_without_a_word(tmp_path: Path) -> None:
    """Pillow warns of a broken EXIF block; nobody who wants a caption needs to know."""
    drawn(8, 8).save(tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert read_image(tmp_path / "x.jpg").shape == (3, 8, 8)
    assert not heard


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(JumokError, match=r"pip install 'jumok\[images\]'"):
        open_image("x.png")


def test_pillow_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, jumok; jumok.load; jumok.run; assert 'PIL' not in sys.modules, 'PIL'"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
