"""Audio files of all rates, channels and encodings arrive as one channel at 16 kHz, with the right times."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from jumok.data.audio import audio_files
from jumok.data.audio.audio_files import RATE, is_audio_path, read_audio
from jumok.errors import ArgumentError, AudioError

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

FREQUENCY = 440
SECONDS = 0.7
WAV_RATES = [1_000, 8_000, 11_025, 15_999, 16_000, 22_050, 44_100, 48_000, 96_000, 767_999]
COMPRESSED = [
    ("flac", None, 1, 44_100),
    ("flac", "PCM_24", 5, 96_000),
    ("ogg", None, 1, 8_000),
    ("ogg", None, 2, 44_100),
    ("opus", "OPUS", 2, 48_000),
    ("opus", "OPUS", 1, 16_000),
    ("mp3", None, 1, 11_025),  # MPEG-2.5
    ("mp3", None, 2, 22_050),  # MPEG-2
    ("mp3", None, 2, 44_100),
]


def write_sine(path: Path, rate: int, channels: int = 1, subtype: str | None = None, seconds: float = SECONDS) -> None:
    """Write a sine wave whose amplitude grows with the channel; the mean of all channels has the amplitude 0.4."""
    sine = numpy.sin(2 * math.pi * min(FREQUENCY, rate / 4) * numpy.arange(round(seconds * rate)) / rate)
    amplitudes = 0.8 * (numpy.arange(channels) + 1) / (channels + 1)
    container = {".opus": "OGG", ".wav": "WAV"}.get(path.suffix)
    soundfile.write(path, sine[:, None] * amplitudes, rate, subtype=subtype, format=container)


def fit_sine(samples: torch.Tensor, frequency: float) -> tuple[float, float, float]:
    """Return amplitude, phase and largest residual of a sine wave, without the first and last 200 milliseconds."""
    time = torch.arange(len(samples), dtype=torch.float64) / RATE
    basis = torch.stack([torch.sin(2 * math.pi * frequency * time), torch.cos(2 * math.pi * frequency * time)], 1)
    middle = slice(3200, -3200)
    solution = torch.linalg.lstsq(basis[middle], samples[middle, None].double()).solution[:, 0]
    residual = (basis[middle] @ solution - samples[middle]).abs().max().item()
    return math.hypot(*solution.tolist()), math.atan2(solution[1], solution[0]), residual


@pytest.mark.parametrize("rate", WAV_RATES)
def test_every_rate_arrives_at_16_khz(rate: int, tmp_path: Path) -> None:
    write_sine(tmp_path / "a.wav", rate, channels=3, subtype="FLOAT")
    samples = read_audio(tmp_path / "a.wav")
    assert samples.dtype == torch.float32
    assert abs(len(samples) - round(SECONDS * rate) * RATE / rate) <= 1
    amplitude, phase, residual = fit_sine(samples, min(FREQUENCY, rate / 4))
    assert amplitude == pytest.approx(0.4, abs=1e-4)
    assert phase == pytest.approx(0, abs=1e-3)  # 1e-3 at 440 Hz: less than a microsecond of delay
    assert residual < 1e-4


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 64])
@pytest.mark.parametrize(
    ("subtype", "tolerance"),
    [
        ("PCM_U8", 1e-2),
        ("PCM_16", 1e-4),
        ("PCM_24", 1e-5),
        ("PCM_32", 1e-5),
        ("FLOAT", 1e-5),
        ("DOUBLE", 1e-5),
        ("ULAW", 3e-2),
        ("ALAW", 3e-2),
    ],
)
def test_every_wav_encoding_and_channel_count(subtype: str, tolerance: float, channels: int, tmp_path: Path) -> None:
    write_sine(tmp_path / "a.wav", RATE, channels, subtype, seconds=0.2)
    samples = read_audio(tmp_path / "a.wav")
    expected = 0.4 * torch.sin(2 * math.pi * FREQUENCY * torch.arange(3200, dtype=torch.float64) / RATE)
    assert samples.shape == expected.shape
    assert (samples - expected).abs().max() < tolerance


@pytest.mark.parametrize(("extension", "subtype", "channels", "rate"), COMPRESSED)
def test_every_compressed_format(extension: str, subtype: str | None, channels: int, rate: int, tmp_path: Path) -> None:
    path = tmp_path / f"a.{extension}"
    write_sine(path, rate, channels, subtype)
    samples = read_audio(path)
    amplitude, phase, _ = fit_sine(samples, FREQUENCY)
    assert abs(len(samples) - SECONDS * RATE) <= 1
    assert amplitude == pytest.approx(0.4, rel=0.05)
    assert phase == pytest.approx(0, abs=0.1)  # 36 microseconds


def test_rf64_and_extensible_headers(tmp_path: Path) -> None:
    sine = 0.4 * numpy.sin(2 * math.pi * FREQUENCY * numpy.arange(3200) / RATE)
    for container in ("RF64", "WAVEX"):
        soundfile.write(tmp_path / "a.wav", sine, RATE, format=container, subtype="PCM_24")
        assert (read_audio(tmp_path / "a.wav").numpy() - sine).max() < 1e-5


def strip_length_header(content: bytes) -> bytes:
    """Return an MP3 file (MPEG-1, mono) without its first frame, which gives its length."""
    kilobits = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)[content[2] >> 4]
    size = 144_000 * kilobits // 44_100 + (content[2] >> 1 & 1)
    assert b"Xing" in content[:size] or b"Info" in content[:size]
    return content[size:]


def test_an_mp3_file_without_length_is_read_to_its_end(tmp_path: Path) -> None:
    """libsndfile takes the length from the first bitrate: here it would read a fifth of the file."""
    noise = numpy.random.default_rng(0).normal(0, 0.1, 44_100)
    sound = numpy.concatenate([noise, numpy.zeros(2 * 44_100)])
    soundfile.write(tmp_path / "full.mp3", sound, 44_100, bitrate_mode="VARIABLE", compression_level=0.3)
    content = strip_length_header((tmp_path / "full.mp3").read_bytes())
    (tmp_path / "bare.mp3").write_bytes(content)
    (tmp_path / "tagged.mp3").write_bytes(b"ID3\4\0\0\0\0\1\0" + bytes(128) + content + b"TAG" + bytes(125))
    assert soundfile.info(tmp_path / "bare.mp3").duration < 0.7  # the guess of libsndfile

    full, bare, tagged = (read_audio(tmp_path / f"{name}.mp3") for name in ("full", "bare", "tagged"))
    assert len(full) == 3 * RATE
    assert 0 <= len(bare) - len(full) < 0.05 * RATE  # without the header, the encoder's padding is not known
    assert torch.equal(bare, tagged)
    shift = 209  # 13 milliseconds: the encoder's delay, which is not known either
    assert (bare[2000 + shift : 14_000 + shift] - full[2000:14_000]).abs().max() < 0.1 < full.abs().max()


def test_tags_around_an_mp3_stream_are_not_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sine(tmp_path / "a.mp3", 44_100)
    content = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "b.mp3").write_bytes(b"ID3\4\0\0\0\0\1\0" + bytes(128) + content + b"APETAGEX" + bytes(5000))
    assert torch.equal(read_audio(tmp_path / "a.mp3"), read_audio(tmp_path / "b.mp3"))
    assert capfd.readouterr().err == ""  # the decoder would warn that the file is larger than its header says


def test_blocks_do_not_change_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = numpy.random.default_rng(0).normal(0, 0.1, (30_011, 3))
    soundfile.write(tmp_path / "a.flac", noise, 44_100)
    expected = read_audio(tmp_path / "a.flac")
    monkeypatch.setattr(audio_files, "BLOCK_SAMPLES", 1009)
    assert torch.equal(read_audio(tmp_path / "a.flac"), expected)


def test_the_format_is_recognised_by_content_and_a_path_by_its_extension(tmp_path: Path) -> None:
    write_sine(tmp_path / "a.flac", RATE)
    (tmp_path / "b.mp3").write_bytes((tmp_path / "a.flac").read_bytes())
    assert torch.equal(read_audio(str(tmp_path / "b.mp3")), read_audio(tmp_path / "a.flac"))
    names = ["a.wav", "A.WAV", "a.flac", "a.ogg", "a.oga", "a.opus", "a.mp3", "a.png", "wav", ""]
    assert [is_audio_path(name) for name in names] == [True] * 7 + [False] * 3
    assert is_audio_path(tmp_path / "a.flac")


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    (tmp_path / "gone.wav").symlink_to(tmp_path / "missing.wav")
    (tmp_path / "folder.wav").mkdir()
    expected = {
        "missing.wav": "there is no file .*; give the path of an audio file",
        "gone.wav": "there is no file",
        "folder.wav": "is a folder",
        "pipe.wav": "is a pipe or a device",
        "loop.wav": "cannot be read",
        "a\0b.wav": "cannot be read",
        "x" * 5000: "cannot be read",
        "/dev/zero": "is a pipe or a device",
        "/dev/null": "is a pipe or a device",
    }
    for name, words in expected.items():
        with pytest.raises(AudioError, match=words) as refused:
            read_audio(tmp_path / name)
        assert isinstance(refused.value, ArgumentError) and "\n" not in str(refused.value)
    with pytest.raises(AudioError, match="must be the path of a file, not a list"):
        read_audio([0.0])


@pytest.mark.parametrize("package", ["soundfile", "soxr"])
def test_without_the_packages_the_message_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AudioError, match=r'pip install "jumok\[audio\]"'):
        read_audio("a.wav")


def test_memory_is_that_of_the_result_and_one_block(tmp_path: Path) -> None:
    with soundfile.SoundFile(tmp_path / "a.flac", "w", 48_000, 8) as file:  # silence: small on disk
        for _ in range(10):
            file.write(numpy.zeros((480_000, 8)))
    program = (
        "import resource, sys\n"
        "from jumok.data.audio.audio_files import read_audio\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "import soundfile, soxr\n"
        "before = peak(); samples = read_audio(sys.argv[1])\n"
        "print(len(samples), peak() - before)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.flac")]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    length, growth = map(int, completed.stdout.split())
    assert length == 100 * RATE
    assert growth < 40 * 1024  # kilobytes; all decoded samples would be 154 MB


def test_the_reader_agrees_with_python_s_wave_module(tmp_path: Path) -> None:
    import wave

    samples = [round(20_000 * math.sin(step / 9)) for step in range(4000)]
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    assert torch.equal(read_audio(tmp_path / "a.wav"), torch.tensor(samples) / 32_768)
