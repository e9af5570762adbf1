"""Read audio files, which are not trusted, as one channel of samples at 16 kHz."""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.audio.containers import REWRITE_HINT, Container, check_container
from jumok.data.audio.log_mel import RATE
from jumok.defaults import AUDIO_EXTENSIONS
from jumok.errors import AudioError, describe_type

if TYPE_CHECKING:
    from soundfile import SoundFile  # soundfile and soxr are imported only when a file is read

# The encodings that are read, by libsndfile's names of format and subtype.
ENCODINGS = {
    "WAV": ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"),
    "FLAC": ("PCM_S8", "PCM_16", "PCM_24"),
    "OGG": ("VORBIS", "OPUS"),
    "MP3": ("MPEG_LAYER_III",),
}
FORMAT_NAMES = {"WAVEX": "WAV", "RF64": "WAV", "MPEG": "MP3"}  # other names that libsndfile uses
MIN_RATE, MAX_RATE = 1_000, 768_000  # Hz
MAX_CHANNELS = 64
MIN_SECONDS, MAX_SECONDS = 0.01, 4 * 3600
MAX_SAMPLES = 3_000_000_000  # of all channels: four hours of stereo at 96 kHz
MAX_FRAMES_PER_BYTE = 8_192  # silence in FLAC comes to 6,000
MAX_MAGNITUDE = 100.0  # full scale is 1; floating-point files may exceed it, but not by 40 dB
BLOCK_SAMPLES = 2**20  # of all channels, decoded at a time


def is_audio_path(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of an audio file, by its extension. The file need not exist.

    >>> is_audio_path("talk.WAV"), is_audio_path("talk.txt")
    (True, False)
    """
    return os.fspath(path).lower().endswith(AUDIO_EXTENSIONS)


def read_audio(path: object) -> Float[Tensor, " sample"]:
    """Read an audio file: the mean of its channels, resampled to 16 kHz.

    WAV (PCM, float, A-law, mu-law), FLAC, OGG (Vorbis, Opus) and MP3 are read, at 1 to 768 kHz, with up to 64 channels,
    from 10 milliseconds to 4 hours. Files are not trusted: a file whose header contradicts its content is refused, and
    so are truncated files, streams without a length (as programs write them to pipes), NaN, infinity and absurd
    magnitudes. Decoding needs memory for one block besides the result.
    """
    try:
        import soundfile  # noqa: F401
        import soxr  # noqa: F401
    except (ImportError, OSError):  # soundfile raises OSError if libsndfile is missing
        raise AudioError(
            'reading audio needs soundfile and soxr; install them with: pip install "jumok[audio]"'
        ) from None
    if not isinstance(path, str | os.PathLike):
        raise AudioError(f"audio must be the path of a file, not {describe_type(path)}")

    name = str(os.fspath(path))[:200]
    size = _check_file(name, Path(path))
    try:
        with Path(path).open("rb") as file:
            container = check_container(file, size)
            file.seek(0)
            source = file if container.stream is None else _StreamFile(file, container.prefix, *container.stream)
            return _decode(source, container, size)
    except AudioError as error:
        raise AudioError(f"{name} {error}") from None
    except MemoryError:
        raise AudioError(f"{name} needs more memory than there is; cut it into shorter files") from None
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror}") from None


def _check_file(name: str, path: Path) -> int:
    """Return the number of bytes of a file; refuse what is not a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        extensions = ", ".join(AUDIO_EXTENSIONS)
        raise AudioError(f"there is no file {name!r}; give the path of an audio file ({extensions})") from None
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name that no file can have
        raise AudioError(f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise AudioError(f"{name} is a folder; give the path of an audio file")
    if not stat.S_ISREG(status.st_mode):
        raise AudioError(f"{name} is a pipe or a device; write the audio to a file first")
    if not status.st_size:
        raise AudioError(f"{name} is an empty file, not audio")
    return status.st_size


class _StreamFile(io.RawIOBase):
    """A part of a file behind a prefix in memory, as a file of its own."""

    def __init__(self, file: io.BufferedReader, prefix: bytes, start: int, end: int) -> None:
        self._file, self._prefix, self._start = file, prefix, start
        self._size = len(prefix) + end - start
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._size - self._position))
        content = self._prefix[self._position : self._position + count]
        if len(content) < count:
            self._file.seek(self._start + max(0, self._position - len(self._prefix)))
            content += self._file.read(count - len(content))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def _decode(source: io.BufferedReader | io.RawIOBase, container: Container, size: int) -> Tensor:
    """Decode, mix and resample a file whose container is checked."""
    import soundfile

    try:
        with soundfile.SoundFile(source) as sound:
            _check_header(sound, container, size)
            return _resample(sound)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".")
        raise AudioError(f"is damaged and cannot be decoded: {reason[:200]}") from None


