"""Named observation points in a model: ``tap(site, value)`` returns the value, as the open listeners leave it.

A tap is named by the module that computes its value, such as an attention, and a word: "blocks.3.attention.query". In
this module ``site`` is that full name; in the lens, a site is an attention ("blocks.3.attention"), which has several
taps. The module passes the value (a tensor, a mask, a bias or a score) through ``tap``. A listener receives the value
and returns the one to continue with, so every tapped value can be read and replaced. The lens is built on this module
alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import nn

Value = TypeVar("Value")
ListenerType = TypeVar("ListenerType", bound="Listener")
ListenerFunction = Callable[[str, Any], Any]  # (site, value) -> the value to continue with


class Listener:
    """Base class of listeners: called with every tapped value whose site it accepts."""

    only_reads = False  # whether every value is returned as it was received

    def accepts(self, site: str) -> bool:
        """Return whether this listener is called at ``site``; by default it is called everywhere."""
        return True

    def requests(self, site: str) -> bool:
        """Return whether a value that is computed only on request (weights, log-sum-exp) is computed for this listener:
        by default at every accepted site, except the weights, which only the explicit backend computes."""
        return self.accepts(site) and not site.endswith(".weights")

    def __call__(self, site: str, value: Any) -> Any:
        """Receive the value at ``site`` and return the value to continue with."""
        raise NotImplementedError


class _FunctionListener(Listener):
    """A plain function as a listener: it is called at every site, but requests nothing."""

    def __init__(self, function: ListenerFunction) -> None:
        self.function = function

    def requests(self, site: str) -> bool:
        return False

    def __call__(self, site: str, value: Any) -> Any:
        return self.function(site, value)


# The number of open listeners in all threads. `tap` reads this plain integer first: that costs next to nothing, and
# torch.compile can guard on it. The listeners are stored per context, so two threads with two lenses stay separate.
_open_count = 0
_lock = threading.Lock()
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("jumok_listeners", default=())


def tap(site: str, value: Value) -> Value:
    """Pass ``value`` through the open listeners and return what they leave."""
    if not _open_count:
        return value

    for listener in _listeners.get():
        if listener.accepts(site):
            with isolate():
                value = listener(site, value)
    return value


@contextmanager
def isolate() -> Iterator[None]:
    """Close the listeners of this context for a while: what a listener computes is not part of what it listens to."""
    token = _listeners.set(())
    try:
        yield
    finally:
        _listeners.reset(token)


def is_listening(listener: Listener) -> bool:
    """Return whether a listener is open in this context: not in another thread, nor in what a listener computes."""
    return listener in _listeners.get()


def find_listener(kind: type[ListenerType]) -> ListenerType | None:
    """Return the listener of a class that was opened last in this context, or None."""
    return next((listener for listener in reversed(_listeners.get()) if isinstance(listener, kind)), None)


def has_listeners() -> bool:
    """Return whether a listener is open in this context."""
    return bool(_open_count and _listeners.get())


def may_change_values() -> bool:
    """Return whether a listener is open in this context that does more than read."""
    return any(not listener.only_reads for listener in _listeners.get())


def is_requested(site: str) -> bool:
    """Return whether a listener requests this site; check it before computing a value only listeners need."""
    return any(listener.requests(site) for listener in _listeners.get())


@contextmanager
def listen(listener: Listener | ListenerFunction) -> Iterator[None]:
    """Pass every tap of this thread through ``listener`` while the context is open.

    Args:
        listener: A ``Listener``, or a function ``(site, value) -> value`` that is called at every site. Listeners
            opened later receive what earlier ones returned.

    >>> from jumok.tap import listen, tap
    >>> with listen(lambda site, value: value + 1):
    ...     tap("layers.0.output", 1)
    2
    """
    global _open_count
    opened = listener if isinstance(listener, Listener) else _FunctionListener(listener)
    token = _listeners.set((*_listeners.get(), opened))
    with _lock:
        _open_count += 1

    try:
        yield
    finally:
        with _lock:
            _open_count -= 1
        _listeners.reset(token)


def name_sites(root: nn.Module) -> None:
    """Set the ``site`` attribute of every submodule that has one to its module name, such as ``"decoder.3.cross"``."""
    for name, module in root.named_modules():
        if name and hasattr(module, "site"):
            module.site = name
