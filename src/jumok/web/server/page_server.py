"""Start and stop the server of the page."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from jumok.errors import ArgumentError
from jumok.web.asks import MAX_ASK_BYTES

from .connection import describe_limits, serve_client
from .guard import METHODS, SESSION_PATH, AllowedHosts, Guard, list_allowed_hosts

if TYPE_CHECKING:
    from jumok.web.session import Session

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8642  # the same each time, as browsers keep the settings of a page by its port
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # all addresses of this machine, and one to open
MMAP_THRESHOLD_OPTION = -3  # M_MMAP_THRESHOLD of mallopt(3)
MMAP_BYTES = 2**20
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Jumok</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/jumok.css">
<script type="module" src="/jumok.js"></script>
</head>
<body>
<div id="jumok" data-carrier="server"></div>
<noscript>This page needs JavaScript. 이 페이지는 JavaScript가 필요합니다.</noscript>
</body>
</html>
"""
# not by the file's name: some systems register other types for it
CONTENT_TYPES = {"/jumok.js": "text/javascript", "/jumok.css": "text/css", "/favicon.svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file that the server sends; it is kept in memory."""

    content: bytes
    content_type: str


class PageServer:
    """The server of one page. It listens when it is created; ``run`` answers.

    Args:
        host: The address to listen on; 127.0.0.1 is reached from this machine only.
        port: The port; None takes DEFAULT_PORT, or a free one if that is in use. 0 takes a free one.
        allowed_hosts: Further names under which browsers reach the page, such as those of forwarded ports.

    Raises:
        ArgumentError: If the address cannot be used.
    """

    def __init__(
        self,
        session: Session,
        *,
        host: str = DEFAULT_HOST,
        port: int | None = None,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self.session = session
        self.token = secrets.token_urlsafe(32)
        static = read_static_files()
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._name = _to_url_name(WILDCARDS.get(host, host))
        self.allowed = list_allowed_hosts(self.port, self._name, allowed_hosts)
        app = build_app(session, self.token, self.allowed, static)
        config = uvicorn.Config(
            app,
            ws_max_size=MAX_ASK_BYTES,
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            log_level="critical",  # refused requests are no news
            **describe_limits(),
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """The address of the page, with the token behind #: browsers do not send that part to any server."""
        return f"http://{self._name}:{self.port}/#token={self.token}"

    def run(self) -> None:
        """Answer until ``stop``, or until Ctrl-C, which raises KeyboardInterrupt here as well."""
        return_freed_memory()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self.session.close()

    def stop(self) -> None:
        """Let ``run`` return; called by any thread."""
        self._server.should_exit = True


def build_app(session: Session, token: str, allowed: AllowedHosts, static: dict[str, StaticFile]) -> Starlette:
    """Return the ASGI application of the page; the first message of a WebSocket must contain the token."""

    async def send_file(request: Request) -> Response:
        file = static[request.url.path]
        tag = f'W/"{sha256(file.content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}  # browsers ask whether the file that they have is current
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.content_type)

    async def open_session(websocket: WebSocket) -> None:
        await serve_client(websocket, session, token)

    routes = [Route(path, send_file, methods=list(METHODS)) for path in static]
    return Starlette(
        routes=[*routes, WebSocketRoute(SESSION_PATH, open_session)],
        middleware=[Middleware(Guard, allowed=allowed), Middleware(GZipMiddleware, minimum_size=1)],
    )


def read_static_files() -> dict[str, StaticFile]:
    """Return the files of the page by their paths."""
    static = {"/": StaticFile(PAGE.encode(), "text/html")}
    for path, content_type in CONTENT_TYPES.items():
        file = files("jumok.web") / "static" / path[1:]
        if not file.is_file():
            raise ArgumentError(f"the file {path[1:]} of the page is missing; install jumok again")
        static[path] = StaticFile(file.read_bytes(), content_type)
    return static


def is_loopback(host: str) -> bool:
    """Return True for a name or an address that only programs on this machine reach."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def return_freed_memory() -> None:
    """Let the C library of Linux return the memory of every large tensor to the system as soon as it is freed.

    By default it keeps blocks of up to 32 MB. The pass of a long text allocates vectors that stay between larger ones
    that do not, so that the holes add up: 0.2 GB at 3,900 tokens of SmolLM2.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library, or another system
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD_OPTION, MMAP_BYTES)


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket."""
    if port is not None:
        return _bind(host, port)
    try:
        return _bind(host, DEFAULT_PORT)
    except ArgumentError:
        return _bind(host, 0)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ArgumentError(f"cannot listen on {host}: {error.strerror}; choose an address of this machine") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # a port that was closed a moment ago is free again
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ArgumentError(_describe_bind_error(error, host, port)) from None
    return listener


def _describe_bind_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use by another program; choose another one with --port, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system; choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}; choose an address of this machine with --host"


def _to_url_name(host: str) -> str:
    """Return a host as it is written in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
