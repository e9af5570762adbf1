"""Report the progress of a forward pass, and stop it: a callback is called at every tap.

A forward pass cannot be interrupted from outside. The callback can stop it by raising an exception, which leaves the
model as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from jumok.reporting import Progress
from jumok.tap import Listener, is_listening, isolate, listen


class ProgressListener(Listener):
    """Calls a callback, if there is one, at every tap, with the number of attentions that are finished.

    What the callback raises is raised again until it reaches the caller of the lens, even where something in between
    would handle it.
    """

    only_reads = True

    def __init__(self, progress: Progress | None = None, total: int = 0) -> None:
        self.total = total
        self.error: BaseException | None = None
        self._progress = progress
        self._sites: set[str] = set()

    def begin(self, sites: Iterable[str], finished: Iterable[str]) -> None:
        """Start to count the attentions of a forward pass; those that are known already count as finished."""
        self.total, self._sites = len(list(sites)), set(finished)

    @property
    def done(self) -> int:
        """The number of finished attentions."""
        return len(self._sites)

    def accepts(self, site: str) -> bool:
        return self._progress is not None

    def requests(self, site: str) -> bool:
        return False

    def __call__(self, site: str, tapped: Any) -> Any:
        attention, _, word = site.rpartition(".")
        if word == "output":
            self._count(attention)
        self.report()
        return tapped

    def _count(self, attention: str) -> None:
        self._sites.add(attention)

    def report(self) -> None:
        """Call the callback; what it raises once is raised by every later call too."""
        self.raise_error()
        if self._progress is None:
            return
        try:
            self._progress(self.done, self.total)
        except BaseException as error:
            self.error = error
            raise

    def raise_error(self) -> None:
        """Raise what the callback raised, if it did."""
        if self.error is not None:
            raise self.error

    @contextmanager
    def follow(self, model: nn.Module) -> Iterator[None]:
        """Report at every module of a model too, for a forward pass without taps, while the context is open."""

        def report_module(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if is_listening(self):
                with isolate():
                    self.report()

        with ExitStack() as hooks:
            for module in model.modules() if self._progress is not None else ():
                hooks.callback(module.register_forward_pre_hook(report_module).remove)
            hooks.enter_context(listen(self))
            yield

    @contextmanager
    def keep_error(self) -> Iterator[None]:
        """Raise what the callback raised in place of an exception that was raised in its place."""
        try:
            yield
        except BaseException as error:
            if self.error is None or error is self.error:
                raise
            raise self.error from None


class TokenProgressListener(ProgressListener):
    """Calls a callback at every tap of a generation, with the number of tokens that the model has read or written."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        super().__init__(progress, total)
        self._calls: Counter[str] = Counter()

    def begin_generation(self) -> None:
        """Start to count new tokens."""
        self._calls.clear()

    @property
    def done(self) -> int:
        return min(max(self._calls.values(), default=0), self.total)

    def _count(self, attention: str) -> None:
        self._calls[attention] += 1
