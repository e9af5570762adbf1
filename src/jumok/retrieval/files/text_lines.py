"""Read the lines of an open file that should be text, in constant memory. What is not text is refused."""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Iterator

from jumok.data.readers.file_format import suggest_encoding

from .skip_log import UnusableFileError

PART_CHARACTERS = 65_536  # a longer line is read in parts
_BLOCK_BYTES = 2**18
_SAMPLE_BYTES = 2**16
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CONTROL_BYTE = re.compile(rb"[\x01-\x08\x0b\x0e-\x19\x1c-\x1f\x7f]")


class BoundedFile(io.RawIOBase):
    """The first bytes of an open file: a file that grows while it is read does not keep the reader busy.

    Args:
        descriptor: The open file; the caller closes it. Its position does not change.
        size: The number of bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read bytes into a buffer."""
        content = os.pread(self._descriptor, min(len(buffer), self._size - self._position), self._position)
        self._position += len(content)
        buffer[: len(content)] = content
        return len(content)


def read_text_lines(descriptor: int, size: int, part: int = PART_CHARACTERS) -> Iterator[tuple[int, str, bool]]:
    r"""Yield (line number, text, is end of line) of a text file.

    Lines end with \n, \r\n or \r. A line longer than ``part`` characters is yielded in parts that end between words.
    """
    encoding = detect_encoding(descriptor, size)
    number = 1
    remainder = ""  # the beginning of a word at the end of a part
    with io.TextIOWrapper(io.BufferedReader(BoundedFile(descriptor, size), _BLOCK_BYTES), encoding) as text:
        try:
            while line := remainder + text.readline(part - len(remainder)):
                is_end = line.endswith("\n") or len(line) < part
                end = len(line) if is_end else line.rfind(" ") + 1
                # a word that fills half of a part is an encoded file, and is cut
                line, remainder = (line[:end], line[end:]) if end > part // 2 else (line, "")
                yield number, line.removesuffix("\n"), is_end
                number += is_end
        except UnicodeError:  # the file has changed since its encoding was detected
            raise UnusableFileError("changed while it was read") from None


def detect_encoding(descriptor: int, size: int) -> str:
    """Return the encoding of a text file: UTF-8, UTF-16 with a byte order mark, CP949, Shift JIS or CP1252.

    The last three are accepted only if the letters of the file are typical for them.
    """
    start = os.pread(descriptor, 4, 0)
    marked = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), None)
    if marked is not None:
        if _can_decode(descriptor, size, marked):
            return marked
        raise UnusableFileError("not text in its encoding")
    sample = b""
    has_control = False
    for block in _read_blocks(descriptor, size):
        if b"\0" in block:
            raise UnusableFileError("binary")
        has_control = has_control or _CONTROL_BYTE.search(block) is not None
        if len(sample) < _SAMPLE_BYTES and not block.isascii():
            sample += b"\n".join(line for line in block.split(b"\n") if not line.isascii())[:_SAMPLE_BYTES]
    if not sample or _can_decode(descriptor, size, "utf-8"):
        return "utf-8"
    # a sample ends in the middle of a line, perhaps in the middle of a character
    likely = None if has_control else suggest_encoding(sample[: sample.rfind(b"\n") + 1] or sample)
    if likely is None or not _can_decode(descriptor, size, likely):
        raise UnusableFileError("binary" if has_control else "not UTF-8 text")
    return likely


def _read_blocks(descriptor: int, size: int) -> Iterator[bytes]:
    for position in range(0, size, _BLOCK_BYTES):
        yield os.pread(descriptor, min(_BLOCK_BYTES, size - position), position)


def _can_decode(descriptor: int, size: int, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in _read_blocks(descriptor, size):
            if "\0" in decoder.decode(block):
                return False
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True
