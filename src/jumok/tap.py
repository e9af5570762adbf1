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
        value = listener(site, value)  # type: ignore[assignment]  # a listener answers for what it replaces
    return value


def heard(site: str | None) -> bool:
    """Is anybody listening at this site? Asked before computing what only a listener would want.

    A listener may carry a method ``hears(site)``; one that does not hears everything.
    """
    if not _open or site is None:
        return False
    return any(getattr(one, "hears", _everything)(site) for one in _listeners.get())


def _everything(site: str) -> bool:
    return True


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While open, every tap in this thread passes ``listener``; later listeners see what earlier ones left.

    >>> from jumok.tap import listening, tap
    >>> with listening(lambda site, value: value + 1):
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
