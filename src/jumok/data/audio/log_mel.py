"""Log-mel spectrograms, as Whisper reads them (Radford et al. 2022): the loudness of frequency bands, each 10 ms.

    audio -> overlapping windows of 25 ms -> Fourier transform -> power -> mel bands -> log10, at most 8 below the
    loudest -> (x + 4) / 4

The mel scale follows hearing: linear below 1,000 Hz, logarithmic above (Slaney 1998, "Auditory Toolbox").
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError

RATE = 16_000  # samples per second
WINDOW = 400  # samples of a window: 25 ms
HOP = 160  # samples between two windows: 10 ms
FRAMES_PER_SECOND = RATE // HOP
DYNAMIC_RANGE = 8.0  # powers of ten below the loudest band, under which everything counts as silence
QUIETEST = 1e-10

MELS_PER_HERTZ = 3 / 200  # below 1,000 Hz
BREAK_HERTZ = 1000.0
BREAK_MEL = BREAK_HERTZ * MELS_PER_HERTZ
MELS_PER_LOG_HERTZ = 27 / math.log(6.4)  # above 1,000 Hz
HIGHEST_MEL = BREAK_MEL + math.log(RATE / 2 / BREAK_HERTZ) * MELS_PER_LOG_HERTZ

BLOCK_FRAMES = 6_000  # frames computed at once: a minute takes 10 MB, an hour at once would take 600


def compute_log_mel(samples: Float[Tensor, " sample"], mel_bins: int = 80) -> Float[Tensor, "mel frame"]:
    """Return the log-mel spectrogram of a recording.

    >>> compute_log_mel(torch.zeros(16_000)).shape
    torch.Size([80, 100])
    """
    if len(samples) <= WINDOW // 2:
        raise ArgumentError(f"the audio has {len(samples):,} samples; at least {WINDOW // 2 + 1} are needed")
    filters = build_mel_filters(mel_bins).to(samples.device)
    window = torch.hann_window(WINDOW, device=samples.device)
    margin = WINDOW // 2  # windows are centred on their frame; the ends are mirrored
    padded = torch.nn.functional.pad(samples.float()[None], (margin, margin), mode="reflect")[0]
    frames = len(samples) // HOP
    power = padded.new_empty(mel_bins, frames)
    for first in range(0, frames, BLOCK_FRAMES):
        last = min(first + BLOCK_FRAMES, frames)
        block = padded[first * HOP : (last - 1) * HOP + WINDOW]
        spectrum = torch.stft(block, WINDOW, HOP, window=window, center=False, return_complex=True)
        power[:, first:last] = filters @ spectrum.abs().square_()
    loudness = power.clamp_min_(QUIETEST).log10_()
    loudness = torch.maximum(loudness, loudness.max() - DYNAMIC_RANGE)
    return (loudness + 4.0) / 4.0


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # autograd refuses a tensor made in inference mode
def build_mel_filters(mel_bins: int) -> Float[Tensor, "mel frequency"]:
    """Return the matrix that sums the frequencies of a Fourier transform into mel bands.

    A band is a triangle between the centres of its neighbours, with area 1 (Slaney's normalisation).
    """
    if mel_bins < 1:
        raise ArgumentError(f"mel_bins must be at least 1, not {mel_bins}")
    frequencies = torch.linspace(0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    mels = torch.linspace(0, HIGHEST_MEL, mel_bins + 2, dtype=torch.float64)
    logarithmic = BREAK_HERTZ * torch.exp((mels - BREAK_MEL) / MELS_PER_LOG_HERTZ)
    edges = torch.where(mels < BREAK_MEL, mels / MELS_PER_HERTZ, logarithmic)
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (frequencies - lower) / (centre - lower)
    falling = (upper - frequencies) / (upper - centre)
    triangles = torch.minimum(rising, falling).clamp_min(0.0)
    return (triangles * (2.0 / (upper - lower))).float()


def locate_band(hertz: int | float, mel_bins: int) -> float:
    """Return the band whose centre is a frequency, counted from 0; a fraction between two centres.

    >>> round(locate_band(1000, 80), 1)
    25.9
    """
    mels = hertz * MELS_PER_HERTZ
    if hertz > BREAK_HERTZ:
        mels = BREAK_MEL + math.log(hertz / BREAK_HERTZ) * MELS_PER_LOG_HERTZ
    return mels / HIGHEST_MEL * (mel_bins + 1) - 1
