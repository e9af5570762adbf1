"""Provide real models and data to tests: downloaded once into a cache that all workers and runs share."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumok.data import catalogue

CACHE = Path(os.environ.get("JUMOK_CACHE") or Path(__file__).parents[1] / ".cache" / "jumok")
SMALLEST = "gpt2-tokenizer"  # if the smallest entry cannot be downloaded, no entry can


def download_or_skip(name: str) -> Path:
    """Return the folder of a catalogue entry; skip the test if it is not cached and cannot be downloaded.

    One process at a time downloads into a cache (see `catalogue.download_entry`), so test workers wait for each other.
    """
    folder, reason = _download(name)
    if folder is None:
        pytest.skip(reason)
    return folder


@contextlib.contextmanager
def use_cached(name: str) -> Iterator[None]:
    """Let the package read the shared cache; skip the test if it lacks an entry that is too large to download here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        if catalogue.locate_entry(name) is None:
            pytest.skip(f"jumok data get {name}")
        yield


@functools.cache
def _download(name: str) -> tuple[Path | None, str]:
    """Return the folder, or None and the reason why there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        folder = catalogue.locate_entry(name)
    if folder is not None:
        return folder, ""

    if name != SMALLEST:
        smallest, reason = _download(SMALLEST)
        if smallest is None:
            return None, reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        try:
            return catalogue.download_entry(name), ""
        except catalogue.FetchError as error:
            return None, str(error)
