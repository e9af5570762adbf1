"""Measure a long text on the page: when a client sees the first maps, the run and the kinds, and the server's memory.

    python bench/web/long_text.py [--tokens 3891] [--model smollm2] [--threads 2]

The client asks what the page asks: the run, the thumbnails of all layers, the tiles of one map, the kinds. Prints the
seconds since the run was asked, the processor seconds of the server beside them, and the largest resident memory of
the server. Needs the catalogue data gutenberg and the model, by default smollm2.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page_server import run_server
from websockets.sync.client import ClientConnection, connect

import jumok
from jumok.data.catalogue import download_entry

THUMBNAIL_CELLS = 40
WAIT_SECONDS = 3600.0


class Client:
    """Asks the server like the page, and notes when the answers come."""

    def __init__(self, connection: ClientConnection, pid: int) -> None:
        self._connection, self._pid = connection, pid
        self._ids = itertools.count(1)
        self._begin = time.perf_counter()
        self._cpu = read_cpu_seconds(pid)

    def begin(self, kind: str, **fields: Any) -> int:
        """Send an ask, and return its id."""
        number = next(self._ids)
        self._connection.send(json.dumps({"id": number, "ask": kind, **fields}))
        return number

    def receive(self) -> dict[str, Any]:
        """Return the head of the next message."""
        frame = self._connection.recv(timeout=WAIT_SECONDS)
        assert isinstance(frame, bytes)
        length = int.from_bytes(frame[:4], "little")
        head: dict[str, Any] = json.loads(frame[4 : 4 + length])
        assert "failed" not in head, head
        return head

    def note(self, event: str) -> None:
        """Print the time."""
        seconds, cpu = time.perf_counter() - self._begin, read_cpu_seconds(self._pid) - self._cpu
        print(f"  {event}: {seconds:.1f} s ({cpu:.1f} s of processor time), peak {read_peak(self._pid)} MB", flush=True)


def read_cpu_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_peak(pid: int) -> int:
    """Return the largest resident memory of a process in MB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return round(int(status["VmHWM"].split()[0]) * 1024 / 1e6)


def write_text(model: str, tokens: int, path: Path) -> None:
    """Write a part of a book that has this many tokens."""
    book = download_entry("gutenberg") / "carroll-alice.txt"
    tokenizer = jumok.load(model).require_tokenizer()
    ids = tokenizer.encode(book.read_text(encoding="utf-8", errors="replace")[20_000 : 20_000 + 10 * tokens])
    path.write_text(tokenizer.decode(ids[:tokens]))


def measure(model: str, text: Path, threads: int) -> None:
    """Print when the answers come."""
    with run_server(model, str(text), OMP_NUM_THREADS=str(threads)) as page:
        pid = page.process.pid
        address = f"ws://127.0.0.1:{page.port}/session"
        with connect(address, origin=page.origin, compression=None, proxy=None, max_size=None) as connection:
            connection.send(json.dumps({"token": page.token}))
            client = Client(connection, pid)
            hello = client.begin("hello")
            while client.receive().get("answer") != hello:
                pass
            follow(client, model)


def follow(client: Client, model: str) -> None:
    """Ask for the run and, as the page does, for what it shows."""
    begun = client.begin("run", model=model)
    shown = 0
    while (head := client.receive()).get("answer") != begun:
        if "layer" in head:
            shown += 1
            if shown == 1 or shown % 10 == 0:
                client.note(f"layer {shown} shown")
    run = head["body"]
    client.note(f"run of {len(run['source'])} tokens answered")
    number, sites = run["run"], run["sites"]
    selection = run["first_selection"] or {"site": len(sites) - 1, "head": 0}
    level = (-(-len(run["source"]) // 256) - 1).bit_length()
    kinds = client.begin("kinds", run=number)
    tile = client.begin(
        "tiles", run=number, show="clean", site=selection["site"], head=selection["head"], level=level, row=0, column=0
    )
    thumbnails = [
        client.begin("thumbnails", run=number, show="clean", site=site, size=THUMBNAIL_CELLS)
        for site in range(len(sites))
    ]
    names = {
        thumbnails[0]: "thumbnails of the first layer",
        thumbnails[-1]: "all thumbnails",
        tile: "the map",
        kinds: "kinds",
    }
    while names:
        answer = client.receive().get("answer")
        if answer in names:
            client.note(names.pop(answer))


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=3891)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        write_text(options.model, options.tokens, text)
        measure(options.model, text, options.threads)
    print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")


if __name__ == "__main__":
    sys.exit(main())