def _check_header(sound: SoundFile, container: Container, size: int) -> None:
    """Refuse an encoding, rate, number of channels or length outside the limits, before anything is decoded."""
    rate, channels, frames = sound.samplerate, sound.channels, sound.frames
    format_name = FORMAT_NAMES.get(sound.format, sound.format)
    if format_name != container.format or sound.subtype not in ENCODINGS[format_name]:
        raise AudioError(f"is encoded as {sound.format} {sound.subtype}, which is not supported; {REWRITE_HINT}")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"has a rate of {rate:,} Hz; supported rates are {MIN_RATE:,} to {MAX_RATE:,} Hz")
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(f"has {channels:,} channels; the limit is {MAX_CHANNELS}")

    if frames >= 2**62:  # libsndfile's number for a FLAC stream without a length
        raise AudioError(f"does not say how long it is, as it was written to a pipe; {REWRITE_HINT}")
    seconds = frames / rate
    if seconds < MIN_SECONDS:
        raise AudioError(f"has {frames:,} samples at {rate:,} Hz; {MIN_SECONDS} seconds are needed")
    if seconds > MAX_SECONDS:
        raise AudioError(
            f"has, by its header, {seconds / 3600:,.1f} hours of audio; the limit is {MAX_SECONDS // 3600}: "
            "cut it into shorter files"
        )
    if frames * channels > MAX_SAMPLES:
        raise AudioError(
            f"has {frames * channels:,} samples in all channels; the limit is {MAX_SAMPLES:,}: "
            "reduce its rate or its channels"
        )
    claims_agree = (
        container.rate in (None, rate)
        and container.channels in (None, channels)
        and (container.frames is None or container.frames - container.max_trimmed <= frames <= container.frames)
    )
    if frames > MAX_FRAMES_PER_BYTE * size or not claims_agree:
        raise AudioError(
            f"is damaged: its header contradicts itself ({seconds:,.2f} seconds, {rate:,} Hz, {channels} channels, "
            f"{size:,} bytes)"
        )


def _iterate_blocks(sound: SoundFile) -> Iterator[numpy.ndarray]:
    """Yield the mean of all channels, block by block; refuse samples that are no sound, and a file that ends early."""
    position = 0
    block_frames = max(1, BLOCK_SAMPLES // sound.channels)
    while position < sound.frames:
        block = sound.read(min(block_frames, sound.frames - position), dtype="float32", always_2d=True)
        if not len(block):
            raise AudioError(
                f"is truncated: its header promises {sound.frames / sound.samplerate:,.2f} seconds, and it has "
                f"{position / sound.samplerate:,.2f}; {REWRITE_HINT}"
            )
        if not numpy.abs(block).max() <= MAX_MAGNITUDE:  # also for NaN
            row, channel = (int(index) for index in numpy.argwhere(~(numpy.abs(block) <= MAX_MAGNITUDE))[0])
            seconds = (position + row) / sound.samplerate
            raise AudioError(
                f"contains the sample {block[row, channel]:g} at {seconds:,.3f} seconds in channel {channel + 1}; "
                f"samples must be finite and at most {MAX_MAGNITUDE:g}, where full scale is 1"
            )
        yield block.mean(axis=1)
        position += len(block)


def _resample(sound: SoundFile) -> Tensor:
    """Write the blocks at ``RATE`` into one array. Its pages take no memory before they are written."""
    import soxr

    rate = sound.samplerate
    samples = numpy.empty(math.ceil(sound.frames * RATE / rate) + 1, dtype=numpy.float32)
    stream = soxr.ResampleStream(rate, RATE, 1, dtype="float32", quality="HQ")
    position = 0
    end = numpy.empty(0, dtype=numpy.float32)  # with which the resampler writes its last samples
    for block in chain(_iterate_blocks(sound), [end]):
        resampled = block if rate == RATE else stream.resample_chunk(block, last=not len(block))
        samples[position : position + len(resampled)] = resampled
        position += len(resampled)
    return torch.from_numpy(samples[:position])
