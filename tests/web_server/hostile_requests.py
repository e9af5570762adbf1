"""Requests that a web site, another program or a broken proxy may send, and the status with which each is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raw_client import build_request, build_upgrade


class Hostile(NamedTuple):
    name: str
    build: Callable[[int], bytes]
    status: int


HOSTS = {
    "another name": "evil.example",
    "another name with our port": "evil.example:{port}",
    "DNS rebinding to a name under ours": "127.0.0.1.evil.example:{port}",
    "a name that ends like ours": "notlocalhost:{port}",
    "a name before ours": "evil.example@127.0.0.1:{port}",
    "ours without port": "127.0.0.1",
    "ours with another port": "127.0.0.1:1",
    "ours with an empty port": "127.0.0.1:",
    "ours with a trailing dot": "localhost.:{port}",
    "all addresses": "0.0.0.0:{port}",
    "another loopback address": "127.0.0.2:{port}",
    "a number for our address": "2130706433:{port}",
    "a comma list": "127.0.0.1:{port}, evil.example",
    "empty": "",
}
ORIGINS = {
    "another site": "http://evil.example",
    "null": "null",
    "empty": "",
    "ours with https": "https://127.0.0.1:{port}",
    "ours with another port": "http://127.0.0.1:1",
    "ours without port": "http://127.0.0.1",
    "a site that begins like ours": "http://127.0.0.1:{port}.evil.example",
    "a file": "file://",
    "an extension": "chrome-extension://abcdefghijklmnop",
    "a comma list": "http://127.0.0.1:{port}, http://evil.example",
}
PATHS = {
    "unknown": "/index.html",
    "traversal": "/../../etc/passwd",
    "encoded traversal": "/%2e%2e/%2e%2e/etc/passwd",
    "doubly encoded traversal": "/%252e%252e/etc/passwd",
    "backslashes": "/..\\..\\windows\\win.ini",
    "encoded slash": "/%2fjumok.js",
    "encoded letter of a real path": "/jumok%2ejs",
    "upper case of a real path": "/JUMOK.JS",
    "double slash": "//jumok.js",
    "trailing slash": "/jumok.js/",
    "NUL behind a real path": "/jumok.js%00.png",
    "line break in the path": "/%0d%0aSet-Cookie:%20a=b",
    "absolute form": "http://127.0.0.1:{port}/",
    "absolute form of another server": "http://evil.example/",
    "a file address": "file:///etc/passwd",
    "asterisk": "*",
    "source map": "/jumok.js.map",
}
METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "BREW")


def build_host(host: str) -> Callable[[int], bytes]:
    return lambda port: build_request(port, Host=host.format(port=port))


def build_origin(origin: str) -> Callable[[int], bytes]:
    return lambda port: build_request(port, Origin=origin.format(port=port))


def build_websocket_host(host: str) -> Callable[[int], bytes]:
    return lambda port: build_upgrade(port, Host=host.format(port=port))


def build_websocket_origin(origin: str) -> Callable[[int], bytes]:
    return lambda port: build_upgrade(port, Origin=origin.format(port=port))


def build_path(path: str) -> Callable[[int], bytes]:
    return lambda port: build_request(port, f"GET {path.format(port=port)} HTTP/1.1")


def build_method(method: str) -> Callable[[int], bytes]:
    return lambda port: build_request(port, f"{method} / HTTP/1.1")


REQUESTS = [
    *(Hostile(f"Host: {name}", build_host(host), 421) for name, host in HOSTS.items()),
    *(Hostile(f"WebSocket, Host: {name}", build_websocket_host(host), 421) for name, host in HOSTS.items()),
    *(Hostile(f"Origin: {name}", build_origin(origin), 403) for name, origin in ORIGINS.items()),
    *(Hostile(f"WebSocket, Origin: {name}", build_websocket_origin(origin), 403) for name, origin in ORIGINS.items()),
    *(Hostile(f"path: {name}", build_path(path), 404) for name, path in PATHS.items()),
    *(Hostile(f"method {method}", build_method(method), 405) for method in METHODS),
    # Host
    Hostile("no Host", lambda port: build_request(port, Host=None), 400),
    Hostile("no Host in HTTP/1.0", lambda port: build_request(port, "GET / HTTP/1.0", Host=None), 421),
    Hostile("two Hosts", lambda port: build_request(port, host="evil.example"), 400),
    Hostile("two Hosts in HTTP/1.0", lambda port: build_request(port, "GET / HTTP/1.0", host="evil.example"), 400),
    Hostile("two equal Hosts", lambda port: build_request(port, host=f"127.0.0.1:{port}"), 400),
    Hostile(
        "Host with a space before the colon",
        lambda port: f"GET / HTTP/1.1\r\nHost : 127.0.0.1:{port}\r\n\r\n".encode(),
        400,
    ),
    Hostile(
        "X-Forwarded-Host",
        lambda port: build_request(port, Host="evil.example", X_Forwarded_Host=f"127.0.0.1:{port}"),
        421,
    ),
    # Origin
    Hostile("WebSocket without Origin", lambda port: build_upgrade(port, Origin=None), 403),
    Hostile("WebSocket with two Origins", lambda port: build_upgrade(port, origin="http://evil.example"), 400),
    Hostile(
        "preflight of CORS",
        lambda port: build_request(
            port, "OPTIONS /session HTTP/1.1", Origin="http://evil.example", Access_Control_Request_Method="POST"
        ),
        403,
    ),
    # WebSocket handshakes
    Hostile("the session without an upgrade", lambda port: build_request(port, "GET /session HTTP/1.1"), 426),
    Hostile("WebSocket at another path", lambda port: build_upgrade(port, "GET / HTTP/1.1"), 404),
    Hostile("WebSocket at an encoded path", lambda port: build_upgrade(port, "GET /%73ession HTTP/1.1"), 404),
    Hostile("the token in the query", lambda port: build_upgrade(port, "GET /session?token=abc HTTP/1.1"), 400),
    Hostile("WebSocket of another version", lambda port: build_upgrade(port, Sec_WebSocket_Version="8"), 400),
    Hostile("WebSocket without a version", lambda port: build_upgrade(port, Sec_WebSocket_Version=None), 400),
    Hostile("WebSocket without a key", lambda port: build_upgrade(port, Sec_WebSocket_Key=None), 400),
    Hostile("WebSocket with a short key", lambda port: build_upgrade(port, Sec_WebSocket_Key="YWJj"), 400),
    Hostile("WebSocket by POST", lambda port: build_upgrade(port, "POST /session HTTP/1.1"), 405),
    Hostile("WebSocket with a body", lambda port: build_upgrade(port, Content_Length="5") + b"hello", 400),
    Hostile(
        "WebSocket with a chunked body",
        lambda port: build_upgrade(port, Transfer_Encoding="chunked") + b"0\r\n\r\n",
        400,
    ),
    Hostile(
        "WebSocket with large headers", lambda port: build_upgrade(port, Cookie="a" * 12_000, Accept="b" * 12_000), 431
    ),
    Hostile(
        "WebSocket with many headers", lambda port: build_upgrade(port, **{f"X-{i}": "a" for i in range(200)}), 431
    ),
    Hostile(
        "upgrade to HTTP/2",
        lambda port: build_request(
            port,
            "GET /session HTTP/1.1",
            Upgrade="h2c",
            Connection="Upgrade, HTTP2-Settings",
            HTTP2_Settings="AAMAAABkAAQAoAAAAAIAAAAA",
        ),
        426,
    ),
    # bodies
    Hostile("a body", lambda port: build_request(port, Content_Length="5") + b"hello", 400),
    Hostile("a huge body", lambda port: build_request(port, Content_Length="99999999999") + b"x" * 100_000, 400),
    Hostile(
        "length and chunks (CL.TE)",
        lambda port: (
            build_request(port, Content_Length="4", Transfer_Encoding="chunked") + b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"
        ),
        400,
    ),
    Hostile("two lengths", lambda port: build_request(port, Content_Length="0", content_length="50"), 400),
    Hostile("a negative length", lambda port: build_request(port, Content_Length="-1"), 400),
    Hostile("a length that is no number", lambda port: build_request(port, Content_Length="0x10"), 400),
    Hostile(
        "chunks of a bad size",
        lambda port: build_request(port, Transfer_Encoding="chunked") + b"zz\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    Hostile(
        "a chunk of a huge size",
        lambda port: build_request(port, Transfer_Encoding="chunked") + b"ffffffffffffffff\r\n",
        400,
    ),
    Hostile("an unknown coding", lambda port: build_request(port, Transfer_Encoding="chunked, gzip"), 400),
    Hostile("a hidden coding", lambda port: build_request(port, Transfer_Encoding="xchunked"), 400),
    # sizes
    Hostile("a huge header", lambda port: build_request(port, Cookie="a" * 100_000), 431),
    Hostile("a header without end", lambda port: b"GET / HTTP/1.1\r\nCookie: " + b"a" * 1_000_000, 400),
    Hostile("many headers", lambda port: build_request(port, **{f"X-{i}": "a" for i in range(200)}), 431),
    Hostile("a huge address", lambda port: build_request(port, f"GET /?{'a' * 10_000} HTTP/1.1"), 414),
    Hostile("a request line without end", lambda port: b"GET /" + b"a" * 1_000_000, 400),
    # syntax
    Hostile("HTTP/0.9", lambda port: b"GET /\r\n\r\n", 400),
    Hostile("HTTP/2", lambda port: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    Hostile("HTTP/3.0", lambda port: build_request(port, "GET / HTTP/3.0"), 505),
    Hostile("TLS", lambda port: bytes.fromhex("16030100c8010000c40303") + bytes(200), 400),
    Hostile("NUL in the path", lambda port: b"GET /\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
    Hostile("NUL in a header", lambda port: build_request(port, Accept="a\0b"), 400),
    Hostile("a line break in a header", lambda port: build_request(port, Accept="a\rSet-Cookie: b"), 400),
    Hostile("a space in the path", lambda port: build_request(port, "GET / / HTTP/1.1"), 400),
    Hostile("not ASCII in the path", lambda port: build_request(port, "GET /\xe4 HTTP/1.1"), 400),
    Hostile("CONNECT", lambda port: build_request(port, "CONNECT evil.example:443 HTTP/1.1"), 405),
    Hostile("a folded header", lambda port: b"GET /x HTTP/1.1\r\nHost: evil\r\n .example\r\n\r\n", 421),
    Hostile("garbage", lambda port: bytes(range(256)) * 4, 400),
    Hostile("only line breaks", lambda port: b"\r\n" * 20_000, 400),
]
