"""Census of the model classes of transformers under the lens: a small model of each, plain, under lens and hooks.

    python bench/huggingface.py [--only REGEX] [--out FILE] [--json]

Each class runs in one of two worker processes with a time limit; a worker that crashes or hangs is replaced.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from small_transformers.census_record import Record, examine_class
from small_transformers.model_classes import ModelClass, list_model_classes

WORKERS = 2
TIME_LIMIT = 150.0  # seconds for one class, and for the start of a worker
CLASSES_PER_WORKER = 300  # a worker keeps every module of transformers that it imported, so it is replaced in time


def serve_classes(connection: Connection) -> None:
    """Examine classes until the connection closes: the program of a worker process.

    Args:
        connection: Receives classes and sends records.
    """
    import torch
    import transformers

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # some models print
        while True:
            try:
                model_class = connection.recv()
            except EOFError:
                return
            connection.send(examine_class(model_class))


class Worker:
    """A worker process, started when it is needed and replaced when it dies."""

    def __init__(self) -> None:
        self.process: multiprocessing.process.BaseProcess | None = None
        self.connection: Connection | None = None
        self.examined = 0

    def examine(self, model_class: ModelClass) -> Record:
        """Examine one class in the process.

        Args:
            model_class: The class.
        """
        if self.process is None or self.examined >= CLASSES_PER_WORKER:
            self.stop()
            self.start()
        assert self.connection is not None
        self.examined += 1
        self.connection.send(model_class)
        reason = f"no answer in {TIME_LIMIT:.0f} s"
        try:
            if self.connection.poll(TIME_LIMIT):
                return self.connection.recv()
        except EOFError:
            reason = "the process died"
        self.stop()
        return Record(model_class.model_type, model_class.name, "crash", reason)

    def start(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self.connection, remote = context.Pipe()
        self.process = context.Process(target=serve_classes, args=(remote,), daemon=True)
        self.process.start()
        remote.close()
        self.examined = 0

    def stop(self) -> None:
        """Stop the process, if it runs."""
        if self.process is not None and self.connection is not None:
            self.connection.close()
            self.process.kill()
            self.process.join()
        self.process = self.connection = None


def examine_classes(classes: list[ModelClass]) -> Iterator[Record]:
    """Examine classes in the workers; yield the records in order.

    Args:
        classes: The classes.
    """
    idle = [Worker() for _ in range(WORKERS)]

    def examine(model_class: ModelClass) -> Record:
        worker = idle.pop()
        try:
            return worker.examine(model_class)
        finally:
            idle.append(worker)

    with ThreadPoolExecutor(WORKERS) as threads:
        yield from threads.map(examine, classes)
    for worker in idle:
        worker.stop()


def describe_records(records: list[Record]) -> str:
    """Describe the totals by status, and the classes of each status other than "editable" by reason.

    Args:
        records: The records.
    """
    lines = [f"{len(records)} classes"]
    lines += [f"  {count:5} {status}" for status, count in Counter(record.status for record in records).most_common()]
    for status in ("different", "crash", "maps only", "refused", "no attention", "not built"):
        reasons: dict[str, list[str]] = {}
        for record in records:
            if record.status == status:
                reasons.setdefault(record.reason, []).append(record.name)
        if reasons:
            lines += ["", f"{status}:"]
        for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
            lines.append(f"  {len(names)} x {reason}: {', '.join(names)}" if reason else f"  {', '.join(names)}")
    return "\n".join(lines)


def main() -> None:
    """Run the census."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="only classes or model types that match")
    parser.add_argument("--out", metavar="FILE", help="write the records to this file as JSON")
    parser.add_argument("--json", action="store_true", help="print the records as JSON instead of a description")
    arguments = parser.parse_args()
    pattern = re.compile(arguments.only)
    classes = [
        entry for entry in list_model_classes() if pattern.search(entry.name) or pattern.search(entry.model_type)
    ]
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    start = time.perf_counter()
    records = []
    for record in examine_classes(classes):
        records.append(record)
        seconds = time.perf_counter() - start
        line = f"{len(records)}/{len(classes)}  {seconds:.0f} s  {record.name}: {record.status}"
        print(
            f"\r{line:<100.100}" if sys.stderr.isatty() else line,
            end="" if sys.stderr.isatty() else "\n",
            file=sys.stderr,
            flush=True,
        )
    text = json.dumps([asdict(record) for record in records], indent=1)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n")
    print(text if arguments.json else describe_records(records))


if __name__ == "__main__":
    main()
