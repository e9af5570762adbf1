"""The catalogue's pictures: emoji with names in English and Korean, MNIST, CIFAR-10; each with a part held out."""

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
from jumok.data.datasets.text_corpora import Language, Report, locate_or_download
from jumok.data.images.image_files import image_to_tensor, open_image
from jumok.errors import DataError

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")
_JOINED = re.compile("\u200d[\u2640\u2642\u27a1]")  # a joiner and the sign of women, of men, or of facing right
_PEOPLE = str.maketrans("\U0001f468\U0001f469", "\U0001f9d1\U0001f9d1")  # man and woman as person


class LabelledImages(NamedTuple):
    """Pictures of one size, each of a class: bytes from 0 to 255, and the number of its name in `classes`."""

    pixels: UInt8[Tensor, "picture channel row column"]
    labels: Int[Tensor, " picture"]
    classes: tuple[str, ...]


def load_emoji(
    side: Split = "train",
    report: Report | None = None,
    language: Language = "en",
    tones: bool = False,
    hand: Literal["google", "twitter"] = "google",
) -> Iterator[tuple[Path, str]]:
    """(picture of 64 x 64, its name in English or Korean); with `tones`, also the variants in other skin colours.

    An emoji, its skin tones, and its forms as woman, man and person stand on the same side.
    """
    folder = locate_or_download("emoji", report)
    images = folder if hand == "google" else locate_or_download("emoji-twitter", report)
    names = _names(folder, language)
    for told in json.loads((folder / "emoji.json").read_bytes()):
        variants = [told, *(told.get("skin_variations", {}).values() if tones else ())]
        base = _letters(told["unified"])
        if assign_split(_JOINED.sub("", base).translate(_PEOPLE)) != side:
            continue
        for variant in variants:
            yield images / "images" / Path(variant["image"]).name, names[_letters(variant["unified"], tones=True)]


def _names(folder: Path, language: Language) -> dict[str, str]:
    names: dict[str, str] = {}
    for file, top in ((f"{language}.json", "annotations"), (f"{language}-derived.json", "annotationsDerived")):
        for letters, told in json.loads((folder / "names" / file).read_bytes())[top]["annotations"].items():
            if "tts" in told:
                names[letters.replace("\ufe0f", "")] = told["tts"][0]
    return names


def _letters(unified: str, tones: bool = False) -> str:
    """The characters of "1F44B-1F3FB", without the selector that says how to draw them, and without skin tones."""
    letters = "".join(chr(int(code, 16)) for code in unified.split("-"))
    return letters.replace("\ufe0f", "") if tones else _TONES.sub("", letters)


def load_mnist(side: Split = "train", report: Report | None = None) -> LabelledImages:
    """60,000 handwritten digits of 28 x 28, and 10,000 held out: the set's own test part."""
    folder = locate_or_download("mnist", report)
    part = "train" if side == "train" else "t10k"
    pixels, labels = (_idx(folder / f"{part}-{name}-ubyte") for name in ("images-idx3", "labels-idx1"))
    return LabelledImages(pixels[:, None], labels.long(), tuple("0123456789"))


def _idx(path: Path) -> Tensor:
    """The numbers of an idx file: two zeros, the kind (8: bytes), how many axes, their sizes, the bytes."""
    data = path.read_bytes()
    sizes = [
        int.from_bytes(data[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(data[3] if len(data) > 3 else 0)
    ]
    count = int(numpy.prod(sizes, dtype=numpy.int64))
    if data[:3] != b"\0\0\x08" or len(data) != 4 + 4 * len(sizes) + count:
        raise DataError(f"{path} is not an idx file of bytes")
    return torch.frombuffer(bytearray(data[4 + 4 * len(sizes) :]), dtype=torch.uint8).view(sizes)


def load_cifar10(side: Split = "train", report: Report | None = None) -> LabelledImages:
    """50,000 photographs of 32 x 32 in 10 classes, and 10,000 held out: the set's own test part."""
    folder = locate_or_download("cifar10", report)
    parts = [f"data_batch_{number}" for number in range(1, 6)] if side == "train" else ["test_batch"]
    # each row of these PNGs is one photograph
    rows = [image_to_tensor(open_image(folder / f"{part}.png")).permute(1, 2, 0) for part in parts]
    pixels = torch.cat([row.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2) for row in rows])
    labels = json.loads((folder / f"{'train' if side == 'train' else 'test'}_labels.json").read_bytes())
    return LabelledImages(pixels, torch.tensor(labels), CIFAR10)
