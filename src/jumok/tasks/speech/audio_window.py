"""Cut the window out of a recording that a model reads at once, and compute its spectrogram."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE
from jumok.errors import ArgumentError
from jumok.models.speech import FRAMES_PER_POSITION, Speech

from .transcribe import compute_features

POSITIONS_PER_SECOND = FRAMES_PER_SECOND // FRAMES_PER_POSITION  # 50: one each 20 ms


@dataclass(frozen=True)
class AudioWindow:
    """A part of a recording.

    Args:
        samples: Its samples at 16 kHz; fewer than the model reads at once if the recording ends before.
        begin: Where it begins in the recording, in seconds.
        duration: The length of the recording in seconds.
        window: How much the model reads at once, in seconds.
    """

    samples: Float[Tensor, " sample"]
    begin: float
    duration: float
    window: float

    @property
    def seconds(self) -> float:
        """The length of this part in seconds."""
        return len(self.samples) / RATE

    @property
    def note(self) -> str:
        """One sentence if the recording is longer than the window, otherwise ""."""
        end = self.begin + self.seconds
        if self.begin == 0 and end >= self.duration:
            return ""
        return (
            f"the recording has {self.duration:.1f} seconds, and the model reads {self.window:g} at once; these are "
            f"the seconds from {self.begin:.1f} to {end:.1f}"
        )


def cut_window(
    model: Speech, samples: Float[Tensor, " sample"], begin: float = 0.0
) -> tuple[Float[Tensor, "mel frame"], AudioWindow]:
    """Return the spectrogram of one window, as transcription reads it, and the window.

    Args:
        samples: The recording at 16 kHz.
        begin: Where the window begins, in seconds.

    Raises:
        ArgumentError: If the window does not begin inside the recording.
    """
    duration = len(samples) / RATE
    if not 0 <= begin < max(duration, 1e-9):
        raise ArgumentError(f"the recording has {duration:.2f} seconds; a window cannot begin at {begin:g}")
    frames = model.config.frame_count
    first = int(begin * FRAMES_PER_SECOND)
    # of the whole recording: the loudest frame decides what counts as silence
    features = compute_features(samples, model)[:, first : first + frames]
    features = functional.pad(features, (0, frames - features.shape[1]))
    part = samples[first * HOP : (first + frames) * HOP]
    return features, AudioWindow(part, first / FRAMES_PER_SECOND, duration, frames / FRAMES_PER_SECOND)


def label_positions(window: AudioWindow) -> list[str]:
    """Return the time of each position of the encoder, such as "1.24 s", counted from the start of the recording."""
    count = round(window.window * POSITIONS_PER_SECOND)
    return [f"{window.begin + index / POSITIONS_PER_SECOND:.2f} s" for index in range(count)]
