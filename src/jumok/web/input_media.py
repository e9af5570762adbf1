"""What a model read, for the page: an image as a PNG, with where its positions lie in it; audio as a WAV file, with its
spectrogram and the words with their times."""

from __future__ import annotations

import io
import math
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, RATE
from jumok.data.images.preparation import stretch_pixels
from jumok.layers.patches import PatchLayout
from jumok.lens import Capture
from jumok.lens.sites import SOURCE
from jumok.tasks.speech import Word
from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
from jumok.tasks.speech.listening import Head, compute_listening, list_timing_sites, locate_words

from . import messages

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput

    from .opened_model import OpenedModel, Pass

LOUDEST = 255


@dataclass(frozen=True)
class Picture:
    """An image as the model saw it."""

    png: bytes
    width: int
    height: int
    layout: PatchLayout  # where the positions of the first attention lie
    layouts: dict[str, PatchLayout]  # where those of each attention to patches lie, by site

    def describe(self) -> messages.Picture:
        """Return the picture as the page receives it; the PNG is the first buffer."""
        rows, columns = self.layout.grid
        return messages.Picture(rows, columns, len(self.layout.prefix), self.width, self.height)

    def describe_grids(self) -> dict[str, messages.Grid]:
        """Return rows and columns of patches and the number of positions before them, by site."""
        return {site: messages.Grid(*layout.grid, len(layout.prefix)) for site, layout in self.layouts.items()}


def draw_picture(opened: OpenedModel, labelled: LabelledInput, capture: Capture) -> Picture | None:
    """Return the image that a model read; None if it read something else, or its patches are not known."""
    if opened.reads != "image":
        return None
    sides = {site: capture.sites.get_sides(site) for site in capture.sites.names}
    layouts: dict[str, PatchLayout] = {}
    first: PatchLayout | None = None
    for site, side in sides.items():
        layout = opened.locate_patches(site, labelled) if side.keys == SOURCE else None
        if layout is None or not _fits(layout, capture.attentions[site].keys):
            continue
        first = first or layout
        layouts[site] = layout
    if first is None:
        return None
    pixels = labelled.inputs[0][0]
    preparation = opened.loaded.preparation if isinstance(opened.loaded, Loaded) else None
    image = stretch_pixels(pixels) if preparation is None else preparation.restore(pixels)
    # models of transformers do not read the pixels that fill no patch, at the right and below
    image = image[: first.grid[0] * first.patch[0], : first.grid[1] * first.patch[1]]
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return Picture(file.getvalue(), image.shape[1], image.shape[0], first, layouts)


def _fits(layout: PatchLayout, keys: int) -> bool:
    """Return whether an attention has the positions of a layout; a model of transformers may merge patches."""
    if layout.windows is not None:
        return keys == layout.windows.shape[1]
    return keys == len(layout.prefix) + layout.grid[0] * layout.grid[1]


@dataclass(frozen=True)
class Sound:
    """A window of audio."""

    wav: bytes  # a file: 16 bits, one channel, 16 kHz
    spectrogram: bytes  # for each band and frame of 10 ms, the lowest band first; 255 is the loudest
    bands: int
    frames: int  # without the silence after the recording
    seconds: float
    begin: float  # where it begins in the recording, in seconds
    words: tuple[Word, ...]
    heads: tuple[Head, ...]  # the cross-attention heads that follow the audio in time

    @property
    def positions(self) -> int:
        """The number of the encoder's positions that the recording fills."""
        return max(1, math.ceil(round(self.seconds * POSITIONS_PER_SECOND, 6)))

    def describe(self, sites: list[str]) -> messages.Sound:
        """Return what the page receives; it asks for the bytes once."""
        words = [
            messages.SpokenWord(word.text, word.start, word.end, (word.rows.start, word.rows.stop))
            for word in self.words
        ]
        heads = [(sites.index(site), head) for site, head in self.heads]
        return messages.Sound(
            self.seconds, self.begin, self.positions, POSITIONS_PER_SECOND, self.bands, self.frames, words, heads
        )


def get_sound(opened: OpenedModel, labelled: LabelledInput) -> Sound | None:
    """Return the audio that a model read; None if it read something else. That of the last input is kept."""
    if labelled.audio is None or not isinstance(opened.loaded, Loaded):
        return None
    loaded = opened.loaded
    sound: Sound = opened.remember("sound", labelled, lambda: _record(loaded, labelled))
    return sound


def _record(loaded: Loaded, labelled: LabelledInput) -> Sound:
    audio = labelled.audio
    assert audio is not None
    features = labelled.inputs[0][0].float().cpu()
    frames = min(features.shape[1], max(1, round(audio.seconds * FRAMES_PER_SECOND)))
    features = features[:, :frames]
    loudness = (features - features.min()) / (features.max() - features.min()).clamp_min(1e-9)
    return Sound(
        write_wav(audio.samples),
        (loudness * LOUDEST).round().to(torch.uint8).numpy().tobytes(),
        features.shape[0],
        frames,
        audio.seconds,
        audio.begin,
        tuple(locate_words(loaded, labelled)),
        tuple(list_timing_sites(loaded)),
    )


def write_wav(samples: Float[Tensor, " sample"]) -> bytes:
    """Return samples of 16 kHz as a WAV file of 16 bits; louder ones than 1 are cut."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples.cpu().clamp(-1, 1) * 32767).round().to(torch.int16).numpy().tobytes())
    return buffer.getvalue()


def read_listening(
    sound: Sound, shown: Pass, sites: list[str], head: tuple[int, int] | None = None
) -> Float[Tensor, "word position"]:
    """Return where each word is heard in a pass, only as far as the recording reaches: by one head (the index of a
    cross-attention and the head), or by the mean of those that follow the audio in time."""

    def read_rows(site: str, index: int, rows: range) -> Tensor:
        site_map = shown.maps[sites.index(site)]
        return site_map.read_tile(index, slice(rows.start, rows.stop), slice(0, sound.positions))

    heads = sound.heads if head is None else ((sites[head[0]], head[1]),)
    return compute_listening(read_rows, [word.rows for word in sound.words], heads)
