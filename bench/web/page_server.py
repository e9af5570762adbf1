"""Benchmark the server of the page: a normal user beside 500 slow connections, and 1,000 opened and closed sessions.

    python bench/web/page_server.py [--slow 500] [--seconds 8] [--cycles 1000]

Each part prints its figures with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from websockets.sync.client import connect

TEXT = "the cat sat; the cat"
ROUNDS = 3
PAUSE = 0.05  # seconds between two visits
TRICKLE = 1.0  # seconds between two bytes of a slow connection
WARM_UP = 100  # sessions before the first measurement of memory: allocators fill their pools
RUN_EVERY = 10  # every tenth session runs the model


class Page(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def origin(self) -> str:
        """The address without the token."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def run_server(model: str = "tiny", text: str = TEXT, **environment: str) -> Iterator[Page]:
    """Start ``jumok look --open`` as a process of its own."""
    command = [sys.executable, "-m", "jumok", "look", model, text, "--open", "--no-browser", "--port", "0"]
    variables = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline())
        assert address.port is not None
        try:
            yield Page(process, address.port, address.fragment.removeprefix("token="))
        finally:
            process.terminate()


def visit(page: Page, *, runs_model: bool = False) -> float:
    """Load the page, open a session, say hello, perhaps run the model, and leave; return the seconds."""
    start = time.perf_counter()
    with urllib.request.urlopen(f"{page.origin}/") as response:
        assert response.status == 200
    with connect(f"ws://127.0.0.1:{page.port}/session", origin=page.origin, compression=None, proxy=None) as client:
        client.send(json.dumps({"token": page.token}))
        client.send(json.dumps({"id": 1, "ask": "hello", "language": "en"}))
        client.recv()
        if runs_model:
            client.send(json.dumps({"id": 2, "ask": "run", "model": "tiny", "text": TEXT, "edits": []}))
            while b'"answer":2' not in client.recv():
                pass
    return time.perf_counter() - start


class SlowConnections:
    """Keep many half-sent requests open from a thread: each closed one is opened again."""

    def __init__(self, page: Page, count: int) -> None:
        self.page, self.count = page, count
        self.reopened = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_open)
        self._ready = threading.Event()

    def __enter__(self) -> SlowConnections:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _keep_open(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self.count):
                selector.register(self._begin(), selectors.EVENT_READ)
            self._ready.set()
            last_byte = time.monotonic()
            while not self._stop.is_set():
                if time.monotonic() - last_byte > TRICKLE:
                    last_byte = time.monotonic()
                    self._send_one_byte_each(selector)
                for key, _ in selector.select(timeout=0.2):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    self.reopened += 1
                    selector.register(self._begin(), selectors.EVENT_READ)
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _send_one_byte_each(self, selector: selectors.BaseSelector) -> None:
        for key in list(selector.get_map().values()):
            with suppress(OSError):  # closed by the server; the selector reports it
                key.fileobj.send(b"a")  # type: ignore[union-attr]

    def _begin(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.page.port))
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{self.page.port}\r\nCookie: ".encode())
        return connection


def compute_p95(seconds: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return 1000 * statistics.quantiles(seconds, n=20)[-1]


def visit_for(page: Page, seconds: float) -> list[float]:
    """Visit the page again and again; return the seconds of each visit."""
    visits = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        visits.append(visit(page))
        time.sleep(PAUSE)
    return visits


def measure_slow_sockets(slow: int = 500, seconds: float = 8.0) -> float:
    """Print the time of a visit without and beside slow connections, in turns; return the ratio of the p95s."""
    alone: list[float] = []
    beside: list[float] = []
    reopened = 0
    with run_server() as page:
        visit_for(page, 1)
        for _ in range(ROUNDS):
            alone += visit_for(page, seconds)
            with SlowConnections(page, slow) as connections:
                beside += visit_for(page, seconds)
            reopened += connections.reopened
    ratio = compute_p95(beside) / compute_p95(alone)
    print(f"a visit (page, session, hello), {len(alone)} and {len(beside)} in turns; load {os.getloadavg()[0]:.1f}")
    for name, visits in (("alone", alone), (f"beside {slow} slow connections", beside)):
        median = 1000 * statistics.median(visits)
        print(f"  {name}: median {median:.1f} ms, p95 {compute_p95(visits):.1f} ms")
    print(f"  p95 ratio {ratio:.2f}; {reopened} slow connections were closed and opened again")
    return ratio


def measure_open_close(cycles: int = 1000) -> dict[str, int]:
    """Print what opened and closed sessions leave in the server; return the growth of threads, files and KB."""
    with run_server() as page:
        for number in range(WARM_UP):
            visit(page, runs_model=number % RUN_EVERY == 0)
        before = read_process(page.process.pid)
        for number in range(cycles):
            visit(page, runs_model=number % RUN_EVERY == 0)
        time.sleep(1)
        after = read_process(page.process.pid)
    growth = {name: after[name] - before[name] for name in before}
    print(f"{cycles} opened and closed sessions; load {os.getloadavg()[0]:.1f}")
    for name in before:
        print(f"  {name}: {before[name]} -> {after[name]}")
    return growth


def read_process(pid: int) -> dict[str, int]:
    """Return the threads, open files and resident memory of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "threads": int(status["Threads"]),
        "open files": len(os.listdir(f"/proc/{pid}/fd")),
        "resident KB": int(status["VmRSS"].split()[0]),
    }


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each of the turns")
    parser.add_argument("--cycles", type=int, default=1000)
    options = parser.parse_args()
    measure_slow_sockets(options.slow, options.seconds)
    measure_open_close(options.cycles)


if __name__ == "__main__":
    main()
