"""Set the number of CPU threads of a calculation, and restore the caller's afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

import torch

from jumok.errors import ArgumentError

# True inside `use_threads`: the outermost call decides for all calls inside it, so that they compute equal bits.
_is_decided: ContextVar[bool] = ContextVar("_is_decided", default=False)


def is_decided() -> bool:
    """Return True if an enclosing call has already set the number of threads."""
    return _is_decided.get()


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with this number of threads while the context is open, then restore the number before.

    PyTorch stores the number per thread of Python, so that two threads do not change each other's. Do not keep the
    context open across a ``yield``: the caller of an unfinished generator would compute with this number.

    Args:
        count: The number of threads; calls inside the context cannot choose another.
    """
    previous = torch.get_num_threads()
    token = _is_decided.set(True)
    try:
        if count != previous:
            torch.set_num_threads(count)
        yield
    finally:
        _is_decided.reset(token)
        if torch.get_num_threads() != previous:
            torch.set_num_threads(previous)


def check_threads(threads: int) -> None:
    """Refuse a number of threads above the machine's number of cores; PyTorch would crash with a very large number.

    Args:
        threads: The number of threads; 0 = automatic.

    Raises:
        ArgumentError: If the number is negative or too large.
    """
    cores = os.cpu_count() or 1
    if not 0 <= threads <= cores:
        choices = "0 (automatic) or 1" if cores == 1 else f"0 (automatic) or 1 to {cores}"
        raise ArgumentError(
            f"threads cannot be {threads:,}: this machine has {cores} core{'s' * (cores > 1)}; choose {choices}"
        )
