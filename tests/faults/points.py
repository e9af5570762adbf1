"""Points inside a save at which a process can be killed. They are patched in from outside, not part of the package."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jumok.checkpoint import manifest, run_folder
from jumok.training import metrics_log, resume

save = sys.modules["jumok.checkpoint.save"]  # the package exports the function of that name

Strike = Callable[[], None]
Condition = Callable[..., bool]


def die() -> None:
    """Kill this process: no handler runs, nothing is flushed, as in a power failure."""
    os.kill(os.getpid(), signal.SIGKILL)


def strike_before(owner: Any, name: str, strike: Strike, condition: Condition = lambda *arguments: True) -> None:
    """Patch a function so that ``strike`` is called before it."""
    function = getattr(owner, name)

    def call_and_strike(*arguments: Any, **options: Any) -> Any:
        if condition(*arguments):
            strike()
        return function(*arguments, **options)

    setattr(owner, name, call_and_strike)


def strike_after(owner: Any, name: str, strike: Strike, condition: Condition = lambda *arguments: True) -> None:
    """Patch a function so that ``strike`` is called after it."""
    function = getattr(owner, name)

    def call_and_strike(*arguments: Any, **options: Any) -> Any:
        returned = function(*arguments, **options)
        if condition(*arguments):
            strike()
        return returned

    setattr(owner, name, call_and_strike)


def strike_with_half_a_file(owner: Any, name: str, path_index: int, strike: Strike) -> None:
    """Patch a function that writes a file so that half of the file is missing when ``strike`` is called."""
    function = getattr(owner, name)

    def call_and_strike(*arguments: Any, **options: Any) -> Any:
        returned = function(*arguments, **options)
        path = Path(arguments[path_index])
        content = path.read_bytes()
        os.truncate(path, len(content) // 2)
        strike()
        path.write_bytes(content)  # the process was not killed yet
        return returned

    setattr(owner, name, call_and_strike)


def strike_with_half_a_line(strike: Strike) -> None:
    """Patch the metrics log so that the end of the last line is missing when ``strike`` is called."""
    append_line = metrics_log._append_line

    def call_and_strike(path: Path, row: Mapping[str, int | float]) -> None:
        append_line(path, row)
        content = path.read_bytes()
        os.truncate(path, len(content) - 9)
        strike()
        path.write_bytes(content)

    metrics_log._append_line = call_and_strike


def is_checkpoint(old: object, new: str | Path) -> bool:
    return Path(new).name.startswith("step-")


def is_best(run: object, pointer: str, checkpoint: object) -> bool:
    return pointer == "best"


#: name of a point: a function that patches it in
POINTS: dict[str, Callable[[Strike], None]] = {
    "before the model": lambda strike: strike_before(save, "save_file", strike),
    "half of the model": lambda strike: strike_with_half_a_file(save, "save_file", 1, strike),
    "after the model": lambda strike: strike_after(save, "save_file", strike),
    "half of the optimizer": lambda strike: strike_with_half_a_file(resume, "write_tensors", 0, strike),
    "after the optimizer": lambda strike: strike_after(resume, "write_tensors", strike),
    "before the manifest": lambda strike: strike_before(manifest, "write_manifest", strike),
    "after the manifest": lambda strike: strike_after(manifest, "write_manifest", strike),
    "before the folder has its name": lambda strike: strike_before(os, "replace", strike),
    "after the folder has its name": lambda strike: strike_after(os, "replace", strike, is_checkpoint),
    "before a pointer": lambda strike: strike_before(run_folder, "write_pointer", strike),
    "between the pointers": lambda strike: strike_before(run_folder, "write_pointer", strike, is_best),
    "in the middle of a pointer": lambda strike: strike_after(os, "fsync", strike),
    "after a pointer": lambda strike: strike_after(run_folder, "write_pointer", strike),
    "before an old checkpoint is removed": lambda strike: strike_before(run_folder, "remove_checkpoint", strike),
    "while an old checkpoint is removed": lambda strike: strike_before(shutil, "rmtree", strike),
    "in the middle of a line of metrics": strike_with_half_a_line,
}


def on_call(number: int, strike: Strike) -> Strike:
    """Return a function that strikes when it is called for the ``number``-th time."""
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            strike()

    return count
