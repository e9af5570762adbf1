"""Clips of a run as log-mel spectrograms: computed once, and stored in the run's folder for resuming."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float, Float16
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from jumok.data.audio.log_mel import HOP, compute_log_mel
from jumok.errors import DataError
from jumok.files import replace_file

CLIPS_FILE = "clips.safetensors"
FREQUENCY_MASK, TIME_MASK = 0.15, 0.04  # the largest masks, as shares of all bands and of all frames
MASKS = 1  # of each kind

Features = Float[Tensor, "clip mel frame"]


@dataclass(frozen=True)
class ClipLabel:
    """What a clip is.

    Attributes:
        part: "training", "validation" or "held-out".
        text: What is spoken; "" = nothing.
        language: The code of its language; "" = not known.
        kind: What the report calls it; "" for most.
    """

    part: str
    text: str
    language: str = ""
    kind: str = ""


@dataclass(frozen=True, eq=False)
class StoredClips:
    """Spectrograms of clips, one after the other.

    Attributes:
        starts: The first frame of each clip, and behind them the number of all frames.
    """

    frames: Float16[Tensor, "frame mel"]
    starts: tuple[int, ...]
    labels: tuple[ClipLabel, ...]

    @property
    def longest(self) -> int:
        """The number of frames of the longest clip."""
        return max(end - start for start, end in pairwise(self.starts))

    def list_part(self, part: str) -> list[int]:
        """Return the indices of the clips of a part."""
        return [index for index, label in enumerate(self.labels) if label.part == part]

    def get_texts(self, indices: Iterable[int]) -> list[str]:
        """Return what is spoken in some clips."""
        return [self.labels[index].text for index in indices]

    def get_clip(self, index: int) -> Float[Tensor, "mel frame"]:
        """Return the spectrogram of a clip, without the silence that fills a window."""
        return self.frames[self.starts[index] : self.starts[index + 1]].float().T

    def build_features(self, indices: Sequence[int], frame_count: int) -> Features:
        """Return spectrograms in windows of equal length; the rest of a window is silent."""
        clips = [self.get_clip(index)[:, :frame_count] for index in indices]
        features = torch.empty(len(clips), self.frames.shape[1], frame_count)
        for row, clip in zip(features, clips, strict=True):
            row.fill_(clip.min())  # the last frames of a stored clip are silent
            row[:, : clip.shape[1]] = clip
        return features

    def compute_fingerprint(self) -> str:
        """Return a short hash of the spectrograms and what they are."""
        digest = hashlib.sha256(self.frames.numpy().tobytes())
        digest.update(_format_labels(self.labels).encode())
        return digest.hexdigest()[:16]


def compute_clip_frames(
    samples: Float[Tensor, " sample"], frame_count: int, mel_bins: int
) -> Float16[Tensor, "frame mel"]:
    """Return the spectrogram of a clip as a model reads it in a window, up to the first frames of silence behind it."""
    window = torch.nn.functional.pad(samples, (0, frame_count * HOP - len(samples)))
    last = min(frame_count, -(-len(samples) // HOP) + 3)  # frames that a window of 25 ms can reach, and a silent one
    return compute_log_mel(window, mel_bins)[:, :last].T.half()


def store_clips(path: Path, clips: Iterable[tuple[Tensor, ClipLabel]]) -> StoredClips:
    """Write spectrograms into a file. A killed process leaves the whole file or none."""
    pairs = list(clips)
    starts = [0]
    for frames, _ in pairs:
        starts.append(starts[-1] + len(frames))
    stored = StoredClips(torch.cat([frames for frames, _ in pairs]), tuple(starts), tuple(label for _, label in pairs))
    tensors = {"frames": stored.frames, "starts": torch.tensor(starts)}
    with replace_file(path) as temporary:
        save_file(tensors, temporary, {"labels": _format_labels(stored.labels)})
    return stored


def load_clips(path: Path) -> StoredClips:
    """Read what ``store_clips`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            labels = tuple(ClipLabel(**row) for row in json.loads(file.metadata()["labels"]))
            starts = tuple(file.get_tensor("starts").tolist())
            stored = StoredClips(file.get_tensor("frames"), starts, labels)
        if len(starts) != len(labels) + 1 or starts[-1] != len(stored.frames):
            raise ValueError("its parts do not fit together")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({str(error)[:100]}); start a new run") from None
    return stored


def _format_labels(labels: Sequence[ClipLabel]) -> str:
    return json.dumps([asdict(label) for label in labels], ensure_ascii=False)


def sample_masks(count: int, seed: int, step: int) -> Float[Tensor, "clip kind mask 2"]:
    """Draw the masks of a step's clips, numbers from 0 to 1, as a pure function of seed and step."""
    digest = hashlib.sha256(f"masks {seed} {step}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(count, 2, MASKS, 2, generator=generator)


def mask_features(features: Features, masks: Float[Tensor, "clip kind mask 2"]) -> Features:
    """Replace a few bands and a few moments of each spectrogram by its mean (Park et al. 2019, "SpecAugment").

    Args:
        masks: For bands and for moments, the size and the position of each mask, from 0 to 1.
    """
    means = features.mean((1, 2), keepdim=True)
    for kind, (axis, share) in enumerate(((1, FREQUENCY_MASK), (2, TIME_MASK))):
        length = features.shape[axis]
        sizes = masks[:, kind, :, 0] * share * length
        firsts = masks[:, kind, :, 1] * (length - sizes)
        positions = torch.arange(length)[None, None]
        covered = ((positions >= firsts[..., None]) & (positions < (firsts + sizes)[..., None])).any(1)
        covered = covered[:, :, None] if axis == 1 else covered[:, None, :]
        features = torch.where(covered, means, features)
    return features
