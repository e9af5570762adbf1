"""Check the container of an audio file before it is decoded: its header must agree with the bytes that follow."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

from jumok.errors import AudioError

REWRITE_HINT = "write the file again, for example with: ffmpeg -i INPUT OUTPUT.flac"


@dataclass(frozen=True)
class Container:
    """What the container of an audio file says about its audio.

    Attributes:
        format: Name of the format: "WAV", "FLAC", "OGG" or "MP3".
        rate: Frames per second; None if only the decoder reads it.
        channels: Number of channels; None if only the decoder reads it.
        frames: Number of frames (one sample of each channel); None if only the decoder reads it.
        max_trimmed: How many frames a decoder may leave out at the start and the end.
        prefix: Bytes that the decoder must read before the file, which give the length of a stream without a header.
        stream: Where the decoder must start and stop to read the file, without the tags around it; None = all of it.
    """

    format: str
    rate: int | None = None
    channels: int | None = None
    frames: int | None = None
    max_trimmed: int = 0
    prefix: bytes = b""
    stream: tuple[int, int] | None = None


def check_container(file: io.BufferedReader, size: int) -> Container:
    """Recognise the format of a file by its first bytes, and check the container.

    libsndfile reads what is there when a WAV file is shorter than its header says, stops after the first of several
    Ogg or FLAC streams, and guesses the length of MP3 files without a header. All of these are found here.
    """
    from jumok.data.audio.flac_stream import check_flac
    from jumok.data.audio.mp3_frames import check_mp3
    from jumok.data.audio.ogg_pages import check_ogg
    from jumok.data.audio.wav_header import check_wav

    first = read_exactly(file, 0, min(size, 12))
    check: Callable[[io.BufferedReader, int], Container]
    if first[:4] in (b"RIFF", b"RF64") and first[8:12] == b"WAVE":
        check = check_wav
    elif first[:4] == b"OggS":
        check = check_ogg
    elif first[:4] == b"fLaC":
        check = check_flac
    elif first[:3] == b"ID3" or (len(first) > 1 and first[0] == 0xFF and first[1] & 0xE0 == 0xE0):
        check = check_mp3
    else:
        raise AudioError("is not a readable audio file; supported formats are WAV, FLAC, OGG (Vorbis, Opus) and MP3")
    return check(file, size)


def read_exactly(file: io.BufferedReader, position: int, count: int) -> bytes:
    """Read bytes at a position."""
    file.seek(position)
    content = file.read(count)
    if len(content) < count:
        raise AudioError(f"is truncated: it ends at byte {position + len(content):,}, inside a header; {REWRITE_HINT}")
    return content
