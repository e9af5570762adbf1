"""The files that the server sends: types, compression, caching, security headers, and allowed names."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from importlib.resources import files

import pytest
from echo_session import EchoSession
from raw_client import build_request, build_upgrade, connect, exchange, read_status
from served_page import serve

from jumok.errors import ArgumentError
from jumok.web.server import open_browser
from jumok.web.server.guard import PAGE_PATHS, AllowedHosts, list_allowed_hosts
from jumok.web.server.page_server import PageServer, is_loopback

pytestmark = pytest.mark.xdist_group("web_server_files")
STATIC = files("jumok.web") / "static"
TYPES = {
    "/": b"text/html; charset=utf-8",
    "/jumok.js": b"text/javascript; charset=utf-8",
    "/jumok.css": b"text/css; charset=utf-8",
    "/favicon.svg": b"image/svg+xml",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serve(EchoSession(), allowed_hosts=["Box.example", "localhost:9000"]) as server:
        yield server


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and body of a response."""
    response = exchange(server.port, build_request(server.port, f"{method} {path} HTTP/1.1", **headers))
    head, _, body = response.partition(b"\r\n\r\n")
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    status = read_status(response)
    assert status is not None
    return status, {name.lower(): text for name, _, text in lines}, body


@pytest.mark.parametrize("path", PAGE_PATHS)
def test_files_are_sent_plain_and_compressed(server: PageServer, path: str) -> None:
    status, headers, body = get(server, path)
    assert (status, headers[b"content-type"], headers[b"cache-control"]) == (200, TYPES[path], b"no-cache")
    assert b"content-encoding" not in headers
    if path != "/":
        assert body == (STATIC / path[1:]).read_bytes()

    status, headers, compressed = get(server, path, Accept_Encoding="br, gzip, deflate")
    assert (status, headers[b"content-encoding"], headers[b"vary"]) == (200, b"gzip", b"Accept-Encoding")
    assert gzip.decompress(compressed) == body

    status, headers, nothing = get(server, path, If_None_Match=headers[b"etag"].decode())
    assert (status, nothing) == (304, b"")
    status, headers, nothing = get(server, path, "HEAD")
    assert (status, headers[b"content-length"], nothing) == (200, str(len(body)).encode(), b"")


def test_the_page_has_no_inline_code_and_loads_only_its_own_files(server: PageServer) -> None:
    _, headers, body = get(server, "/?vscodeBrowserReqId=1")  # some browsers inside editors add a query
    host = f"127.0.0.1:{server.port}"
    assert headers[b"content-security-policy"].decode() == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "media-src blob:; "
        f"connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"referrer-policy"] == b"no-referrer"
    assert headers[b"cross-origin-opener-policy"] == headers[b"cross-origin-resource-policy"] == b"same-origin"
    assert b"server" not in headers
    assert b'<div id="jumok" data-carrier="server"></div>' in body
    assert b"//" not in body.replace(b"<!doctype", b"")
    assert b"style=" not in body
    assert b"<style" not in body
    assert server.token.encode() not in body


def test_a_connection_carries_one_request(server: PageServer) -> None:
    assert get(server, "/")[1][b"connection"] == b"close"
    response = exchange(server.port, build_request(server.port) * 2)
    assert response.count(b"HTTP/1.1 ") == 1


def test_allowed_names_are_answered_and_may_add_tls(server: PageServer) -> None:
    for host in ("box.example", "BOX.EXAMPLE", f"box.example:{server.port}", "localhost:9000", f"[::1]:{server.port}"):
        assert get(server, "/", Host=host)[0] == 200
    for host in ("localhost", "box.example:9000", "a.box.example", "localhost:9001"):
        assert get(server, "/", Host=host)[0] == 421
    policy = get(server, "/", Host="box.example")[1][b"content-security-policy"]
    assert b"connect-src 'self' ws://box.example wss://box.example;" in policy

    for origin, status in (("https://box.example", b"101"), ("https://localhost:9001", b"403")):
        with connect(server.port) as client:
            client.sendall(build_upgrade(server.port, Host="box.example", Origin=origin))
            assert client.recv(65536).split()[1] == status


def test_hosts_are_exact_values() -> None:
    allowed = list_allowed_hosts(80, "10.0.0.5", ["a.example:443"])
    assert allowed == AllowedHosts(
        frozenset(name + port for name in ("127.0.0.1", "localhost", "[::1]", "10.0.0.5") for port in ("", ":80")),
        frozenset({"a.example:443"}),
    )
    assert {origin for origin in allowed.origins if origin.startswith("https")} == {"https://a.example:443"}


def test_only_loopback_addresses_are_private() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.2", "box.example")))


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"DISPLAY": ""}, False),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, False),
        ("win32", {}, True),
    ],
)
def test_a_display_is_recognised(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(open_browser.sys, "platform", platform)
    assert open_browser.has_display() is expected


def test_a_port_in_use_is_named(server: PageServer) -> None:
    with pytest.raises(ArgumentError, match=f"^port {server.port} is in use by another program; choose another"):
        PageServer(EchoSession(), port=server.port)
    with pytest.raises(ArgumentError, match=r"cannot listen on 192\.0\.2\.1"):
        PageServer(EchoSession(), host="192.0.2.1", port=0)


def test_ipv6(server: PageServer) -> None:
    with serve(EchoSession(), host="::1") as other:
        assert other.address == f"http://[::1]:{other.port}/#token={other.token}"
        assert len(other.token) >= 43
        assert other.token != server.token
