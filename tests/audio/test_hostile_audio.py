"""Hostile audio files are refused with one sentence, in little memory."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

pytest.importorskip("soundfile")
pytest.importorskip("soxr")

from hostile_files.audio_files import HOSTILE, build_extensible, build_flac, build_mp3, build_ogg, build_rf64, build_wav
from jumok.data.audio.audio_files import read_audio
from jumok.errors import AudioError

HONEST = {
    "wav": build_wav,
    "extensible.wav": build_extensible,
    "rf64.wav": lambda: build_rf64(1600),
    "flac": build_flac,
    "ogg": build_ogg,
    "mp3": build_mp3,
}


@pytest.mark.parametrize("name", HONEST)
def test_the_files_that_the_hostile_ones_are_made_of_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(HONEST[name]())
    assert len(read_audio(tmp_path / "a")) >= 1600


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build, words = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(build())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AudioError) as refused:
        read_audio(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 * 1024  # kilobytes
    message = str(refused.value)
    assert re.search(words, message), message
    assert message.startswith(str(path)) and len(message) < 700 and "\n" not in message
    assert capfd.readouterr().err == ""
