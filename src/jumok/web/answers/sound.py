"""The audio that a model read, for the page: a WAV file, its spectrogram, and the words with their times."""

from __future__ import annotations

import io
import math
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, RATE
from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
from jumok.tasks.speech.listening import Head, HeardWord, compute_listening, list_timing_heads, locate_words

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput
    from jumok.web.forward_pass import Pass
    from jumok.web.opened_model import OpenedModel

SOUND = "sound"  # under which an opened model keeps it
LOUDEST = 255


@dataclass(frozen=True)
class Sound:
    """A window of audio.

    Attributes:
        wav: The bytes of a WAV file: 16 bits, one channel, 16 kHz.
        spectrogram: A byte for each band and frame of 10 ms, the lowest band first; 255 is the loudest.
        frames: Its frames; the silence after the recording is left out.
        begin: Where it begins in the recording, in seconds.
        heads: The cross-attention heads that follow the audio in time.
    """

    wav: bytes
    spectrogram: bytes
    bands: int
    frames: int
    seconds: float
    begin: float
    words: tuple[HeardWord, ...]
    heads: tuple[Head, ...]

    @property
    def positions(self) -> int:
        """The number of the encoder's positions that the recording fills."""
        return max(1, math.ceil(round(self.seconds * POSITIONS_PER_SECOND, 6)))

    def to_json(self, sites: list[str]) -> dict[str, Any]:
        """Return what the page receives; it asks for the bytes once."""
        return {
            "seconds": self.seconds,
            "begin": self.begin,
            "positions": self.positions,
            "positions_per_second": POSITIONS_PER_SECOND,
            "bands": self.bands,
            "frames": self.frames,
            "words": [
                {"text": word.text, "start": word.start, "end": word.end, "rows": [word.rows.start, word.rows.stop]}
                for word in self.words
            ],
            "heads": [[sites.index(site), head] for site, head in self.heads],
        }


def get_sound(opened: OpenedModel, labelled: LabelledInput) -> Sound | None:
    """Return the audio that a model read; None if it read something else. That of the last input is kept."""
    if labelled.audio is None or not isinstance(opened.loaded, Loaded):
        return None
    stored = opened.kept_results.get(SOUND)
    if stored is None or stored[0] is not labelled:
        stored = labelled, _record(opened.loaded, labelled)
        opened.kept_results[SOUND] = stored
    sound: Sound = stored[1]
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
        tuple(list_timing_heads(loaded)),
    )


def write_wav(samples: Float[Tensor, " sample"]) -> bytes:
    """Return samples as a WAV file of 16 bits.

    Args:
        samples: The samples at 16 kHz; louder ones than 1 are cut.
    """
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
    """Return where each word is heard in a pass, only as far as the recording reaches.

    Args:
        head: The index of a cross-attention and a head; None for the mean of those that follow the audio in time.
    """

    def read_rows(site: str, index: int, rows: range) -> Tensor:
        site_map = shown.maps[sites.index(site)]
        return site_map.read_tile(index, slice(rows.start, rows.stop), slice(0, sound.positions))

    heads = sound.heads if head is None else ((sites[head[0]], head[1]),)
    return compute_listening(read_rows, [word.rows for word in sound.words], heads)
