"""Check the container of an audio file before it is decoded: its header must agree with the bytes that follow.

libsndfile refuses most damaged files, but not all: it reads what is there when a WAV file is shorter than its header
says, skips damaged Ogg pages, stops after the first of several Ogg or FLAC streams, and guesses the length of MP3 files
without a header; its MP3 decoder prints to standard error. All of these are found here. The errors are
sentences without their subject, such as "is truncated: ...".
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from jumok.errors import AudioError

REWRITE_HINT = "write the file again, for example with: ffmpeg -i INPUT OUTPUT.flac"

# WAV
SAMPLE_FORMATS = (1, 3, 6, 7)  # PCM, float, A-law and mu-law, whose frames have a fixed size
EXTENSIBLE = 0xFFFE
UNKNOWN_SIZE = 0xFFFFFFFF
MAX_CHUNKS = 1000  # before the samples

# FLAC: the marker and the header of the stream's description
FLAC_STARTS = (b"fLaC\x00\x00\x00\x22", b"fLaC\x80\x00\x00\x22")
FLAC_BLOCK = 2**20

# Ogg (RFC 3533)
PAGE_HEADER = struct.Struct("<4sBBqIIIB")  # magic, version, flags, time, serial, number, checksum, segments
FIRST, LAST = 2, 4  # flags of a page
NO_TIME = -1  # of a page on which no packet ends
REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

# MP3 (MPEG-1, 2 and 2.5, layer III)
KILOBITS = {  # by MPEG version; the first index is "free", which gives no size
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = (44_100, 48_000, 32_000)  # MPEG-1; half of it in MPEG-2, a quarter in MPEG-2.5
MAX_SKIPPED = 65_536  # bytes before the first frame
MAX_TRIMMED = 2 * 4_096 + 529  # the encoder's delay and padding, of 12 bits each in its header, and the decoder's
END_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3", b"3DI")


@dataclass(frozen=True)
class Container:
    """What the container of an audio file says about its audio; None if only the decoder reads it."""

    format: str
    rate: int | None = None  # frames per second
    channels: int | None = None
    frames: int | None = None  # one sample of each channel
    max_trimmed: int = 0  # how many frames a decoder may leave out at the start and the end
    prefix: bytes = b""  # what the decoder must read before the file: the length of a stream without a header
    # where the decoder must start and stop to read the file, without the tags around it; None = all of it
    stream: tuple[int, int] | None = None


def check_container(file: io.BufferedReader, size: int) -> Container:
    """Recognise the format of a file by its first bytes, and check the container."""
    first = read_exactly(file, 0, min(size, 12))
    if first[:4] in (b"RIFF", b"RF64") and first[8:12] == b"WAVE":
        return _check_wav(file, size)
    if first[:4] == b"OggS":
        return _check_ogg(file, size)
    if first[:4] == b"fLaC":
        return _check_flac(file, size)
    if first[:3] == b"ID3" or (len(first) > 1 and first[0] == 0xFF and first[1] & 0xE0 == 0xE0):
        return _check_mp3(file, size)
    raise AudioError("is not a readable audio file; supported formats are WAV, FLAC, OGG (Vorbis, Opus) and MP3")


def read_exactly(file: io.BufferedReader, position: int, count: int) -> bytes:
    """Read bytes at a position; refuse a file that ends before."""
    file.seek(position)
    content = file.read(count)
    if len(content) < count:
        raise AudioError(f"is truncated: it ends at byte {position + len(content):,}, inside a header; {REWRITE_HINT}")
    return content


# WAV


def _check_wav(file: io.BufferedReader, size: int) -> Container:
    """Check that a file (RIFF, or RF64 for more than 4 GB) contains all samples that its header promises."""
    identifier, riff_size = struct.unpack("<4sI", read_exactly(file, 0, 8))
    data_size: int | None = None  # from an RF64 header
    layout: tuple[int, int, int] | None = None  # rate, channels, bytes per frame
    position = 12
    for _ in range(MAX_CHUNKS):
        if position + 8 > size:
            raise AudioError(f"contains no samples: its header has no 'data' chunk; {REWRITE_HINT}")
        name, chunk_size = struct.unpack("<4sI", read_exactly(file, position, 8))
        start = position + 8
        if name == b"data":
            break
        if name == b"ds64" and identifier == b"RF64" and chunk_size >= 28:
            riff_size, data_size = struct.unpack("<QQ", read_exactly(file, start, 16))
        elif name == b"fmt ":
            layout = _parse_wav_format(read_exactly(file, start, min(chunk_size, 40)))
        position = start + chunk_size + chunk_size % 2
    else:
        raise AudioError(f"is damaged: its header has more than {MAX_CHUNKS:,} chunks; {REWRITE_HINT}")

    if layout is None:  # an encoding with frames of other sizes, or damage: libsndfile says which
        return Container("WAV")
    if identifier == b"RF64" and data_size is not None and chunk_size == UNKNOWN_SIZE:
        chunk_size = data_size
    rate, channels, frame_size = layout
    if start + chunk_size > size:
        promised, present = (count / frame_size / rate for count in (chunk_size, size - start))
        raise AudioError(
            f"is truncated, or was written to a pipe: its header promises {promised:,.2f} seconds, and the file has "
            f"{present:,.2f}; {REWRITE_HINT}"
        )
    if not start + chunk_size - 8 <= riff_size <= size - 8 + size % 2:
        raise AudioError(
            f"is truncated or damaged: its header says that it has {riff_size + 8:,} bytes, and it has {size:,}; "
            f"{REWRITE_HINT}"
        )
    return Container("WAV", rate, channels, chunk_size // frame_size)


def _parse_wav_format(content: bytes) -> tuple[int, int, int] | None:
    """Return rate, channels and bytes per frame of a 'fmt ' chunk; None for what is not one of SAMPLE_FORMATS."""
    if len(content) < 16:
        return None
    tag, channels, rate, _, frame_size, bits = struct.unpack("<HHIIHH", content[:16])
    valid_bits = bits
    if tag == EXTENSIBLE and len(content) == 40:
        valid_bits, tag = struct.unpack("<18xH4xH14x", content)
    if tag not in SAMPLE_FORMATS:
        return None
    if not rate or not channels or not bits or frame_size != channels * bits // 8 or valid_bits > bits:
        raise AudioError(
            f"is damaged: its header says {rate:,} Hz and {frame_size:,} bytes for {channels:,} samples of {bits} "
            f"bits, {valid_bits} of them valid"
        )
    return rate, channels, frame_size


# FLAC


def _check_flac(file: io.BufferedReader, size: int) -> Container:
    """Check that a FLAC file does not contain a second stream. Its decoder verifies a checksum of every frame."""
    for position in range(1, size, FLAC_BLOCK):
        file.seek(position)
        block = file.read(FLAC_BLOCK + len(FLAC_STARTS[0]) - 1)
        for start in FLAC_STARTS:
            if start in block:
                second = position + block.index(start)
                raise AudioError(f"contains a second FLAC stream, at byte {second:,}; {REWRITE_HINT}")
    return Container("FLAC")


# Ogg


def _check_ogg(file: io.BufferedReader, size: int) -> Container:
    """Check that a file is one Ogg stream whose last page is there.

    A decoder skips damaged pages and stops after the first of several streams, both without an error.
    """
    position = count = 0
    last_time = 0
    first_serial: int | None = None
    flags = 0
    while position < size:
        if position + PAGE_HEADER.size > size:
            raise _make_truncation_error(position)
        header = read_exactly(file, position, PAGE_HEADER.size)
        magic, version, flags, page_time, serial, number, checksum, segments = PAGE_HEADER.unpack(header)
        if magic != b"OggS" or version != 0:
            raise AudioError(f"is damaged: there is no Ogg page at byte {position:,}; {REWRITE_HINT}")
        table = file.read(segments)
        body = file.read(sum(table))
        if len(table) < segments or len(body) < sum(table):
            raise _make_truncation_error(position)

        if first_serial is None:
            first_serial = serial
        if serial != first_serial:
            raise AudioError(f"contains several Ogg streams, of which only one can be read; {REWRITE_HINT}")
        if number != count or bool(flags & FIRST) != (count == 0):
            raise AudioError(f"is damaged: an Ogg page is missing before byte {position:,}; {REWRITE_HINT}")
        if compute_checksum(header[:22] + bytes(4) + header[26:] + table + body) != checksum:
            raise AudioError(f"is damaged: the Ogg page at byte {position:,} has a wrong checksum; {REWRITE_HINT}")
        if page_time != NO_TIME and page_time < last_time:
            raise AudioError(f"is damaged: its time goes back at byte {position:,}; {REWRITE_HINT}")
        last_time = max(last_time, page_time)
        count += 1
        position += len(header) + len(table) + len(body)
        if flags & LAST and position < size:
            raise AudioError(f"goes on after the end of its Ogg stream, at byte {position:,}; {REWRITE_HINT}")
    if not flags & LAST:
        raise _make_truncation_error(size)
    return Container("OGG")


def _make_truncation_error(position: int) -> AudioError:
    return AudioError(f"is truncated: its Ogg stream breaks off at byte {position:,}, before its last page")


def compute_checksum(page: bytes) -> int:
    """Return the checksum of an Ogg page: a CRC-32 of the most significant bit first, from 0.

    >>> hex(compute_checksum(bytes([0, 0, 0, 1])))
    '0x4c11db7'
    """
    # zlib computes the same polynomial with the least significant bit first, and inverts before and after
    crc = zlib.crc32(page.translate(REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)


# MP3


class _FrameHeader(NamedTuple):
    """The header of one MP3 frame: its bytes, samples per second, channels (1 or 2) and samples per channel."""

    size: int
    rate: int
    channels: int
    samples: int
    side_size: int  # bytes between the header and the place of a Xing header


def _parse_frame_header(content: bytes) -> _FrameHeader | None:
    """Parse the four bytes of a frame header; None if they are not one of layer III with a bitrate."""
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
    return _FrameHeader(size, hertz, channels, samples, side_size)


def _check_mp3(file: io.BufferedReader, size: int) -> Container:
    """Check that an MP3 file consists of complete frames of one rate, as many as its header says, if it has one."""
    start = _find_first_frame(file, size)
    first_bytes = read_exactly(file, start, min(size - start, 200))
    first = _parse_frame_header(first_bytes)
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
            header = _parse_frame_header(window[offset : offset + 4])
            if header is None:
                continue
            end = start + offset + header.size  # where another frame follows, or the file ends
            if end == size or (end + 4 <= size and _parse_frame_header(read_exactly(file, end, 4)) is not None):
                return start + offset
    raise AudioError("is not a readable audio file: it contains no MP3 frames (MPEG layer III)")


def _read_promised_frames(content: bytes, header: _FrameHeader) -> int | None:
    """Return the number of frames in the Xing, Info or VBRI header in the first frame; None if it is an audio frame."""
    xing = content[4 + header.side_size :]
    if xing[:4] in (b"Xing", b"Info") and len(xing) >= 12 and xing[7] & 1:
        return int(struct.unpack(">I", xing[8:12])[0])
    if content[36:40] == b"VBRI" and len(content) >= 54:
        return int(struct.unpack(">I", content[50:54])[0])
    return None


def _count_frames(file: io.BufferedReader, size: int, start: int, first: _FrameHeader) -> tuple[int, int]:
    """Return the number of frames, and where the last one ends."""
    position, count = start, 0
    while position < size:
        content = read_exactly(file, position, min(4, size - position))
        header = _parse_frame_header(content)
        if header is None:
            tail = read_exactly(file, position, min(MAX_SKIPPED, size - position))
            if tail.startswith(END_TAGS) or not any(tail):
                break
            raise AudioError(f"is damaged: there is no MP3 frame at byte {position:,}; {REWRITE_HINT}")
        if (header.rate, header.channels) != (first.rate, first.channels):
            raise AudioError(f"changes its rate or its channels at byte {position:,}; {REWRITE_HINT}")
        if position + header.size > size:
            raise AudioError(f"is truncated: its last MP3 frame, at byte {position:,}, is incomplete; {REWRITE_HINT}")
        position += header.size
        count += 1
    return count, position


def _build_length_header(first: bytes, count: int) -> bytes:
    """Return a frame with a Xing header that gives the number of frames, for a file that has none."""
    for bitrate in range(1, 15):
        # without protection and padding, and large enough for the header
        start = bytes([first[0], first[1] | 1, bitrate << 4 | first[2] & 12, first[3]])
        header = _parse_frame_header(start)
        if header is not None and header.size >= 4 + header.side_size + 12:
            content = start + bytes(header.side_size) + b"Xing" + struct.pack(">II", 1, count)
            return content.ljust(header.size, b"\0")
    raise AssertionError("the largest bitrate has room for the header")
