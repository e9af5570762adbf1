"""A session that answers every ask at once with the ask itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jumok.web.messages import Message, build_answer


class EchoSession:
    """Answers in the thread of the caller; counts the clients."""

    def __init__(self) -> None:
        self.clients: set[Callable[[Message], None]] = set()
        self.is_closed = False

    def handle(self, ask: dict[str, Any], send: Callable[[Message], None]) -> None:
        self.clients.add(send)
        send(build_answer(ask.get("id"), ask))

    def forget(self, send: Callable[[Message], None]) -> None:
        self.clients.discard(send)

    def close(self) -> None:
        self.is_closed = True
