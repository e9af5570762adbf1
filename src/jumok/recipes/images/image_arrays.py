"""What recipes on pictures share: pictures made small once and kept, moved a little at each step, and normalised."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.images.preparation import Preparation
from jumok.data.readers.lines import ProblemLog
from jumok.draw import save_gallery
from jumok.errors import DataError, DrawError, ImageError
from jumok.recipes.request import TrainingRequest

FILE = "pictures.safetensors"

Bytes = UInt8[Tensor, "picture channel row column"]
Numbers = Float[Tensor, "picture channel row column"]


class Pictures(NamedTuple):
    """Pictures of one size, each with a text: its class, or a sentence about it."""

    pixels: Bytes
    texts: list[str]

    def some(self, places: Iterable[int]) -> Pictures:
        chosen = list(places)
        return Pictures(self.pixels[chosen], [self.texts[one] for one in chosen])


def small(
    asked: TrainingRequest, found: Iterable[tuple[Path, str]], how: Preparation, problems: ProblemLog
) -> Pictures:
    """The pictures of these files as ``how`` wants them, but in bytes. Made once, and kept in the run's folder."""
    place = asked.folder / FILE
    if place.is_file():  # a run that is taken up again
        return _read(place)
    pixels: list[Tensor] = []
    texts: list[str] = []
    for path, text in found:
        try:
            pixels.append(in_bytes(path, how))
        except ImageError as wrong:
            problems.report(str(path), str(wrong).removeprefix(f"{path} "))
            continue
        texts.append(text)
        if len(texts) % 5000 == 0:
            asked.report(f"{len(texts):,} pictures read")
    if problems.count:
        asked.report(str(problems))
    if not pixels:
        raise DataError(f"no picture could be read: {problems}")
    made = Pictures(torch.stack(pixels), texts)
    save_file({"pixels": made.pixels}, place, {"texts": json.dumps(texts)})
    return made


def in_bytes(picture: object, how: Preparation) -> UInt8[Tensor, "channel row column"]:
    """A file, or a Pillow image, resized as ``how`` says, before numbers are made of its bytes."""
    plain = replace(how, rescale=1.0, mean=(0.0,) * how.channels, std=(1.0,) * how.channels)
    return plain.apply(picture).round().to(torch.uint8)


def _read(place: Path) -> Pictures:
    try:
        with safe_open(place, framework="pt") as file:
            return Pictures(file.get_tensor("pixels"), json.loads(file.metadata()["texts"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as wrong:
        raise DataError(f"{place} is damaged ({str(wrong)[:100]}); start the run again") from None


def normal(pixels: Bytes, how: Preparation) -> Numbers:
    """Bytes as the numbers that a model reads."""
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (how.mean, how.std))
    return (pixels.float() * how.rescale - mean) / std


def plain(config: Any, loaded: Loaded | None) -> Preparation:
    """How pictures are read before they are measured: in the config's size; or as what was loaded wants them."""
    if loaded is not None and loaded.preparation is not None:
        return loaded.preparation
    rows, columns = config.image
    return Preparation((rows, columns), mean=(0.5,) * config.channels, std=(0.5,) * config.channels)


def measured(pixels: Bytes, how: Preparation) -> Preparation:
    """The same, but each channel's mean becomes 0 and its deviation 1 over these pictures."""
    channels = [one.float() / 255 for one in pixels.transpose(0, 1).flatten(1)]
    mean = tuple(round(float(one.mean()), 4) for one in channels)
    return replace(how, mean=mean, std=tuple(max(round(float(one.std()), 4), 1e-3) for one in channels))


def digests(pixels: Bytes) -> list[str]:
    """SHA-256 of each picture: two that are equal are one, whatever they are called."""
    return [hashlib.sha256(one.numpy().tobytes()).hexdigest() for one in pixels.contiguous()]


def drawn(count: int, seed: int, step: int) -> Float[Tensor, "picture 4"]:
    """Numbers from -1 to 1 by which a step's pictures are moved: a pure function of the seed and the step."""
    digest = hashlib.sha256(f"moves {seed} {step}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(count, 4, generator=generator) * 2 - 1


def moved(
    images: Numbers, moves: Float[Tensor, "picture 4"], *, shift: int = 0, turn: int = 0, flip: bool = False
) -> Numbers:
    """Each picture moved by up to ``shift`` pixels each way, turned by up to ``turn`` degrees and, with ``flip``, every
    other one mirrored. What comes in from outside is as the edge is."""
    if not (shift or turn or flip):
        return images
    rows, columns = images.shape[2:]
    angle = moves[:, 0] * turn * math.pi / 180
    mirrored = torch.where(moves[:, 3] < 0, -1.0, 1.0) if flip else torch.ones(len(moves))
    # from places of the new picture to places of the old one, both from -1 to 1: a turn must not shear a wide picture
    to_columns = [angle.cos() * mirrored, -angle.sin() * rows / columns, moves[:, 1] * shift * 2 / columns]
    to_rows = [angle.sin() * columns / rows * mirrored, angle.cos(), moves[:, 2] * shift * 2 / rows]
    map = torch.stack([torch.stack(to_columns, -1), torch.stack(to_rows, -1)], 1)
    grid = functional.affine_grid(map, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def sheet(
    asked: TrainingRequest, path: Path, pixels: Bytes, wanted: list[str], found: list[str], title: str
) -> dict[str, str]:
    """Draw pictures with what they are and what was said of them; what the report tells of it."""
    if not len(pixels):
        return {}
    try:
        save_gallery(path, [one.permute(1, 2, 0).squeeze(-1).numpy() for one in pixels], wanted, found, title=title)
    except DrawError as missing:  # pictures are an extra, and no reason to fail now
        asked.report(f"{path.name} was not drawn: {missing}")
        return {}
    return {"sheet": path.name}


def to_try(folder: Path, pixels: Bytes) -> dict[str, str]:
    """One of the pictures, as a file that the trained model can be asked about."""
    try:
        from PIL import Image
    except ImportError:  # without it no picture could be read back
        return {}
    Image.fromarray(pixels[0].permute(1, 2, 0).squeeze(-1).numpy()).save(folder / "example.png")
    return {"try": "example.png"}
