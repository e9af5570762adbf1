"""What a person sees while a model trains: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO


class ProgressDisplay:
    """Does nothing; the others say more."""

    def begin(self, steps: int, done: int) -> None: ...

    def step(self, step: int, loss: float, speed: float) -> None: ...

    def evaluation(self, step: int, found: dict[str, float], best: bool) -> None: ...

    def show_message(self, line: str, transient: bool = False) -> None: ...

    def end(self) -> None: ...


class SilentDisplay(ProgressDisplay):
    """For programs."""


class LineDisplay(ProgressDisplay):
    """Plain lines, at most one in ``every`` seconds, and one for each evaluation."""

    def __init__(self, out: TextIO | None = None, every: float = 5.0) -> None:
        self.out = sys.stderr if out is None else out
        self.every = every
        self.told = -1e9
        self.begun = time.monotonic()
        self.steps = self.first = 0

    def begin(self, steps: int, done: int) -> None:
        self.steps, self.first, self.begun = steps, done, time.monotonic()

    def step(self, step: int, loss: float, speed: float) -> None:
        if time.monotonic() - self.told < self.every and step != self.steps:
            return
        self.told = time.monotonic()
        print(
            f"step {step:,} of {self.steps:,}  loss {format_number(loss)}  {speed:,.0f} targets/s  {self._left(step)}",
            file=self.out,
            flush=True,
        )

    def _left(self, step: int) -> str:
        done = step - self.first
        seconds = (time.monotonic() - self.begun) / max(1, done) * (self.steps - step)
        return (
            f"{format_duration(seconds)} left"
            if step < self.steps
            else f"{format_duration(time.monotonic() - self.begun)} in all"
        )

    def evaluation(self, step: int, found: dict[str, float], best: bool) -> None:
        if found:
            print(
                f"evaluation at step {step:,}: {format_metrics(found)}{'  (best)' if best else ''}",
                file=self.out,
                flush=True,
            )

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            print(line, file=self.out, flush=True)


class BarDisplay(ProgressDisplay):
    """A progress bar of rich's, with the loss, the speed and the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True)
        self.bar: Any = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.row: Any = None

    def begin(self, steps: int, done: int) -> None:
        self.row = self.bar.add_task("", total=steps, completed=done)
        self.bar.start()

    def step(self, step: int, loss: float, speed: float) -> None:
        self.bar.update(self.row, completed=step, description=f"loss {format_number(loss)}  {speed:,.0f} targets/s")

    def evaluation(self, step: int, found: dict[str, float], best: bool) -> None:
        if found:
            self.console.print(f"step {step:,}: {format_metrics(found)}{'  (best)' if best else ''}", highlight=False)

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self.console.print(line, highlight=False)
        elif self.row is not None:
            self.bar.update(self.row, description=line)

    def end(self) -> None:
        self.bar.stop()


def format_metrics(found: dict[str, float]) -> str:
    return "  ".join(f"{name} {format_number(value)}" for name, value in found.items())


def format_number(value: float) -> str:
    """Four decimals; what would be nothing with them keeps two digits.

    >>> number(1.8135), number(0.0), number(-0.00002345)
    ('1.8135', '0.0000', '-2.3e-05')
    """
    return f"{value:.2g}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def format_duration(seconds: float) -> str:
    """1 h 05 min, 3 min 20 s, 12 s."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
