"""The answers that wait for a client: their order, their limits, and clients that read slowly."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from echo_session import EchoSession
from raw_client import WebSocketClient
from served_page import serve, wait_until

from jumok.web.messages import Message, build_answer
from jumok.web.server import connection
from jumok.web.server.connection import Outbox


def build_message(size: int) -> Message:
    return Message({}, (bytes(size),))


def test_answers_of_another_thread_arrive_in_order() -> None:
    async def exchange() -> list[bytes | None]:
        outbox = Outbox(asyncio.get_running_loop())
        thread = threading.Thread(target=lambda: [outbox.put(Message({"answer": number})) for number in range(100)])
        thread.start()
        frames = [await outbox.take() for _ in range(100)]
        thread.join()
        return frames

    assert asyncio.run(exchange()) == [Message({"answer": number}).to_frame() for number in range(100)]


@pytest.mark.parametrize(
    ("sizes", "is_closed"),
    [
        ([1000], False),  # one large answer is always taken
        ([40, 40], False),
        ([40, 40, 40], True),
        ([40, 1000], True),
        ([1] * 5, False),
        ([1] * 6, True),
    ],
)
def test_too_many_waiting_answers_close_the_outbox(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], is_closed: bool
) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING_BYTES", 100)
    monkeypatch.setattr(connection, "MAX_WAITING_FRAMES", 5)

    async def fill() -> bytes | None:
        outbox = Outbox(asyncio.get_running_loop())
        for size in sizes:
            outbox.put(build_message(size))
        return await outbox.take()

    frame = asyncio.run(fill())
    assert frame == (None if is_closed else build_message(sizes[0]).to_frame())


def test_answers_after_the_end_are_dropped() -> None:
    async def close() -> Outbox:
        outbox = Outbox(asyncio.get_running_loop())
        outbox.close()
        return outbox

    outbox = asyncio.run(close())
    outbox.put(build_message(1))  # its event loop is closed as well
    assert asyncio.run(outbox.take()) is None


class LargeSession(EchoSession):
    """Answers every ask with many bytes."""

    def handle(self, ask: dict[str, Any], send: Callable[[Message], None]) -> None:
        self.clients.add(send)
        send(build_answer(ask["id"], {}, (bytes(20_000_000),)))


def test_a_client_that_reads_slowly_but_steadily_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 1.0)
    with serve(LargeSession()) as server, WebSocketClient(server.port, server.token) as client:
        client.send_json({"id": 1, "ask": "save"})
        received = 0
        while received < 20_000_000:
            part = client.connection.recv(1_000_000, socket.MSG_WAITALL)
            assert part
            received += len(part)
            time.sleep(0.12)


def test_a_client_that_stops_reading_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    session = LargeSession()
    with serve(session) as server, WebSocketClient(server.port, server.token) as client:
        client.send_json({"id": 1, "ask": "save"})
        wait_until(lambda: bool(session.clients))
        wait_until(lambda: not session.clients)  # the server gives the client up
        assert client.read_close_code() is None
