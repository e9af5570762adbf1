"""Check that a FLAC file contains one stream: a decoder stops after the first one, without an error."""

from __future__ import annotations

import io

from jumok.data.audio.containers import REWRITE_HINT, Container
from jumok.errors import AudioError

STREAM_STARTS = (
    b"fLaC\x00\x00\x00\x22",
    b"fLaC\x80\x00\x00\x22",
)  # the marker and the header of the stream's description
BLOCK_SIZE = 2**20


def check_flac(file: io.BufferedReader, size: int) -> Container:
    """Check that a FLAC file does not contain a second stream. Its decoder verifies a checksum of every frame."""
    for position in range(1, size, BLOCK_SIZE):
        file.seek(position)
        block = file.read(BLOCK_SIZE + len(STREAM_STARTS[0]) - 1)
        for start in STREAM_STARTS:
            if start in block:
                second = position + block.index(start)
                raise AudioError(f"contains a second FLAC stream, at byte {second:,}; {REWRITE_HINT}")
    return Container("FLAC")
