"""What every test has: one thread a worker (two workers fill two cores), and the same random numbers each time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from jumok.attention.backends import block_plan

# no deadline and no complaint about slow drawing: the machine may be busy; derandomised: the same run is the same test
settings.register_profile("jumok", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jumok")
torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file that marks an xdist_group goes to one worker, so that what its tests share is made once.

    pytest-xdist 3.8 writes the group into a field that pytest 9.2 no longer reads: there the mark alone does nothing.
    """
    from xdist.scheduler import LoadGroupScheduling

    @cache
    def together(path: Path) -> bool:
        return path.is_file() and "xdist_group(" in path.read_text(encoding="utf-8")

    class ByFile(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            return path if together(config.rootpath / path) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The blocked backend with blocks of two or three cells: a grid of 5 x 7 then has edges, runs and gaps."""
    monkeypatch.setattr(block_plan, "QUERY_BLOCK", 3)
    monkeypatch.setattr(block_plan, "KEY_BLOCK", 2)
    monkeypatch.setattr(block_plan, "MAX_RUN", 4)
    block_plan._compute_cached_layout.cache_clear()
    yield
    block_plan._compute_cached_layout.cache_clear()
