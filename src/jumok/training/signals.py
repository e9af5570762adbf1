"""SIGINT and SIGTERM while training: the step is finished, everything is saved, then the run ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StopRequested(Exception):  # noqa: N818  # it is no error
    """Somebody asked the run to end while nothing that matters was being computed."""


class SignalListener:
    """Remembers the first signal; the second one does what it does by default, at once."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalListener:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for one in (signal.SIGINT, signal.SIGTERM):
                self._before[one] = signal.signal(one, self._hear)
        return self

    def __exit__(self, *wrong: object) -> None:
        for one, before in self._before.items():
            signal.signal(one, before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number)
        for one, before in self._before.items():
            signal.signal(one, before)
        if self._at_once:
            raise StopRequested

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around an evaluation: it changes nothing, so it can be left in the middle."""
        if self.asked is not None:
            raise StopRequested
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False
