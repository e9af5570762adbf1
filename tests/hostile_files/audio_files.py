"""Hostile audio files, written byte by byte: each lies about its length, rate, channels or samples, or is damaged."""

from __future__ import annotations

import io
import math
import random
import struct
from collections.abc import Callable

import numpy
import soundfile

from jumok.data.audio.containers import compute_checksum

RATE = 8_000
SUBFORMAT_END = bytes.fromhex("000000001000800000aa00389b71")
Build = Callable[[], bytes]


def build_chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    """Return a RIFF chunk, which may lie about its size."""
    return name + struct.pack("<I", len(content) if size is None else size) + content + b"\0" * (len(content) % 2)


def build_format(
    tag: int = 1, channels: int = 1, rate: int = RATE, align: int | None = None, bits: int = 16, extra: bytes = b""
) -> bytes:
    """Return a 'fmt ' chunk."""
    align = channels * bits // 8 if align is None else align
    fields = (tag, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    return build_chunk(b"fmt ", struct.pack("<HHIIHH", *fields) + extra)


def build_wav(
    format_chunk: bytes | None = None,
    samples: bytes | None = None,
    data_size: int | None = None,
    riff_size: int | None = None,
    before: bytes = b"",
    identifier: bytes = b"RIFF",
) -> bytes:
    """Return a WAV file of 0.1 s, changed as the arguments say."""
    samples = bytes(1600) if samples is None else samples
    format_chunk = build_format() if format_chunk is None else format_chunk
    body = b"WAVE" + before + format_chunk + build_chunk(b"data", samples, data_size)
    return identifier + struct.pack("<I", len(body) if riff_size is None else riff_size) + body


def build_float_wav(sample: float, bits: int = 32) -> bytes:
    """Return a WAV file of floats, with one special sample in the second channel at 0.05 seconds."""
    samples = numpy.zeros((800, 2), "<f4" if bits == 32 else "<f8")
    samples[400, 1] = sample
    return build_wav(build_format(3, channels=2, bits=bits), samples.tobytes())


def build_extensible(valid_bits: int = 16, subformat: bytes = b"\1\0" + SUBFORMAT_END) -> bytes:
    extra = struct.pack("<HHI", 22, valid_bits, 4) + subformat
    return build_wav(build_format(0xFFFE, extra=extra))


def build_rf64(data_size: int, riff_size: int | None = None) -> bytes:
    """Return an RF64 file whose real sizes stand in a 'ds64' chunk."""
    body = 1600 + 36 + 8 + 24 + 4
    sizes = struct.pack("<QQQI", body if riff_size is None else riff_size, data_size, 800, 0)
    return build_wav(None, None, 0xFFFFFFFF, 0xFFFFFFFF, build_chunk(b"ds64", sizes), b"RF64")


def encode(format: str, seconds: float = 0.5, rate: int = RATE, subtype: str | None = None) -> bytes:
    """Return a sine wave in a compressed format."""
    sine = 0.5 * numpy.sin(2 * math.pi * 440 * numpy.arange(int(seconds * rate)) / rate)
    file = io.BytesIO()
    soundfile.write(file, sine, rate, format=format, subtype=subtype)
    return file.getvalue()


def change(content: bytes, position: int, replacement: bytes) -> bytes:
    return content[:position] + replacement + content[position + len(replacement) :]


def build_flac(rate: int = RATE, channels: int = 1, bits: int = 16, frames: int = 4000) -> bytes:
    """Return a FLAC file whose STREAMINFO is replaced."""
    packed = rate << 44 | (channels - 1) << 41 | (bits - 1) << 36 | frames
    return change(encode("FLAC"), 18, packed.to_bytes(8, "big"))


def split_pages(content: bytes) -> list[bytes]:
    """Split an Ogg file into its pages."""
    pages, position = [], 0
    while position < len(content):
        count = content[position + 26]
        size = 27 + count + sum(content[position + 27 : position + 27 + count])
        pages.append(content[position : position + size])
        position += size
    return pages


def sign_page(page: bytes) -> bytes:
    """Return a page with the right checksum."""
    return change(page, 22, struct.pack("<I", compute_checksum(change(page, 22, bytes(4)))))


def build_ogg(last_position: int | None = None, rate: int | None = None, channels: int | None = None) -> bytes:
    """Return a Vorbis file whose first or last page lies, with right checksums."""
    first, *following = split_pages(encode("OGG", 9))
    if last_position is not None:
        following[-1] = sign_page(change(following[-1], 6, struct.pack("<q", last_position)))
    if channels is not None:
        first = sign_page(change(first, 28 + 11, bytes([channels])))
    if rate is not None:
        first = sign_page(change(first, 28 + 12, struct.pack("<I", rate)))
    return b"".join([first, *following])


def build_mp3(promised: int | None = None) -> bytes:
    """Return an MP3 file whose Xing header lies about the number of frames."""
    content = encode("MP3")
    marker = max(content.find(b"Xing"), content.find(b"Info"))
    return content if promised is None else change(content, marker + 8, struct.pack(">I", promised))


def build_aiff(frames: int, channels: int = 1) -> bytes:
    rate = struct.pack(">HQ", 0x3FFF + 12, RATE << 51)
    common = b"COMM" + struct.pack(">IhIh", 18, channels, frames, 16) + rate
    body = b"AIFF" + common + b"SSND" + struct.pack(">III", 8 + 2 * frames & 0xFFFFFFFF, 0, 0) + bytes(1600)
    return b"FORM" + struct.pack(">I", len(body)) + body


def build_random(seed: int, start: bytes = b"") -> bytes:
    return start + random.Random(seed).randbytes(20_000)


def cut(content: bytes, share: float = 0.6) -> bytes:
    return content[: int(len(content) * share)]


# name of the file: (builder, pattern of the message)
HOSTILE: dict[str, tuple[Build, str]] = {
    # not audio
    "empty.wav": (lambda: b"", "is an empty file"),
    "text.wav": (lambda: b"Dear diary, " * 99, "is not a readable audio file; supported formats are WAV"),
    "one-byte.mp3": (lambda: b"\xff", "is not a readable audio file"),
    "random.wav": (lambda: build_random(1), "is not a readable audio file"),
    "random.flac": (lambda: build_random(2, b"fLaC"), "is damaged and cannot be decoded"),
    "random.ogg": (lambda: build_random(3, b"OggS\0"), "is damaged|is truncated"),
    "random.mp3": (lambda: build_random(4, b"\xff\xfb\x90\x64"), "contains no MP3 frames|no MP3 frame at byte"),
    "zeros.mp3": (lambda: b"\xff\xfb" + bytes(9999), "contains no MP3 frames"),
    "picture.flac": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(99), "is not a readable audio file"),
    # other formats, with lies about their sizes
    "long.aiff.wav": (lambda: build_aiff(2**31), "is not a readable audio file"),
    "channels.aiff.wav": (lambda: build_aiff(400, 32_000), "is not a readable audio file"),
    "long.au.wav": (lambda: b".snd" + struct.pack(">5I", 24, 2**32 - 2, 3, RATE, 1) + bytes(99), "is not a readable"),
    "long.w64.wav": (lambda: b"riff\x2e\x91\xcf\x11" + b"\xff" * 40, "is not a readable audio file"),
    "sparse.voc.wav": (lambda: b"Creative Voice File\x1a\x1a\0" + bytes(99), "is not a readable audio file"),
    # WAV: sizes
    "header-only.wav": (lambda: build_wav()[:12], "no 'data' chunk"),
    "half-header.wav": (lambda: build_wav()[:30], "truncated"),
    "riff-size-0.wav": (lambda: build_wav(riff_size=0), "says that it has 8 bytes, and it has 1,644"),
    "riff-size-max.wav": (lambda: build_wav(riff_size=2**32 - 1), "says that it has 4,294,967,303 bytes"),
    "riff-size-small.wav": (lambda: build_wav(riff_size=100), "says that it has 108 bytes, and it has 1,644"),
    "data-size-max.wav": (lambda: build_wav(data_size=2**32 - 1), r"268,435\.46 seconds, and the file has 0\.10"),
    "data-size-0.wav": (lambda: build_wav(data_size=0), "has 0 samples"),
    "no-samples.wav": (lambda: build_wav(samples=b""), "has 0 samples"),
    "three-samples.wav": (lambda: build_wav(samples=bytes(6)), r"has 3 samples at 8,000 Hz; 0\.01 seconds are needed"),
    "ten-hours.wav": (lambda: build_wav(data_size=2 * RATE * 36_000), "promises 36,000"),
    "cut.wav": (lambda: cut(build_wav()), r"promises 0\.10 seconds, and the file has 0\.06"),
    "one-byte-short.wav": (lambda: build_wav()[:-1], "is truncated"),
    "joined.wav": (lambda: build_wav(before=b"JUNK\0\0\0\0" * 1200), "more than 1,000 chunks"),
    "chunk-size-max.wav": (lambda: build_wav(before=build_chunk(b"LIST", b"", 2**32 - 1)), "no 'data' chunk"),
    "no-format.wav": (lambda: build_wav(format_chunk=b""), "is damaged and cannot be decoded"),
    "two-formats.wav": (lambda: build_wav(build_format() + build_format(rate=9)), "is damaged and cannot be decoded"),
    "short-format.wav": (lambda: build_wav(build_chunk(b"fmt ", bytes(8))), "is damaged and cannot be decoded"),
    # WAV: rate, channels and format
    "rate-0.wav": (lambda: build_wav(build_format(rate=0)), "says 0 Hz"),
    "rate-1.wav": (lambda: build_wav(build_format(rate=1)), "has a rate of 1 Hz"),
    "rate-1092676.wav": (lambda: build_wav(build_format(rate=1_092_676)), "has a rate of 1,092,676 Hz"),
    "rate-max.wav": (lambda: build_wav(build_format(rate=2**32 - 1)), "rate of|damaged"),
    "channels-0.wav": (lambda: build_wav(build_format(channels=0, align=2)), "for 0 samples of 16 bits"),
    "channels-65.wav": (lambda: build_wav(build_format(channels=65), bytes(13_000)), "65 channels; the limit is 64"),
    "channels-65535.wav": (lambda: build_wav(build_format(channels=65_535)), "for 65,535 samples of 16 bits"),
    "channels-65535-of-8-bits.wav": (
        lambda: build_wav(build_format(channels=65_535, bits=8), bytes(65_535 * 90)),
        "65,535 channels|damaged",
    ),
    "align-0.wav": (lambda: build_wav(build_format(align=0)), "0 bytes for 1 samples of 16 bits"),
    "align-max.wav": (lambda: build_wav(build_format(align=65_535)), "65,535 bytes for 1 samples"),
    "bits-0.wav": (lambda: build_wav(build_format(bits=0)), "0 bytes for 1 samples of 0 bits"),
    "bits-255.wav": (lambda: build_wav(build_format(bits=255)), "is damaged and cannot be decoded"),
    "float-of-16-bits.wav": (lambda: build_wav(build_format(3)), "is damaged and cannot be decoded"),
    "format-0.wav": (lambda: build_wav(build_format(0)), "is damaged and cannot be decoded"),
    "format-ffff.wav": (lambda: build_wav(build_format(0xFFFF)), "is damaged and cannot be decoded"),
    "adpcm.wav": (lambda: build_wav(build_format(2, bits=4, align=256)), "is damaged and cannot be decoded"),
    "extensible-short.wav": (lambda: build_wav(build_format(0xFFFE)), "is damaged and cannot be decoded"),
    "extensible-strange.wav": (lambda: build_extensible(subformat=bytes(range(16))), "is damaged and cannot be"),
    "extensible-adpcm.wav": (lambda: build_extensible(subformat=b"\2\0" + SUBFORMAT_END), "is damaged and cannot be"),
    "extensible-bits.wav": (lambda: build_extensible(valid_bits=200), "samples of 16 bits, 200 of them valid"),
    "long.rf64.wav": (lambda: build_rf64(2**62), "is truncated, or was written to a pipe"),
    "riff-size.rf64.wav": (lambda: build_rf64(1600, 2**62), "says that it has"),
    "no-sizes.rf64.wav": (lambda: build_wav(data_size=2**32 - 1, identifier=b"RF64"), "is truncated"),
    # WAV: samples
    "nan.wav": (lambda: build_float_wav(math.nan), r"contains the sample nan at 0\.050 seconds in channel 2"),
    "infinity.wav": (lambda: build_float_wav(math.inf), r"contains the sample inf at 0\.050 seconds"),
    "minus-infinity.wav": (lambda: build_float_wav(-math.inf), r"contains the sample -inf at 0\.050 seconds"),
    "integers-as-floats.wav": (lambda: build_float_wav(32_767), "contains the sample 32767 at"),
    "huge-double.wav": (lambda: build_float_wav(1e300, 64), "contains the sample inf at"),
    "nan-double.wav": (lambda: build_float_wav(math.nan, 64), "contains the sample nan at"),
    # FLAC
    "cut.flac": (lambda: cut(encode("FLAC")), "is damaged|is truncated"),
    "header-only.flac": (lambda: encode("FLAC")[:42], "is damaged|is truncated"),
    "long.flac": (lambda: build_flac(frames=2**36 - 1), "2,386.1 hours of audio; the limit is 4"),
    "two-hours.flac": (lambda: build_flac(frames=2 * 3600 * RATE), "header contradicts itself|is truncated|damaged"),
    "twice-as-long.flac": (lambda: build_flac(frames=8000), "is truncated|is damaged"),
    "no-length.flac": (lambda: build_flac(frames=0), "does not say how long it is"),
    "rate-0.flac": (lambda: build_flac(rate=0), "is damaged|has a rate of 0 Hz"),
    "rate-max.flac": (lambda: build_flac(rate=2**20 - 1), "has a rate of 1,048,575 Hz|is damaged"),
    "channels-8.flac": (lambda: build_flac(channels=8), "is damaged|is truncated"),
    "flipped.flac": (lambda: change(encode("FLAC"), 1500, b"\xaa\x55\xaa"), "is damaged|is truncated"),
    "joined.flac": (lambda: encode("FLAC") * 2, "contains a second FLAC stream, at byte"),
    # OGG
    "cut.ogg": (lambda: cut(encode("OGG")), "is truncated: its Ogg stream breaks off"),
    "cut.opus": (lambda: cut(encode("OGG", rate=48_000, subtype="OPUS")), "is truncated: its Ogg stream breaks off"),
    "no-last-page.ogg": (lambda: b"".join(split_pages(encode("OGG", 9))[:-1]), "breaks off at byte"),
    "missing-page.ogg": (lambda: b"".join(split_pages(encode("OGG", 9))[::2]), "an Ogg page is missing before byte"),
    "flipped.ogg": (lambda: change(encode("OGG"), 2000, b"\xaa\x55\xaa"), "has a wrong checksum"),
    "joined.ogg": (lambda: encode("OGG") * 2, "goes on after the end of its Ogg stream"),
    "ten-hours.ogg": (lambda: build_ogg(36_000 * RATE), r"10\.0 hours of audio"),
    "one-hour.ogg": (lambda: build_ogg(3600 * RATE), "is truncated|contradicts itself"),
    "negative.ogg": (lambda: build_ogg(-5), "its time goes back at byte"),
    "shorter.ogg": (lambda: build_ogg(16_000), "its time goes back at byte"),
    "rate-max.ogg": (lambda: build_ogg(rate=2**32 - 1), "is damaged|has a rate of"),
    "rate-0.ogg": (lambda: build_ogg(rate=0), "is damaged|has a rate of"),
    "channels-255.ogg": (lambda: build_ogg(channels=255), "is damaged|has 255 channels"),
    "channels-0.ogg": (lambda: build_ogg(channels=0), "is damaged"),
    # MP3
    "cut.mp3": (lambda: cut(build_mp3()), "is truncated: its last MP3 frame"),
    "joined.mp3": (lambda: build_mp3() * 2, "goes on after the end of its stream"),
    "long.mp3": (lambda: build_mp3(2**31), "promises 2,147,483,648 MP3 frames, and it has"),
    "short.mp3": (lambda: build_mp3(1), "goes on after the end of its stream: its header promises 1 "),
    "tag-only.mp3": (lambda: b"ID3\4\0\0\x7f\x7f\x7f\x7f" + bytes(99), "contains no MP3 frames"),
    "hole.mp3": (lambda: change(build_mp3(), 700, bytes(600)), "there is no MP3 frame at byte"),
}  # fmt: skip
