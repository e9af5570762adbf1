"""Many connections: slow ones do not keep a normal user waiting, and closed ones leave nothing behind."""

from __future__ import annotations

import gc
import socket
import threading
from contextlib import ExitStack

import pytest
from echo_session import EchoSession
from raw_client import (
    CLOSE,
    WebSocketClient,
    build_frame,
    build_request,
    build_upgrade,
    connect,
    count_open_files,
    read_until_closed,
)
from served_page import check_normal_user, serve, wait_until

from jumok.web.server import connection as connection_module
from jumok.web.server import page_server
from jumok.web.server.connection import Outbox, WebSocketConnection
from jumok.web.server.page_server import StaticFile

pytestmark = pytest.mark.xdist_group("web_server_connections")
SLOW = 500
CYCLES = 100


def begin_slowly(port: int, number: int) -> socket.socket:
    """Return a connection that has sent a part of something: nothing, a request, a header, a handshake, a body."""
    parts = (
        b"",
        build_request(port)[:20],
        build_request(port)[:-2],
        build_upgrade(port)[:-2],
        build_request(port, Content_Length="10")[:-1],
    )
    connection = connect(port)
    connection.sendall(parts[number % len(parts)])
    return connection


@pytest.mark.slow
def test_slow_connections_are_closed_and_a_normal_user_is_served() -> None:
    assert connection_module.REQUEST_SECONDS == 5
    with serve(EchoSession()) as server, ExitStack() as stack:
        connections = [stack.enter_context(begin_slowly(server.port, number)) for number in range(SLOW)]
        check_normal_user(server)
        for connection in connections:  # a slow client sends one more byte from time to time
            connection.sendall(b"a")
        check_normal_user(server)
        for connection in connections:  # each is closed by the server, or recv() reaches its timeout and fails
            assert read_until_closed(connection) == b""
        check_normal_user(server)
        assert len(server._server.server_state.connections) <= 1


def test_a_client_that_does_not_read_a_file_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20_000_000  # more than the system keeps in its buffers
    large = {"/": StaticFile(bytes(size), "text/html")}
    monkeypatch.setattr(page_server, "read_static_files", lambda: large)
    monkeypatch.setattr(connection_module, "RESPONSE_SECONDS", 0.3)
    with serve(EchoSession()) as server, connect(server.port) as client:
        client.sendall(build_request(server.port))
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: not server._server.server_state.connections)
        assert len(read_until_closed(client)) < size


def test_closed_connections_leave_nothing_behind() -> None:
    session = EchoSession()
    with serve(session) as server:

        def open_and_close(number: int) -> None:
            with WebSocketClient(server.port, server.token) as client:
                client.ask(id=number, ask="hello")
                if number % 2:  # the others leave without a word
                    client.send(build_frame(b"\x03\xe8", CLOSE))
                    assert client.read_close_code() == 1000

        def count() -> tuple[int, int, int]:
            state = server._server.server_state
            wait_until(lambda: not (session.clients or state.tasks or state.connections))  # the last ones are ending
            gc.collect()
            remaining = sum(type(thing) in (Outbox, WebSocketConnection) for thing in gc.get_objects())
            return threading.active_count(), count_open_files(), remaining

        open_and_close(0)
        before = count()
        for number in range(CYCLES):
            open_and_close(number)
        assert count() == before
        assert before[2] <= 1  # the last one, until the next event
