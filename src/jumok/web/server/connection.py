"""Connections: serve the session over a WebSocket, and close clients that send or read too slowly; uvicorn would
wait for them without end."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any

import h11
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from jumok.errors import ArgumentError
from jumok.web.asks import parse_ask

from .guard import has_body, has_large_headers

if TYPE_CHECKING:
    from jumok.web.messages import Message
    from jumok.web.session import Session
    from jumok.web.work_queue import Send

TOKEN_SECONDS = 5.0
MAX_TOKEN_MESSAGE = 1000  # characters
MAX_WAITING_BYTES = 64_000_000  # a saved file is one answer of up to 18 MB
MAX_WAITING_FRAMES = 4096
MAX_REASON_BYTES = 120  # a close frame holds 123

WRONG_TOKEN = 4401
NOT_TEXT = 1003
NOT_AN_ASK = 1008

REQUEST_SECONDS = 5.0  # until the headers of a request are complete
RESPONSE_SECONDS = 30.0  # until the client has read the response
STALL_SECONDS = 10.0  # a WebSocket client that reads nothing for this time is closed
PING_SECONDS = 10.0
MAX_PINGS = 100  # in PING_SECONDS; browsers send none

logger = logging.getLogger(__name__)


class Outbox:
    """The answers that wait to be sent to one client. A client that reads too slowly is given up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add an answer; called by any thread. After the outbox is closed, answers are dropped."""
        frame = message.to_frame()
        with self._lock:
            if self._is_closed:
                return
            is_full = bool(self._frames) and self._bytes + len(frame) > MAX_WAITING_BYTES
            if is_full or len(self._frames) >= MAX_WAITING_FRAMES:
                self._empty()
            else:
                self._frames.append(frame)
                self._bytes += len(frame)
            # inside the lock: a closed outbox may belong to a closed loop
            self._loop.call_soon_threadsafe(self._changed.set)

    async def take(self) -> bytes | None:
        """Wait for the next answer and return it; None if the outbox was closed."""
        while True:
            with self._lock:
                if self._is_closed:
                    return None
                if self._frames:
                    frame = self._frames.popleft()
                    self._bytes -= len(frame)
                    return frame
                self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Drop all answers, also later ones."""
        with self._lock:
            self._empty()

    def _empty(self) -> None:
        self._is_closed = True
        self._frames.clear()
        self._bytes = 0


async def serve_client(websocket: WebSocket, session: Session, token: str) -> None:
    """Serve one client, which the guard has checked, until it leaves. Its first message must contain the token."""
    try:
        await websocket.accept()
        if not await _receive_token(websocket, token):
            await websocket.close(WRONG_TOKEN, "the token is missing or wrong; open the address that jumok printed")
            return
        await _serve_asks(websocket, session)
    except WebSocketDisconnect:
        pass
    except Exception:
        logger.exception("a connection of the page failed")


async def _receive_token(websocket: WebSocket, token: str) -> bool:
    """Return True if the first message, sent in time, contains the token."""
    try:
        async with asyncio.timeout(TOKEN_SECONDS):
            message = await websocket.receive()
    except TimeoutError:
        return False
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text = message.get("text")
    if text is None or len(text) > MAX_TOKEN_MESSAGE:
        return False
    try:
        head = json.loads(text)
    except ValueError:
        return False
    received = head.get("token") if isinstance(head, dict) else None
    return isinstance(received, str) and hmac.compare_digest(received.encode(errors="replace"), token.encode())


async def _serve_asks(websocket: WebSocket, session: Session) -> None:
    """Pass asks to the session and send its answers, until the client leaves or is given up."""
    outbox = Outbox(asyncio.get_running_loop())
    send = outbox.put  # one object: the session recognises the client by it
    tasks = {
        asyncio.create_task(_send_answers(websocket, outbox)),
        asyncio.create_task(_receive_asks(websocket, session, send)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        outbox.close()
        session.forget(send)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        error = task.exception()
        if error is not None:
            raise error


async def _send_answers(websocket: WebSocket, outbox: Outbox) -> None:
    while (frame := await outbox.take()) is not None:
        await websocket.send_bytes(frame)


async def _receive_asks(websocket: WebSocket, session: Session, send: Send) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if text is None:
            await websocket.close(NOT_TEXT, "asks are text messages")
            return
        try:
            ask = parse_ask(text)
        except ArgumentError as error:
            reason = str(error).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
            await websocket.close(NOT_AN_ASK, reason)
            return
        session.handle(ask, send)


class HTTPConnection(H11Protocol):
    """A connection that carries one request: it ends if the request or the reading of its response takes too long."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_deadline()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Answer the request as soon as its headers are complete."""
        is_first = self.cycle is None
        super().handle_events()
        if is_first and self.cycle is not None:  # the response is under way
            self._set_deadline(RESPONSE_SECONDS)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to the WebSocket, which has its own deadlines."""
        self._stop_deadline()
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
        """Wait for the client to read: the buffer of the connection is full."""
        super().pause_writing()
        self._check_reading_later()

    def resume_writing(self) -> None:
        """Go on: the client has read the buffer."""
        super().resume_writing()
        self._stop_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_stall_timer()
        super().connection_lost(exc)

    def handle_ping(self) -> None:
        """Answer a ping; too many end the connection, as the answers may remain unread."""
        now = self.loop.time()
        if now - self._ping_window > PING_SECONDS:
            self._ping_window, self._pings = now, 0
        self._pings += 1
        if self._pings > MAX_PINGS:
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
