"""Handle SIGINT and SIGTERM during training: finish the step, save everything, then end the run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from .parallel import LAUNCHER_VARIABLE

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None
HandlerType = TypeVar("HandlerType", bound="SignalHandler")


class StopRequested(BaseException):
    """A signal arrived during work that can be abandoned. Like KeyboardInterrupt it is not an Exception, so that no
    ``except Exception`` of an evaluation swallows it or turns it into an error."""


class SignalHandler:
    """A context in which SIGINT and SIGTERM are received by ``receive``."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Handler] = {}

    def __enter__(self: HandlerType) -> HandlerType:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers in the main thread only
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self.receive)
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore_handlers()

    def restore_handlers(self) -> None:
        """Handle signals as before the context."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.received = signal.Signals(number)


class SignalListener(SignalHandler):
    """Records the first SIGINT or SIGTERM; the second one has its default effect.

    In a process that ``jumok train --processes`` started, further signals are ignored: Ctrl-C in a terminal reaches it
    directly and again through its launcher, which decides when to end it immediately.
    """

    def __init__(self) -> None:
        super().__init__()
        self._interrupts = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            return
        super().receive(number, frame)
        if LAUNCHER_VARIABLE not in os.environ:
            self.restore_handlers()
        if self._interrupts:
            raise StopRequested

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal raise StopRequested inside this context; used for evaluations, which can be repeated."""
        if self.received is not None:
            raise StopRequested
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False
