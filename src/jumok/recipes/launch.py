"""Start several training processes on one machine, forward signals to them, and name the one that failed.

The processes find each other through a file in a private folder. They end when this process ends, even by SIGKILL
(``follow_launcher`` in training/parallel.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from jumok.training.parallel import LAUNCHER_VARIABLE, LOST_PROCESS_CODE, STORE_VARIABLE
from jumok.training.signals import SignalHandler

GRACE_SECONDS = 4.0  # for the others to end by themselves after one has failed
POLL_SECONDS = 0.05
MISTAKE_CODE = 2  # a user's mistake, which the process itself has printed; starting it again would not help
MAX_SHOWN_LINES = 30


class LaunchOutcome(NamedTuple):
    """How the processes ended."""

    code: int
    problem: str | None = None  # what happened, for the user; None if a process has printed it
    output: str = ""  # the last lines of the failed process; "" for the first process, whose output is not held


def launch_processes(processes: int, arguments: list[str], restarts: int = 0) -> LaunchOutcome:
    """Run ``jumok`` in several processes until all have ended; when one dies, all are started again ``restarts`` times.

    SIGINT and SIGTERM reach all processes, which finish their step and save; a second one ends them immediately.
    """
    with tempfile.TemporaryDirectory(prefix="jumok-") as folder, _SignalForwarder() as forwarder:
        for attempt in range(restarts + 1):
            children, logs = _start_processes(processes, arguments, attempt, Path(folder))
            forwarder.forward_to(children)
            codes = _wait_for_all(children)
            outcome = _judge_codes(codes, logs, forwarder.received)
            if outcome.code in (0, MISTAKE_CODE) or forwarder.received is not None or _was_stopped(codes):
                break
    return outcome


def _start_processes(
    processes: int, arguments: list[str], attempt: int, folder: Path
) -> tuple[list[subprocess.Popen[bytes]], list[Path]]:
    """Return the processes of one attempt, and the files that hold what all but the first print."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),  # the name that torchrun uses
        LAUNCHER_VARIABLE: str(os.getpid()),
        STORE_VARIABLE: str(folder / f"store-{attempt}"),
        # the processes share the cores
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
    }
    command = [sys.executable, "-m", "jumok", *arguments]
    children, logs = [], [folder / f"{attempt}-{rank}.log" for rank in range(processes)]
    # Ctrl-C in a terminal reaches every process; until they train, only this process reacts to it, and forwards SIGTERM
    is_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main_thread else None
    try:
        for rank in range(processes):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with logs[rank].open("wb") as log:
                output = None if rank == 0 else log
                children.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
    finally:
        if is_main_thread:
            signal.signal(signal.SIGINT, previous)
    return children, logs


class _SignalForwarder(SignalHandler):
    """A context that forwards SIGINT and SIGTERM to processes: the first as SIGTERM, the second as SIGKILL."""

    def __init__(self) -> None:
        super().__init__()
        self._children: list[subprocess.Popen[bytes]] = []

    def __exit__(self, *exception: object) -> None:
        _end_processes(self._children)  # none is left, unless an error was raised
        super().__exit__(*exception)

    def forward_to(self, children: list[subprocess.Popen[bytes]]) -> None:
        """Forward signals to these processes from now on; also one that arrived while they were started."""
        self._children = children
        if self.received is not None:
            self._send(signal.SIGTERM)

    def receive(self, number: int, frame: FrameType | None) -> None:
        self._send(signal.SIGTERM if self.received is None else signal.SIGKILL)
        super().receive(number, frame)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)


def _wait_for_all(children: list[subprocess.Popen[bytes]]) -> list[int | None]:
    """Wait until all processes have ended, and return their exit codes; None for those that had to be killed."""
    deadline: float | None = None
    while True:
        codes = [child.poll() for child in children]
        if None not in codes:
            return codes
        if deadline is None and any(code not in (None, 0) for code in codes):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            _end_processes(children)
            return codes
        time.sleep(POLL_SECONDS)


def _end_processes(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def _was_stopped(codes: list[int | None]) -> bool:
    """Return True if all processes saved and stopped after a signal."""
    return all(code in (128 + signal.SIGINT, 128 + signal.SIGTERM) for code in codes)


def _judge_codes(codes: list[int | None], logs: list[Path], received: signal.Signals | None) -> LaunchOutcome:
    if all(code == 0 for code in codes):
        return LaunchOutcome(0)
    if _was_stopped(codes):  # the first process has said how to continue
        return LaunchOutcome(codes[0] or 0 if received is None else 128 + received)
    if received is not None:
        return LaunchOutcome(128 + received, "stopped")

    # the process that failed first, killed ones before others: the rest only lost their connection
    failed = [(rank, code) for rank, code in enumerate(codes) if code not in (None, 0)]
    rank, code = min(failed, key=lambda pair: (pair[1] == LOST_PROCESS_CODE, pair[1] > 0))
    if code == MISTAKE_CODE and codes[0] == MISTAKE_CODE:
        return LaunchOutcome(code)
    lines = logs[rank].read_text(encoding="utf-8", errors="backslashreplace").splitlines()
    output = "\n".join(lines[-MAX_SHOWN_LINES:])
    name = f"process {rank + 1} of {len(codes)}"
    if code < 0:
        return LaunchOutcome(128 - code, f"{name} was killed by {signal.Signals(-code).name}", output)
    return LaunchOutcome(code, f"{name} failed", output)
