"""Read the audio that a user passes: a file, or samples."""

from __future__ import annotations

import os
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.audio.audio_files import read_audio
from jumok.errors import ArgumentError, describe_type


def read_samples(raw: Any) -> Float[Tensor, " sample"]:
    """Return samples at 16,000 per second.

    Args:
        raw: The path of an audio file, or the samples themselves: a tensor [sample] of floats at 16,000 per second.

    Raises:
        ArgumentError: If it is neither, or the file cannot be read.
    """
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
