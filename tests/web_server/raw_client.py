"""A client on a raw socket: it can send what no browser would send, byte by byte."""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from typing import Any

TIMEOUT = 30.0  # seconds; a busy machine needs a few
UPGRADE = (
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
)
TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0


def build_request(port: int, line: str = "GET / HTTP/1.1", **headers: str | None) -> bytes:
    """Return a request with the right Host; ``headers`` adds or replaces some, and None removes one."""
    fields: dict[str, str | None] = {"Host": f"127.0.0.1:{port}"}
    fields |= {name.replace("_", "-"): text for name, text in headers.items()}
    lines = [line, *(f"{name}: {text}" for name, text in fields.items() if text is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def build_upgrade(port: int, line: str = "GET /session HTTP/1.1", **headers: str | None) -> bytes:
    """Return the request that a browser on the page sends to open the WebSocket, with some headers replaced."""
    fields: dict[str, str | None] = dict(UPGRADE)
    fields["Origin"] = f"http://127.0.0.1:{port}"
    fields |= {name.replace("_", "-"): text for name, text in headers.items()}
    return build_request(port, line, **fields)


def build_frame(
    payload: bytes, code: int = TEXT, *, is_last: bool = True, is_masked: bool = True, bits: int = 0
) -> bytes:
    """Return a WebSocket frame; ``bits`` are the reserved bits."""
    first = (0x80 if is_last else 0) | bits << 4 | code
    mask_bit = 0x80 if is_masked else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, mask_bit | len(payload))
    elif len(payload) < 1 << 16:
        head = struct.pack("!BBH", first, mask_bit | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, len(payload))
    if not is_masked:
        return head + payload
    return head + b"\0\0\0\0" + payload  # the mask 0 leaves the payload as it is


def connect(port: int) -> socket.socket:
    """Return a connection to the server."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as browsers do
    return connection


def read_until_closed(connection: socket.socket) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def exchange(port: int, request: bytes) -> bytes:
    """Send a request and return what the server answers before it closes the connection."""
    with connect(port) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):  # refused before all of it was sent
            connection.sendall(request)
        return read_until_closed(connection)


def read_status(response: bytes) -> int | None:
    """Return the status of an HTTP response; None if there is none."""
    return int(response.split()[1]) if response.startswith(b"HTTP/1.1 ") else None


class WebSocketClient:
    """A WebSocket of a normal user, which can also send any bytes."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.connection = connect(port)
        self.connection.sendall(build_upgrade(port))
        self._unread = b""
        while b"\r\n\r\n" not in self._unread:
            self._receive()
        self.response, _, self._unread = self._unread.partition(b"\r\n\r\n")
        assert read_status(self.response) == 101, self.response
        if token is not None:
            self.send_json({"token": token})

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def send(self, frame: bytes) -> None:
        """Send any bytes."""
        self.connection.sendall(frame)

    def send_json(self, fields: Any) -> None:
        """Send a text message."""
        self.send(build_frame(json.dumps(fields).encode()))

    def read_frame(self) -> tuple[int, bytes]:
        """Return the code and the payload of the next frame."""
        code, length = self._read(2)
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8))
        return code & 15, self._read(length)

    def read_head(self) -> dict[str, Any]:
        """Return the JSON head of the next message of the session."""
        code, payload = self.read_frame()
        assert code == BINARY, (code, payload)
        (length,) = struct.unpack_from("<I", payload)
        head: dict[str, Any] = json.loads(payload[4 : 4 + length])
        return head

    def ask(self, **ask: Any) -> dict[str, Any]:
        """Send an ask and return its answer, or why it failed."""
        self.send_json(ask)
        while True:
            head = self.read_head()
            if ask["id"] in (head.get("answer"), head.get("failed")):
                return head

    def read_close_code(self) -> int | None:
        """Return the code with which the server closes the connection; None without a close frame."""
        try:
            while True:
                code, payload = self.read_frame()
                if code == CLOSE:
                    return struct.unpack_from("!H", payload)[0]
        except (EOFError, ConnectionResetError):
            return None

    def _read(self, length: int) -> bytes:
        while len(self._unread) < length:
            self._receive()
        part, self._unread = self._unread[:length], self._unread[length:]
        return part

    def _receive(self) -> None:
        part = self.connection.recv(1 << 20)
        if not part:
            raise EOFError
        self._unread += part


def count_open_files() -> int:
    """Return how many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))
