"""Check the pages of an Ogg file (RFC 3533): one complete stream, in order, with the right checksums."""

from __future__ import annotations

import io
import struct
import zlib

from jumok.data.audio.containers import REWRITE_HINT, Container, read_exactly
from jumok.errors import AudioError

PAGE_HEADER = struct.Struct("<4sBBqIIIB")  # magic, version, flags, time, serial, number, checksum, segments
FIRST, LAST = 2, 4  # flags of a page
NO_TIME = -1  # of a page on which no packet ends
REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check_ogg(file: io.BufferedReader, size: int) -> Container:
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
