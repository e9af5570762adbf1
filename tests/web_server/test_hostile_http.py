"""Hostile HTTP requests on raw sockets: each is refused with a sentence, and a normal user is answered afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from echo_session import EchoSession
from hostile_requests import REQUESTS, Hostile
from raw_client import build_request, exchange, read_status
from served_page import check_normal_user, serve

from jumok.web.server.page_server import PageServer

pytestmark = pytest.mark.xdist_group("web_server_http")
SECURITY_HEADERS = (
    b"content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
    b"x-content-type-options: nosniff",
    b"referrer-policy: no-referrer",
    b"cross-origin-opener-policy: same-origin",
    b"cross-origin-resource-policy: same-origin",
)


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serve(EchoSession()) as server:
        yield server


def test_the_table_is_long_enough_and_names_are_unique() -> None:
    assert len({hostile.name for hostile in REQUESTS}) == len(REQUESTS) >= 100


@pytest.mark.parametrize("hostile", REQUESTS, ids=lambda hostile: hostile.name)
def test_a_hostile_request_is_refused(server: PageServer, hostile: Hostile) -> None:
    response = exchange(server.port, hostile.build(server.port))
    assert read_status(response) == hostile.status, response[:500]
    assert response.count(b"HTTP/1.1 ") == 1  # nothing behind the first request was answered
    head = response.partition(b"\r\n\r\n")[0].lower()
    assert b"access-control" not in head
    assert b"set-cookie" not in head
    assert b"evil" not in head  # nothing of the request is repeated
    check_normal_user(server)


def test_refusals_have_security_headers_and_one_sentence(server: PageServer) -> None:
    response = exchange(server.port, build_request(server.port, Origin="http://evil.example"))
    head, _, body = response.partition(b"\r\n\r\n")
    assert body == b"requests of other web sites are refused\n"
    for header in SECURITY_HEADERS:
        assert header in head.lower()
