"""Places inside a save where a process can be killed; put in from outside, the product knows nothing of them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jumok.checkpoint import manifest, run_folder
from jumok.training import metrics_log, resume

save = sys.modules["jumok.checkpoint.save"]  # the package offers the function of that name

Point = Callable[[Callable[[], None]], None]


def die() -> None:
    """No handler runs, nothing is flushed: as if the power went."""
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: Any, name: str, strike: Callable[[], None], when: Callable[..., bool] = lambda *given: True) -> None:
    real = getattr(owner, name)

    def struck(*given: Any, **more: Any) -> Any:
        if when(*given):
            strike()
        return real(*given, **more)

    setattr(owner, name, struck)


def _after(owner: Any, name: str, strike: Callable[[], None], when: Callable[..., bool] = lambda *given: True) -> None:
    real = getattr(owner, name)

    def struck(*given: Any, **more: Any) -> Any:
        answer = real(*given, **more)
        if when(*given):
            strike()
        return answer

    setattr(owner, name, struck)


def _half(owner: Any, name: str, place: int, strike: Callable[[], None]) -> None:
    """When the end comes, half of the file that was just written is lost."""
    real = getattr(owner, name)

    def struck(*given: Any, **more: Any) -> Any:
        answer = real(*given, **more)
        path = Path(given[place])
        whole = path.read_bytes()
        os.truncate(path, len(whole) // 2)
        strike()
        path.write_bytes(whole)  # not yet the end
        return answer

    setattr(owner, name, struck)


#: name: what puts a strike there
POINTS: dict[str, Point] = {
    "before the model": lambda strike: _before(save, "save_file", strike),
    "half of the model": lambda strike: _half(save, "save_file", 1, strike),
    "after the model": lambda strike: _after(save, "save_file", strike),
    "half of the optimizer": lambda strike: _half(resume, "save_file", 1, strike),
    "after the optimizer": lambda strike: _after(resume, "save_file", strike),
    "before the manifest": lambda strike: _before(manifest, "write", strike),
    "after the manifest": lambda strike: _after(manifest, "write", strike),
    "before the folder has its name": lambda strike: _before(manifest.os, "replace", strike),
    "after the folder has its name": lambda strike: _after(
        manifest.os, "replace", strike, lambda old, new: Path(new).name.startswith("step-")
    ),
    "before a pointer": lambda strike: _before(runs, "point", strike),
    "between the pointers": lambda strike: _before(runs, "point", strike, lambda run, name, to: name == "best"),
    "in the middle of a pointer": lambda strike: _after(run_folder.os, "fsync", strike),
    "after a pointer": lambda strike: _after(runs, "point", strike),
    "before an old one goes": lambda strike: _before(runs, "remove", strike),
    "while an old one goes": lambda strike: _before(shutil, "rmtree", strike),
    "in the middle of a line of metrics": lambda strike: _half_line(strike),
}


def _half_line(strike: Callable[[], None]) -> None:
    real = metrics_log._append

    def struck(path: Path, told: dict[str, Any]) -> None:
        real(path, told)
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 9)
        strike()
        path.write_bytes(whole)

    metrics_log._append = struck  # type: ignore[assignment]


def nth(count: int, strike: Callable[[], None]) -> Callable[[], None]:
    """Strikes at the ``count``-th time."""
    seen = 0

    def counted() -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            strike()

    return counted
