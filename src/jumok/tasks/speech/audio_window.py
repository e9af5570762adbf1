"""Read audio, compute its spectrogram, and cut the window out of it that a model reads at once."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE, compute_log_mel
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.errors import ArgumentError, describe_type
from jumok.models.speech import FRAMES_PER_POSITION, Speech

POSITIONS_PER_SECOND = FRAMES_PER_SECOND // FRAMES_PER_POSITION  # 50: one each 20 ms


def require_speech(loaded: Loaded) -> tuple[Speech, SpeechTokens]:
    """Return a speech model and its special tokens; raise an ArgumentError for any other model."""
    if not isinstance(loaded.model, Speech) or loaded.speech_tokens is None:
        raise ArgumentError(f"this {loaded.family} model reads {loaded.model.reads}; it cannot transcribe audio")
    return loaded.model, loaded.speech_tokens


def read_samples(raw: object) -> Float[Tensor, " sample"]:
    """Return samples at 16,000 per second, from the path of an audio file or from a tensor of floats [sample]."""
    if isinstance(raw, str | os.PathLike):
        return read_audio(raw)
    if not isinstance(raw, Tensor):
        raise ArgumentError(
            "audio must be the path of a file, or a tensor of samples at 16,000 per second, not " + describe_type(raw)
        )
    if raw.dim() != 1 or not torch.is_floating_point(raw):
        raise ArgumentError(f"samples must be a tensor of floats [sample], not {raw.dtype}{list(raw.shape)}")
    if not bool(raw.isfinite().all()):
        raise ArgumentError("the samples contain NaN or infinity")
    return raw.float()


def compute_features(samples: Float[Tensor, " sample"], model: Speech) -> Float[Tensor, "mel frame"]:
    """Return the log-mel spectrogram that a model reads; shorter audio is padded with silence."""
    window = model.config.frame_count * HOP
    if len(samples) < window:
        samples = functional.pad(samples, (0, window - len(samples)))
    return compute_log_mel(samples, model.config.mel_bins)


def cut_features(features: Float[Tensor, "mel frame"], first: int, count: int) -> Float[Tensor, "mel {count}"]:
    """Return ``count`` frames of a spectrogram from the frame ``first``, padded with 0 at the end of the recording."""
    window = features[:, first : first + count]
    return functional.pad(window, (0, count - window.shape[1]))


@dataclass(frozen=True)
class AudioWindow:
    """A part of a recording."""

    samples: Float[Tensor, " sample"]  # at 16 kHz; fewer than the model reads at once if the recording ends before
    begin: float  # in the recording, in seconds
    duration: float  # of the recording, in seconds
    window: float  # how much the model reads at once, in seconds

    @property
    def seconds(self) -> float:
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

    def label_positions(self) -> list[str]:
        """Return the time of each position of the encoder, such as "1.24 s", from the start of the recording."""
        count = round(self.window * POSITIONS_PER_SECOND)
        return [f"{self.begin + index / POSITIONS_PER_SECOND:.2f} s" for index in range(count)]


def cut_window(
    model: Speech, samples: Float[Tensor, " sample"], begin: float = 0.0
) -> tuple[Float[Tensor, "mel frame"], AudioWindow]:
    """Return the spectrogram of the window that begins at a second, as transcription reads it, and the window."""
    duration = len(samples) / RATE
    if not 0 <= begin < max(duration, 1e-9):
        raise ArgumentError(f"the recording has {duration:.2f} seconds; a window cannot begin at {begin:g}")
    frames = model.config.frame_count
    first = int(begin * FRAMES_PER_SECOND)
    # of the whole recording: the loudest frame decides what counts as silence
    features = cut_features(compute_features(samples, model), first, frames)
    part = samples[first * HOP : (first + frames) * HOP]
    return features, AudioWindow(part, first / FRAMES_PER_SECOND, duration, frames / FRAMES_PER_SECOND)
