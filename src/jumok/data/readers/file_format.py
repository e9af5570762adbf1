"""Describe how the user's files are written: their encoding, and whether tables begin with a header."""

from __future__ import annotations

import codecs
import difflib
import re
from dataclasses import dataclass

from jumok.errors import ArgumentError

HEADER_CHOICES = ("auto", "yes", "no")
BYTE_ORDER_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
COMMON_ENCODINGS = ("utf-8", "cp949", "euc-kr", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252", "shift_jis")
# what a text in each encoding contains; the first that fits is suggested
_TYPICAL_CHARACTERS = {
    "utf-8": re.compile("[^\x00-\x7f]"),
    "cp949": re.compile("[가-힣ㄱ-ㅣ]"),
    "shift_jis": re.compile("[ぁ-ヿ]"),
    "cp1252": re.compile("[À-Öß-öø-üŒœŠšŽž‘’“”–—…€]"),
}
_NOT_ASCII = re.compile("[^\x00-\x7f]")


@dataclass(frozen=True)
class FileFormat:
    """How files are written, as far as their content does not say it."""

    encoding: str = "utf-8"  # of text files, as Python knows it: "utf-8", "cp949", "utf-16"
    header: str = "auto"  # whether the first row of a table names its columns: "yes", "no", "auto" = by its content

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.header not in HEADER_CHOICES:
            raise ArgumentError(f"header must be one of {', '.join(HEADER_CHOICES)}, not {self.header!r}")


def check_encoding(name: str) -> str:
    """Return the standard name of a text encoding.

    >>> check_encoding("UTF8"), check_encoding("ms949")
    ('utf-8', 'cp949')
    """
    try:
        codec = codecs.lookup(name)
        if not codec._is_text_encoding or codec.name == "undefined":
            raise LookupError
    except (LookupError, ValueError, TypeError):
        near = difflib.get_close_matches(str(name).lower(), COMMON_ENCODINGS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"common ones are {', '.join(COMMON_ENCODINGS)}"
        raise ArgumentError(f"unknown encoding {str(name)[:40]!r}; {hint}") from None
    return codec.name


def find_byte_order_mark(start: bytes) -> str | None:
    """Return the encoding that a byte order mark announces; None without a mark."""
    return next((encoding for mark, encoding in BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)


def is_clearly_utf_8(start: bytes) -> bool:
    """Return whether bytes are UTF-8 with characters of three or four bytes, which other encodings hardly imitate."""
    complete = start[: start.rfind(b"\n") + 1] or start
    try:
        return any(character > "\u07ff" for character in complete.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def suggest_encoding(raw: bytes) -> str | None:
    """Return an encoding in which these bytes are readable text, or None if none is likely.

    >>> suggest_encoding("재미있는 영화".encode("cp949")), suggest_encoding("café noir".encode("latin-1"))
    ('cp949', 'cp1252')
    """
    for encoding, typical in _TYPICAL_CHARACTERS.items():
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        letters = "".join(_NOT_ASCII.findall(text))
        if 2 * len(typical.findall(letters)) > len(letters):
            return encoding
    return None


def suggest_wide_encoding(start: bytes) -> str | None:
    """Return "utf-16-le" or "utf-16-be" for bytes that look like UTF-16 without a byte order mark, otherwise None.

    >>> suggest_wide_encoding("plain text".encode("utf-16-le"))
    'utf-16-le'
    """
    even_zeros, odd_zeros = start[::2].count(0), start[1::2].count(0)
    if max(even_zeros, odd_zeros) * 8 < len(start) or min(even_zeros, odd_zeros):
        return None
    return "utf-16-be" if even_zeros else "utf-16-le"


UTF_8 = FileFormat()
