"""Show the progress of training: a bar in a terminal or a notebook, a line every few seconds elsewhere.

Lines that cannot be written, because a pipe has no reader or a terminal is closed, are dropped: training continues.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from jumok.files import LossyStream
from jumok.translation import translate, translate_name


class ProgressDisplay:
    """Base class of displays; it shows nothing."""

    @contextmanager
    def run(self, steps: int, done: int) -> Iterator[None]:
        """Show progress while the context is open; the display also ends if an error is raised."""
        self.begin(steps, done)
        try:
            yield
        finally:
            self.end()

    def begin(self, steps: int, done: int) -> None:
        """Start showing progress."""

    def show_step(self, step: int, loss: float, speed: float) -> None:
        """Show the progress of the training."""

    def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
        """Show the metrics of an evaluation."""

    def show_message(self, line: str, transient: bool = False) -> None:
        """Show a message; the next message may replace it if it is transient."""

    def end(self) -> None:
        """Stop showing progress."""


class SilentDisplay(ProgressDisplay):
    """Shows nothing, for programs."""


class LineDisplay(ProgressDisplay):
    """Prints plain lines, for steps and evaluations at most one in so many seconds; the last one is always printed."""

    def __init__(self, out: TextIO | None = None, every: float = 5.0, evaluations_every: float = 1.0) -> None:
        self.out = LossyStream(sys.stderr if out is None else out)
        self.every = every
        self.evaluations_every = evaluations_every
        self.steps = self.first_step = 0
        self.started_at = time.monotonic()
        self._step_shown_at = self._evaluation_shown_at = float("-inf")

    def begin(self, steps: int, done: int) -> None:
        self.steps, self.first_step = steps, done
        self.started_at = time.monotonic()

    def show_step(self, step: int, loss: float, speed: float) -> None:
        now = time.monotonic()
        if now - self._step_shown_at < self.every and step != self.steps:
            return
        self._step_shown_at = now
        elapsed = now - self.started_at
        remaining = elapsed / max(1, step - self.first_step) * (self.steps - step)
        time_in_all, time_left = (translate_name(format_duration(seconds)) for seconds in (elapsed, remaining))
        duration = f"{time_in_all} in all" if step >= self.steps else f"{time_left} left"
        counts = f"step {step:,} of {self.steps:,}"
        self._print("  ".join(translate(text) for text in (counts, _describe_speed(loss, speed), duration)))

    def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
        now = time.monotonic()
        if now - self._evaluation_shown_at < self.evaluations_every and step != self.steps:
            return
        self._evaluation_shown_at = now
        title = translate(f"evaluation at step {step:,}")
        self._print(f"{title}: {format_metrics(metrics)}{_describe_best(best)}")

    def show_message(self, line: str, transient: bool = False) -> None:
        if not transient:
            self._print(translate(line))

    def _print(self, line: str) -> None:
        print(line, file=self.out, flush=True)


class BarDisplay(ProgressDisplay):
    """Shows a progress bar with the loss, the speed and the remaining time, in a terminal or a notebook."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(file=cast("TextIO", LossyStream(sys.stderr)))
        self.bar = Progress(
            TextColumn(translate_name("step")),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.row = self.bar.add_task("", start=False, visible=False)

    def begin(self, steps: int, done: int) -> None:
        self.bar.update(self.row, total=steps, completed=done, visible=True)
        self.bar.start_task(self.row)
        self.bar.start()

    def show_step(self, step: int, loss: float, speed: float) -> None:
        self.bar.update(self.row, completed=step, description=translate(_describe_speed(loss, speed)))

    def show_evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
        line = f"{translate(f'step {step:,}')}: {format_metrics(metrics)}{_describe_best(best)}"
        self.console.print(line, highlight=False, markup=False)

    def show_message(self, line: str, transient: bool = False) -> None:
        line = translate(line)
        if transient:
            self.bar.update(self.row, description=line)
        else:
            self.console.print(line, highlight=False, markup=False)

    def end(self) -> None:
        self.bar.stop()


def _describe_speed(loss: float, speed: float) -> str:
    return f"loss {format_number(loss)}  {speed:,.0f} targets/s"


def _describe_best(best: bool) -> str:
    return f"  {translate('(best)')}" if best else ""


def select_display() -> ProgressDisplay:
    """Return a bar in a terminal and in a notebook (there rich needs ipywidgets), plain lines elsewhere."""
    if sys.stderr.isatty():
        return BarDisplay()
    if is_in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        return BarDisplay()
    return LineDisplay()


def is_in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook; other programs may import ipykernel too."""
    kernelapp = sys.modules.get("ipykernel.kernelapp")
    return kernelapp is not None and bool(kernelapp.IPKernelApp.initialized())


def format_metrics(metrics: dict[str, float]) -> str:
    """Format metrics as one line.

    >>> format_metrics({"loss": 1.5, "right": 0.25})
    'loss 1.5000  right 0.2500'
    """
    return "  ".join(f"{translate_name(name)} {format_number(value)}" for name, value in metrics.items())


def format_number(number: int | float) -> str:
    """Format a number with four decimals, or two significant digits if it is small.

    >>> format_number(1.8135), format_number(0.0), format_number(-0.00002345)
    ('1.8135', '0.0000', '-2.3e-05')
    """
    return f"{number:.2g}" if 0 < abs(number) < 1e-3 else f"{number:.4f}"


def format_duration(seconds: int | float) -> str:
    """Format a duration.

    >>> format_duration(3900), format_duration(200), format_duration(12.7)
    ('1 h 05 min', '3 min 20 s', '12 s')
    """
    hours, minutes, seconds = int(seconds) // 3600, int(seconds) // 60 % 60, int(seconds) % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
