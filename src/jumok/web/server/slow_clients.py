"""Close the connections of clients that send or read too slowly; uvicorn would wait for them without end."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .guard import has_body, has_large_headers

REQUEST_SECONDS = 5.0  # until the headers of a request are complete
RESPONSE_SECONDS = 30.0  # until the client has read the response
STALL_SECONDS = 10.0  # a WebSocket client that reads nothing for this time is closed
PING_SECONDS = 10.0
MAX_PINGS = 100  # in PING_SECONDS; browsers send none


class HTTPConnection(H11Protocol):
    """A connection that carries one request: it ends if the request or the reading of its response takes too long."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        is_first = self.cycle is None
        super().handle_events()
        if is_first and self.cycle is not None:  # the response is under way
            self._set_deadline(RESPONSE_SECONDS)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_deadline()  # the WebSocket has its own deadlines
        super().handle_websocket_upgrade(event)

    def _should_upgrade(self) -> bool:
        # the parser of websockets fails on such requests and would leave the connection open; the guard refuses them
        is_plain = self.scope["method"] == "GET" and not has_body(self.headers) and not has_large_headers(self.headers)
        return is_plain and super()._should_upgrade()

    def _set_deadline(self, seconds: float) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that ends if the client does not read what it was sent, or sends many pings."""

    _stall: asyncio.TimerHandle | None = None
    _unread = 0
    _ping_window = 0.0
    _pings = 0

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_reading_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_stall_timer()
        super().connection_lost(exc)

    def handle_ping(self) -> None:
        now = self.loop.time()
        if now - self._ping_window > PING_SECONDS:
            self._ping_window, self._pings = now, 0
        self._pings += 1
        if self._pings > MAX_PINGS:  # the answers may remain unread
            self.transport.abort()
            return
        super().handle_ping()

    def _check_reading_later(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(STALL_SECONDS, self._check_reading)

    def _check_reading(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unread:
            self.transport.abort()
            return
        self._check_reading_later()

    def _stop_stall_timer(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


def describe_limits() -> dict[str, Any]:
    """Return the settings of uvicorn that belong to these classes."""
    return {
        "http": HTTPConnection,
        "ws": WebSocketConnection,
        "ws_ping_interval": 20.0,
        "ws_ping_timeout": 60.0,  # a pong waits behind a large answer on a slow connection
        "ws_per_message_deflate": False,  # a small message could become a large one
        "h11_max_incomplete_event_size": 16_384,
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 2,
    }
