"""The queues of a session: a thread runs the model, and another one computes maps meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .asks import Ask
from .messages import LayerPreview, Message, build_preview, build_progress

PROGRESS_SECONDS = 0.05  # between two progress messages of an ask
JOIN_SECONDS = 10.0  # how long ``close`` waits for a computation that cannot be stopped, such as loading a model

Send = Callable[[Message], None]


class Stopped(BaseException):
    """Stops the computation of an ask. It is not an ``Exception``, so that no model's error handling can catch it."""


@dataclass(eq=False)
class Job:
    """One ask in a queue."""

    ask: Ask
    send: Send  # sends answers to the client, and identifies it
    stop_reason: str = ""  # why the job must stop: "cancelled" or "outdated"; "" while it need not
    _reported_at: float = field(default=0.0, repr=False)
    _stage: str = field(default="", repr=False)

    def check(self) -> None:
        """Raise ``Stopped`` if the job must stop."""
        if self.stop_reason:
            raise Stopped

    def report(self, done: int, total: int, stage: str) -> None:
        """Send the progress to the client, a few times a second; raise ``Stopped`` if the job must stop."""
        self.check()
        now = time.monotonic()
        if stage == self._stage and now - self._reported_at < PROGRESS_SECONDS:
            return
        self._reported_at, self._stage = now, stage
        self.send(build_progress(self.ask.id, done, total, stage))

    def show_layer(self, layer: LayerPreview, thumbnails: bytes) -> None:
        """Send what a run has computed of a layer; raise ``Stopped`` if the job must stop."""
        self.check()
        self.send(build_preview(self.ask.id, layer, thumbnails))


class WorkQueue:
    """A queue of jobs and the thread that runs them. The thread starts with the first job."""

    def __init__(self, name: str, limit: int, run: Callable[[Job], None]) -> None:
        self._name, self._limit, self._run = name, limit, run
        self._condition = threading.Condition()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put(self, job: Job) -> bool:
        """Add a job; return False if the queue is full or closed."""
        with self._condition:
            if self._is_closed or len(self._waiting) >= self._limit:
                return False
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify()
            return True

    def remove(self, selects: Callable[[Job], bool]) -> list[Job]:
        """Remove waiting jobs, and return them."""
        with self._condition:
            removed = [job for job in self._waiting if selects(job)]
            self._waiting = [job for job in self._waiting if job not in removed]
            return removed

    def stop_running(self, selects: Callable[[Job], bool], reason: str) -> None:
        """Stop the running job when it reports its progress next; the reason is "cancelled" or "outdated"."""
        with self._condition:
            if self._running is not None and not self._running.stop_reason and selects(self._running):
                self._running.stop_reason = reason

    def close(self) -> None:
        """Drop all jobs, stop the running one, and end the thread."""
        with self._condition:
            self._is_closed = True
            self._waiting.clear()
            if self._running is not None:
                self._running.stop_reason = "cancelled"
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)

    def _work(self) -> None:
        while True:
            with self._condition:
                self._running = None
                while not self._waiting and not self._is_closed:
                    self._condition.wait()
                if self._is_closed:
                    return
                job = min(self._waiting, key=lambda waiting: waiting.ask.is_late)  # the first of equal ones
                self._waiting.remove(job)
                self._running = job
            self._run(job)
