"""Check the header of a WAV file (RIFF, or RF64 for more than 4 GB) against the size of the file."""

from __future__ import annotations

import io
import struct

from jumok.data.audio.containers import REWRITE_HINT, Container, read_exactly
from jumok.errors import AudioError

PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
SAMPLE_BITS = {PCM: (8, 16, 24, 32), FLOAT: (32, 64), A_LAW: (8,), MU_LAW: (8,)}  # bits per sample by format tag
SUBFORMAT_END = bytes.fromhex("000000001000800000aa00389b71")  # of the identifiers whose first two bytes are a tag
UNKNOWN_SIZE = 0xFFFFFFFF
MAX_CHUNKS = 1000  # before the samples


def check_wav(file: io.BufferedReader, size: int) -> Container:
    """Check that the header of a WAV file is consistent, and that the file contains all samples that it promises."""
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
            if layout is not None:
                raise AudioError(f"is damaged: its header describes two formats; {REWRITE_HINT}")
            layout = _parse_format(read_exactly(file, start, min(chunk_size, 40)))
        position = start + chunk_size + chunk_size % 2
    else:
        raise AudioError(f"is damaged: its header has more than {MAX_CHUNKS:,} chunks; {REWRITE_HINT}")

    if layout is None:
        raise AudioError(f"is damaged: its header does not describe the format before the samples; {REWRITE_HINT}")
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


def _parse_format(content: bytes) -> tuple[int, int, int]:
    """Return rate, channels and bytes per frame of a 'fmt ' chunk; refuse what contradicts itself."""
    if len(content) < 16:
        raise AudioError(f"is damaged: the description of its format has {len(content)} bytes instead of 16 or more")
    tag, channels, rate, _, frame_size, bits = struct.unpack("<HHIIHH", content[:16])
    if tag == EXTENSIBLE:
        if len(content) < 40 or content[26:40] != SUBFORMAT_END:
            raise AudioError(f"has an unknown extensible format; {REWRITE_HINT}")
        valid_bits, tag = struct.unpack("<H", content[18:20])[0], struct.unpack("<H", content[24:26])[0]
        if valid_bits > bits:
            raise AudioError(f"is damaged: its header says that {valid_bits} of {bits} bits per sample are valid")
    if tag not in SAMPLE_BITS:
        raise AudioError(f"has samples of format {tag:#06x}, which is not PCM, float, A-law or mu-law; {REWRITE_HINT}")
    if bits not in SAMPLE_BITS[tag]:
        allowed = " or ".join(map(str, SAMPLE_BITS[tag]))
        raise AudioError(f"is damaged: its header says {bits} bits per sample, where the format has {allowed}")
    if not rate or not channels or frame_size != channels * bits // 8:
        raise AudioError(
            f"is damaged: its header says {rate:,} Hz and {frame_size:,} bytes for {channels:,} samples of {bits} bits"
        )
    return rate, channels, frame_size
