"""Hostile GGUF files are refused with one sentence, quickly and in little memory."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

import pytest

import jumok
from hostile_files.gguf_files import QUICK, SLOW, write_gguf
from jumok.errors import JumokError

pytest.importorskip("gguf")
CASES = {**QUICK, **(SLOW if int(os.environ.get("JUMOK_FAULTS", "0")) > 50 else {})}


@pytest.fixture(scope="module", autouse=True)
def _good(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the file that the hostile ones are made of, so that imports are not measured."""
    path = tmp_path_factory.mktemp("gguf") / "good.gguf"
    path.write_bytes(write_gguf())
    assert jumok.load(path).require_tokenizer().encode("abb") == [2, 1]


@pytest.mark.parametrize("name", CASES)
def test_hostile_gguf_is_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build, words = CASES[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(build())
    start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(JumokError) as refused:
        jumok.load(path)
    assert time.process_time() - start < 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500 * 1024
    message = str(refused.value)
    assert re.search(words, message), message
    assert len(message) < 700 and "\n" not in message
    assert capfd.readouterr().err == ""
