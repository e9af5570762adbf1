"""A server of the page in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from raw_client import WebSocketClient, build_request, exchange, read_status

from jumok.web.server.page_server import PageServer


@contextmanager
def serve(session: Any, **settings: Any) -> Iterator[PageServer]:
    """Run a server on a free port until the block ends."""
    server = PageServer(session, port=0, **settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(timeout=20)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if it does not within half a minute."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def check_normal_user(server: PageServer) -> None:
    """Assert that the page and the session answer."""
    assert read_status(exchange(server.port, build_request(server.port))) == 200
    with WebSocketClient(server.port, server.token) as client:
        assert client.ask(id=7, ask="hello")["answer"] == 7
