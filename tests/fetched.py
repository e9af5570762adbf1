"""Real models and data for tests: fetched once into a cache that all workers and all runs share."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from jumok.data import catalogue

CACHE = Path(os.environ.get("JUMOK_CACHE") or Path(__file__).parents[1] / ".cache" / "jumok")
_PROBE = "gpt2-tokenizer"  # the smallest: where it cannot be fetched, nothing can


def fetched(name: str) -> Path:
    """The folder of that entry of the catalogue; the test is skipped where it is not here and cannot be fetched.

    `catalogue.get` lets one process at a time fetch into a cache, so workers wait for each other.
    """
    found = _tried(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _tried(name: str) -> Path | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        here = catalogue.locate_entry(name)
    if here is not None:
        return here
    if name != _PROBE and isinstance(refused := _tried(_PROBE), str):
        return refused
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(CACHE))
        try:
            return catalogue.download_entry(name)
        except catalogue.FetchError as error:
            return str(error)
