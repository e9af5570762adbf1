"""One WebSocket connection: check its token, pass its asks to the session, and send the session's answers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect

from jumok.errors import ArgumentError
from jumok.web.wire import parse_ask

if TYPE_CHECKING:
    from jumok.web.session import Session
    from jumok.web.wire import Message
    from jumok.web.work_queue import Send

TOKEN_SECONDS = 5.0
MAX_TOKEN_MESSAGE = 1000  # characters
MAX_WAITING_BYTES = 64_000_000  # a saved file is one answer of up to 18 MB
MAX_WAITING_FRAMES = 4096
MAX_REASON_BYTES = 120  # a close frame holds 123

WRONG_TOKEN = 4401
NOT_TEXT = 1003
NOT_AN_ASK = 1008

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
