"""Load the images of the catalogue: emoji with names in English and Korean, MNIST and CIFAR-10, each with a split."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets.text_corpora import Language, require_entry_folder
from jumok.data.images.image_files import image_to_tensor, open_image
from jumok.errors import DataError
from jumok.reporting import Report

Artist = Literal["google", "twitter"]
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_VARIATION_SELECTOR = "\ufe0f"
_SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")
_JOINED_SIGN = re.compile("\u200d[\u2640\u2642\u27a1]")  # a joiner and the sign for woman, man, or facing right
_MAN_AND_WOMAN_TO_PERSON = str.maketrans("\U0001f468\U0001f469", "\U0001f9d1\U0001f9d1")


class LabelledImages(NamedTuple):
    """Images of one size with a class each."""

    pixels: UInt8[Tensor, "image channel row column"]
    labels: Int[Tensor, " image"]
    classes: tuple[str, ...]


def load_emoji(
    split: Split = "train",
    download_report: Report | None = None,
    language: Language = "en",
    tones: bool = False,
    artist: Artist = "google",
) -> Iterator[tuple[Path, str]]:
    """Yield (image file of 64 x 64 pixels, name). All variants of an emoji (skin tone, gender) are in one split."""
    folder = require_entry_folder("emoji", download_report)
    images = folder
    if artist == "twitter":
        images = require_entry_folder("emoji-twitter", download_report)
    names = _read_emoji_names(folder, language)
    for emoji in json.loads((folder / "emoji.json").read_bytes()):
        base = _decode_characters(emoji["unified"], keep_tones=False)
        key = _JOINED_SIGN.sub("", base).translate(_MAN_AND_WOMAN_TO_PERSON)
        if assign_split(key) != split:
            continue
        variants = [emoji, *(emoji.get("skin_variations", {}).values() if tones else ())]
        for variant in variants:
            path = images / "images" / Path(variant["image"]).name
            yield path, names[_decode_characters(variant["unified"], keep_tones=True)]


def _read_emoji_names(folder: Path, language: Language) -> dict[str, str]:
    names: dict[str, str] = {}
    for file, root in ((f"{language}.json", "annotations"), (f"{language}-derived.json", "annotationsDerived")):
        annotations = json.loads((folder / "names" / file).read_bytes())[root]["annotations"]
        for characters, annotation in annotations.items():
            if "tts" in annotation:
                names[characters.replace(_VARIATION_SELECTOR, "")] = annotation["tts"][0]
    return names


def _decode_characters(unified: str, keep_tones: bool) -> str:
    """Decode a sequence such as "1F44B-1F3FB", without variation selectors."""
    characters = "".join(chr(int(code, 16)) for code in unified.split("-"))
    return characters.replace(_VARIATION_SELECTOR, "") if keep_tones else _SKIN_TONES.sub("", characters)


def load_mnist(split: Split = "train", download_report: Report | None = None) -> LabelledImages:
    """Load 60,000 handwritten digits of 28 x 28 pixels, or the 10,000 of the test set."""
    folder = require_entry_folder("mnist", download_report)
    part = "train" if split == "train" else "t10k"
    pixels = _read_idx_file(folder / f"{part}-images-idx3-ubyte")
    labels = _read_idx_file(folder / f"{part}-labels-idx1-ubyte")
    return LabelledImages(pixels[:, None], labels.long(), tuple("0123456789"))


def _read_idx_file(path: Path) -> Tensor:
    """Read an idx file: two zero bytes, the type (8: bytes), the number of axes, their sizes, and the bytes."""
    content = path.read_bytes()
    axes = content[3] if len(content) > 3 else 0
    sizes = [int.from_bytes(content[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(axes)]
    count = int(numpy.prod(sizes, dtype=numpy.int64))
    if content[:3] != b"\0\0\x08" or len(content) != 4 + 4 * len(sizes) + count:
        raise DataError(f"{path} is not an idx file of bytes")
    return torch.frombuffer(bytearray(content[4 + 4 * len(sizes) :]), dtype=torch.uint8).view(sizes)


def load_cifar10(split: Split = "train", download_report: Report | None = None) -> LabelledImages:
    """Load 50,000 photographs of 32 x 32 pixels in 10 classes, or the 10,000 of the test set."""
    folder = require_entry_folder("cifar10", download_report)
    files = [f"data_batch_{number}.png" for number in range(1, 6)] if split == "train" else ["test_batch.png"]
    # each row of pixels of these files is one photograph
    sheets = [image_to_tensor(open_image(folder / file)).permute(1, 2, 0) for file in files]
    pixels = torch.cat([sheet.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2) for sheet in sheets])
    labels = json.loads((folder / f"{'train' if split == 'train' else 'test'}_labels.json").read_bytes())
    return LabelledImages(pixels, torch.tensor(labels), CIFAR10)
