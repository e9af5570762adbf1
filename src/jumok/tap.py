"""tap(site, value): the identity, unless somebody listens.

A *site* is a named place in a model ("layers.3.attention.query"). Code that computes calls ``tap`` there with
what it has: a tensor, a mask, a bias, a score. A listener sees the value and gives back the one to go on with,
so whatever passes a tap can be read and replaced. Nothing below the lens knows more of the lens than this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import nn

Value = TypeVar("Value")
Listener = Callable[[str, object], object]  # (site, value) -> the value to go on with

# A plain integer is read first: it costs nothing measurable, and a compiler can guard on it. The listeners
# themselves are per context, so that two threads with two lenses do not hear each other's models.
_open = 0
_lock = threading.Lock()
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("jumok_listeners", default=())


def tap(site: str, value: Value) -> Value:
    """Give ``value`` back, as the listeners leave it; unchanged when nobody listens."""
    if not _open:
        return value
    for listener in _listeners.get():
        accepts = getattr(listener, "accepts", None)
        if accepts is None or accepts(site):
            value = listener(site, value)  # type: ignore[assignment]  # a listener answers for what it replaces
    return value


def has_listeners() -> bool:
    """Does anybody listen, anywhere?"""
    return bool(_open and _listeners.get())


def is_requested(site: str) -> bool:
    """Does a listener ask for this site by name? Asked before computing what nobody else needs.

    A listener may carry a method ``accepts(site)``, and is then called only where that says True. One that does not
    hears whatever is there, but is no reason to make more.
    """
    return any(accepts(site) for listener in _listeners.get() if (accepts := getattr(listener, "accepts", None)))


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """While open, every tap in this thread passes ``listener``; later listeners see what earlier ones left.

    >>> from jumok.tap import listen, tap
    >>> with listen(lambda site, value: value + 1):
    ...     tap("somewhere", 1)
    2
    """
    global _open
    token = _listeners.set((*_listeners.get(), listener))
    with _lock:
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
        _listeners.reset(token)


def name_sites(root: nn.Module) -> None:
    """Tell every part of ``root`` that has a ``site`` its own module name ("decoder.3.cross")."""
    for name, module in root.named_modules():
        if name and hasattr(module, "site"):
            module.site = name
