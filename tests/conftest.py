"""Settings and fixtures of all tests: one thread per worker, and the same random numbers in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# before torch is imported: the few tests with two threads must not wait actively beside other processes
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from hypothesis import HealthCheck, settings

from jumok.attention.backends import band_windows, block_plan
from jumok.reporting import choose_language

# no deadline and no slowness check, as the machine may be busy; derandomised, so that every run is the same
settings.register_profile("jumok", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jumok")
torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send a file that marks an xdist_group to one worker, so that its tests share fixtures.

    pytest-xdist 3.8 writes the group into a field that pytest 9.2 does not read, so the mark alone has no effect.
    """
    from xdist.scheduler import LoadGroupScheduling

    @cache
    def shares_one_worker(path: Path) -> bool:
        return path.is_file() and "xdist_group(" in path.read_text(encoding="utf-8")

    class ByFile(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            return path if shares_one_worker(config.rootpath / path) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(autouse=True)
def _reset_process() -> None:
    torch.manual_seed(0)
    choose_language(None)  # a command of another test may have chosen Korean


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the blocked backend blocks of two or three cells, so that a grid of 5 x 7 has edges, runs and gaps."""
    monkeypatch.setattr(block_plan, "QUERY_BLOCK", 3)
    monkeypatch.setattr(block_plan, "KEY_BLOCK", 2)
    monkeypatch.setattr(block_plan, "MAX_RUN", 4)
    monkeypatch.setattr(band_windows, "BLOCK_STEP", 1)
    monkeypatch.setattr(band_windows, "MIN_BLOCK", 2)
    monkeypatch.setattr(band_windows, "MAX_BLOCK", 3)
    block_plan._compute_cached_layout.cache_clear()
    yield
    block_plan._compute_cached_layout.cache_clear()
