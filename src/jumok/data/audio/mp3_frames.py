"""Check the frames of an MP3 file (MPEG-1, 2 and 2.5, layer III), and count them."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from jumok.data.audio.containers import REWRITE_HINT, Container, read_exactly
from jumok.errors import AudioError

KILOBITS = {  # by MPEG version; the first index is "free", which gives no size
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = (44_100, 48_000, 32_000)  # MPEG-1; half of it in MPEG-2, a quarter in MPEG-2.5
MAX_SKIPPED = 65_536  # bytes before the first frame
MAX_TRIMMED = (
    2 * 4_096 + 529
)  # the encoder's delay and padding, which its header gives in 12 bits each, and the decoder's
END_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3", b"3DI")


@dataclass(frozen=True)
class FrameHeader:
    """The header of one MP3 frame.

    Attributes:
        size: Number of bytes of the frame.
        rate: Frames (of samples) per second.
        channels: 1 or 2.
        samples: Number of samples per channel in one frame.
        side_size: Number of bytes between the header and the place of a Xing header.
    """

    size: int
    rate: int
    channels: int
    samples: int
    side_size: int


def parse_frame_header(content: bytes) -> FrameHeader | None:
    """Parse the four bytes of a frame header."""
    if len(content) < 4 or content[0] != 0xFF or content[1] & 0xE6 != 0xE2:  # 11 bits of synchronisation, layer III
        return None
    version, bitrate, rate = (content[1] >> 3) & 3, content[2] >> 4, (content[2] >> 2) & 3
    if version == 1 or bitrate in (0, 15) or rate == 3:
        return None
    is_first_version = version == 3
    hertz = RATES[rate] // {3: 1, 2: 2, 0: 4}[version]
    samples = 1152 if is_first_version else 576
    size = samples // 8 * KILOBITS[1 if is_first_version else 2][bitrate] * 1000 // hertz + ((content[2] >> 1) & 1)
    channels = 1 if content[3] >> 6 == 3 else 2
    side_size = {(True, 2): 32, (True, 1): 17, (False, 2): 17, (False, 1): 9}[is_first_version, channels]
    return FrameHeader(size, hertz, channels, samples, side_size)


def check_mp3(file: io.BufferedReader, size: int) -> Container:
    """Check that an MP3 file consists of complete frames of one rate, as many as its header says, if it has one."""
    start = _find_first_frame(file, size)
    first_bytes = read_exactly(file, start, min(size - start, 200))
    first = parse_frame_header(first_bytes)
    assert first is not None
    promised = _read_promised_frames(first_bytes, first)
    count, end = _count_frames(file, size, start, first)
    prefix = b""
    if promised is None:
        # Without a header, libsndfile takes the length from the first bitrate, and drops the rest of the file.
        promised, prefix = count, _build_length_header(first_bytes[:4], count)
    else:
        count -= 1  # the frame of the header
    if abs(promised - count) > 1:  # some programs count the header's own frame
        relation = "is truncated" if promised > count else "goes on after the end of its stream"
        raise AudioError(
            f"{relation}: its header promises {promised:,} MP3 frames, and it has {count:,}; {REWRITE_HINT}"
        )
    frames = max(promised, count) * first.samples
    return Container("MP3", first.rate, first.channels, frames, MAX_TRIMMED, prefix, (start, end))


def _find_first_frame(file: io.BufferedReader, size: int) -> int:
    """Return where the first frame starts, after an ID3 tag."""
    start = 0
    if size >= 10 and (tag := read_exactly(file, 0, 10))[:3] == b"ID3":
        start = 10 + sum((byte & 127) << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
        start += 10 if tag[5] & 16 else 0  # a footer
    if start < size:
        window = read_exactly(file, start, min(size - start, MAX_SKIPPED))
        for offset in range(len(window)):
            header = parse_frame_header(window[offset : offset + 4])
            if header is not None and _continues(file, size, start + offset + header.size):
                return start + offset
    raise AudioError("is not a readable audio file: it contains no MP3 frames (MPEG layer III)")


def _continues(file: io.BufferedReader, size: int, position: int) -> bool:
    """Return whether a frame follows at a position, or the file ends there."""
    return position == size or (
        position + 4 <= size and parse_frame_header(read_exactly(file, position, 4)) is not None
    )


def _read_promised_frames(content: bytes, header: FrameHeader) -> int | None:
    """Return the number of frames in the Xing, Info or VBRI header in the first frame; None if it is an audio frame."""
    xing = content[4 + header.side_size :]
    if xing[:4] in (b"Xing", b"Info") and len(xing) >= 12 and xing[7] & 1:
        return int(struct.unpack(">I", xing[8:12])[0])
    if content[36:40] == b"VBRI" and len(content) >= 54:
        return int(struct.unpack(">I", content[50:54])[0])
    return None


def _count_frames(file: io.BufferedReader, size: int, start: int, first: FrameHeader) -> tuple[int, int]:
    """Return the number of frames, and where the last one ends."""
    position, count = start, 0
    while position < size:
        content = read_exactly(file, position, min(4, size - position))
        header = parse_frame_header(content)
        if header is None:
            if _is_end(file, size, position):
                break
            raise AudioError(f"is damaged: there is no MP3 frame at byte {position:,}; {REWRITE_HINT}")
        if (header.rate, header.channels) != (first.rate, first.channels):
            raise AudioError(f"changes its rate or its channels at byte {position:,}; {REWRITE_HINT}")
        if position + header.size > size:
            raise AudioError(f"is truncated: its last MP3 frame, at byte {position:,}, is incomplete; {REWRITE_HINT}")
        position += header.size
        count += 1
    return count, position


def _is_end(file: io.BufferedReader, size: int, position: int) -> bool:
    """Return whether a tag or zeros follow the last frame."""
    content = read_exactly(file, position, min(MAX_SKIPPED, size - position))
    return content.startswith(END_TAGS) or not any(content)


def _build_length_header(first: bytes, count: int) -> bytes:
    """Return a frame with a Xing header that gives the number of frames, for a file that has none."""
    for bitrate in range(1, 15):
        # without protection and padding, and large enough for the header
        start = bytes([first[0], first[1] | 1, bitrate << 4 | first[2] & 12, first[3]])
        header = parse_frame_header(start)
        if header is not None and header.size >= 4 + header.side_size + 12:
            content = start + bytes(header.side_size) + b"Xing" + struct.pack(">II", 1, count)
            return content.ljust(header.size, b"\0")
    raise AssertionError("the largest bitrate has room for the header")
