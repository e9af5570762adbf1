"""A client of a session in tests: it asks, and waits for the answer."""

from __future__ import annotations

import itertools
import queue
from typing import Any

import numpy

from jumok.web.messages import Message
from jumok.web.session import Session

SECONDS = 60  # how long a client waits for an answer on a busy machine


class FailedAskError(Exception):
    """An ask that failed."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class PageClient:
    """Asks a session like the page does."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: queue.Queue[Message] = queue.Queue()
        self.progress: list[dict[str, Any]] = []
        self.previews: list[tuple[dict[str, Any], bytes]] = []
        self.states: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        self._answers: dict[Any, Message] = {}

    def receive(self, message: Message) -> None:
        """Receive a message of the session; it must be one that can be sent."""
        assert message.to_frame()
        self.messages.put(message)

    def begin(self, kind: str, **fields: Any) -> int:
        """Ask without waiting for the answer."""
        ask_id = next(self._ids)
        self.session.handle({"ask": kind, "id": ask_id, **fields}, self.receive)
        return ask_id

    def wait(self, ask_id: Any) -> tuple[Any, tuple[bytes, ...]]:
        """Return the body and the buffers of an answer; raise a FailedAskError for an ask that failed."""
        while ask_id not in self._answers:
            message = self.messages.get(timeout=SECONDS)
            head = message.head
            if "layer" in head:
                self.previews.append((head["layer"], message.buffers[0]))
            elif "progress" in head:
                self.progress.append(head)
            elif "state" in head:
                self.states.append(head["state"])
            else:
                self._answers[head["answer" if "answer" in head else "failed"]] = message
        message = self._answers.pop(ask_id)
        if "failed" in message.head:
            raise FailedAskError(message.head["message"], message.head["reason"])
        assert message.head["buffers"] == [len(buffer) for buffer in message.buffers]
        return message.head["body"], message.buffers

    def ask(self, kind: str, **fields: Any) -> Any:
        """Ask, and return the body of the answer."""
        return self.wait(self.begin(kind, **fields))[0]

    def ask_bytes(self, kind: str, **fields: Any) -> tuple[Any, bytes]:
        """Ask, and return the body and the only buffer of the answer."""
        body, (content,) = self.wait(self.begin(kind, **fields))
        return body, content

    def ask_floats(self, kind: str, **fields: Any) -> numpy.ndarray:
        """Ask for float32 numbers."""
        return numpy.frombuffer(self.ask_bytes(kind, **fields)[1], "<f4")

    def fail(self, kind: str, **fields: Any) -> FailedAskError:
        """Ask, and return how it fails."""
        try:
            self.ask(kind, **fields)
        except FailedAskError as failure:
            return failure
        raise AssertionError(f"{kind} {fields} did not fail")
