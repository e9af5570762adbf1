"""Refuse requests that do not come from the page itself: unknown hosts and origins, other paths, methods and bodies.

A web site that the user visits can send requests to a server on the same machine. Browsers name the address of the
server in the header Host, and the site in the header Origin; both must be exactly those of the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_PATHS = ("/", "/jumok.js", "/jumok.css", "/favicon.svg")
SESSION_PATH = "/session"
METHODS = ("GET", "HEAD")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
MAX_HEADER_BYTES = 16_384
MAX_HEADERS = 100
MAX_TARGET_BYTES = 2048
HTTP_PORT = 80  # browsers leave it out of Host and Origin

Headers = list[tuple[bytes, bytes]]


class Refusal(NamedTuple):
    """Why a request is refused: a status, and a sentence for the person who sent it."""

    status: int
    reason: str


@dataclass(frozen=True)
class AllowedHosts:
    """The addresses under which the page may be reached: exact values of the header Host."""

    local: frozenset[str]
    forwarded: frozenset[str] = frozenset()  # allowed by the user; something in between may add TLS to them

    @property
    def hosts(self) -> frozenset[str]:
        """All allowed values of the header Host."""
        return self.local | self.forwarded

    @property
    def origins(self) -> frozenset[str]:
        """All allowed values of the header Origin."""
        plain = {f"http://{host}" for host in self.hosts}
        return frozenset(plain | {f"https://{host}" for host in self.forwarded})


def list_allowed_hosts(port: int, name: str = LOOPBACK_NAMES[0], forwarded: Iterable[str] = ()) -> AllowedHosts:
    """Return the addresses under which a server on this port may be reached: by the name on which it listens, and by
    forwarded ones, "name" or "name:port".

    >>> sorted(list_allowed_hosts(8642, forwarded=["box.example"]).hosts)
    ['127.0.0.1:8642', '[::1]:8642', 'box.example', 'box.example:8642', 'localhost:8642']
    """
    names = {*LOOPBACK_NAMES, name.lower()}
    local = {f"{name}:{port}" for name in names}
    if port == HTTP_PORT:
        local |= names
    hosts = {host.lower() for host in forwarded}
    without_port = {host for host in hosts if ":" not in host.rpartition("]")[2]}
    return AllowedHosts(frozenset(local), frozenset(hosts | {f"{host}:{port}" for host in without_port}))


def explain_refusal(scope: Scope, allowed: AllowedHosts) -> Refusal | None:
    """Return why a request is refused; None if it is allowed."""
    headers: Headers = scope["headers"]
    is_websocket = scope["type"] == "websocket"
    if scope["http_version"] not in ("1.0", "1.1"):
        return Refusal(505, "this server speaks HTTP/1.1")
    if has_large_headers(headers):
        return Refusal(431, "the headers of the request are too large")
    if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
        return Refusal(414, "the address is too long")

    hosts = _read_header(headers, b"host")
    if len(hosts) != 1 or hosts[0] not in allowed.hosts:
        return Refusal(421, "this address is not one of the page; allow it with: jumok look --open --allow-host NAME")
    origins = _read_header(headers, b"origin")
    if len(origins) > 1 or not set(origins) <= allowed.origins or (is_websocket and not origins):
        return Refusal(403, "requests of other web sites are refused")

    return _explain_websocket_refusal(scope) if is_websocket else _explain_http_refusal(scope)


def has_large_headers(headers: Headers) -> bool:
    """Return True if there are too many headers, or too many bytes in them."""
    return len(headers) > MAX_HEADERS or sum(len(name) + len(text) for name, text in headers) > MAX_HEADER_BYTES


def has_body(headers: Headers) -> bool:
    """Return True if a request announces a body; the page never sends one."""
    lengths = _read_header(headers, b"content-length")
    return bool(_read_header(headers, b"transfer-encoding")) or any(length != "0" for length in lengths)


def build_security_headers(host: str, allowed: AllowedHosts) -> dict[str, str]:
    """Return the headers that every response has; the host of the request is named only if it is allowed."""
    sockets = ""  # old versions of Safari do not count WebSockets as 'self'
    if host in allowed.hosts:
        sockets = f" ws://{host}" + (f" wss://{host}" if host in allowed.forwarded else "")
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "media-src blob:; "
        f"connect-src 'self'{sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # one request for each connection: nothing can hide behind the first one
        "Connection": "close",
    }


class Guard:
    """ASGI middleware: answer refused requests, and add the security headers to every response."""

    def __init__(self, app: ASGIApp, allowed: AllowedHosts) -> None:
        self.app = app
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        hosts = _read_header(scope["headers"], b"host")
        security = build_security_headers(hosts[0] if len(hosts) == 1 else "", self.allowed)

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, text in security.items():
                    headers[name] = text
            await send(message)

        refusal = explain_refusal(scope, self.allowed)
        if refusal is None:
            await self.app(scope, receive, send_with_headers)
            return
        more = {"Allow": ", ".join(METHODS)} if refusal.status == 405 else None
        response = PlainTextResponse(f"{refusal.reason}\n", refusal.status, more)
        await response(scope, receive, send_with_headers)


def _explain_http_refusal(scope: Scope) -> Refusal | None:
    if scope["method"] not in METHODS:
        return Refusal(405, "only GET and HEAD are answered")
    if has_body(scope["headers"]):
        return Refusal(400, "requests with a body are refused")
    path = scope["raw_path"].decode("ascii", errors="replace")
    if path == SESSION_PATH:
        return Refusal(426, "this address takes WebSocket connections of the page only")
    if path not in PAGE_PATHS:
        return Refusal(404, "there is no such file; the page is at /")
    return None


def _explain_websocket_refusal(scope: Scope) -> Refusal | None:
    if scope["raw_path"] != SESSION_PATH.encode():
        return Refusal(404, f"WebSocket connections are taken at {SESSION_PATH} only")
    if scope["query_string"]:
        return Refusal(400, "the session takes no query; the token is sent as the first message")
    return None


def _read_header(headers: Headers, name: bytes) -> list[str]:
    """Return all values of a header in lower case; hosts and origins do not depend on the case."""
    return [text.decode("latin-1").lower() for key, text in headers if key.lower() == name]
