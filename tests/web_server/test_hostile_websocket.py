"""Hostile WebSocket messages on raw sockets: each is refused, and a normal user is answered afterwards."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest
from echo_session import EchoSession
from raw_client import BINARY, CLOSE, CONTINUATION, PING, TEXT, WebSocketClient, build_frame, build_upgrade, connect
from served_page import check_normal_user, serve

from jumok.web.asks import MAX_ASK_BYTES
from jumok.web.server import connection
from jumok.web.server.page_server import PageServer

pytestmark = pytest.mark.xdist_group("web_server_websocket")
HELLO = build_frame(b'{"id": 1, "ask": "hello"}')
BOMB = zlib.compress(bytes(50_000_000), 9)[2:-4]  # the form of permessage-deflate: 49 KB that become 50 MB


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serve(EchoSession()) as server:
        yield server


BAD_TOKENS = {
    "an ask before the token": HELLO,
    "a wrong token": build_frame(b'{"token": "wrong"}'),
    "an empty token": build_frame(b'{"token": ""}'),
    "a token that is a number": build_frame(b'{"token": 5}'),
    "a token that is null": build_frame(b'{"token": null}'),
    "a token that is a list": build_frame(b'{"token": ["a"]}'),
    "a token with a lone surrogate": build_frame(b'{"token": "\\ud800"}'),
    "a list": build_frame(b'["token"]'),
    "a string": build_frame(b'"token"'),
    "not JSON": build_frame(b"token"),
    "an empty message": build_frame(b""),
    "a huge token": build_frame(b'{"token": "' + b"a" * 100_000 + b'"}'),
    "deep JSON": build_frame(b"[" * 500 + b"]" * 500),
    "very deep JSON": build_frame(b"[" * 100_000),
    "a binary token": build_frame(b'{"token": "a"}', BINARY),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_the_first_message_must_be_the_token(server: PageServer, name: str) -> None:
    with WebSocketClient(server.port) as client:
        client.send(BAD_TOKENS[name] + HELLO)
        assert client.read_close_code() == 4401
    check_normal_user(server)


def test_a_part_of_the_token_is_not_the_token(server: PageServer) -> None:
    for token in (server.token[:-1], server.token + "a", server.token.swapcase(), f" {server.token}"):
        with WebSocketClient(server.port, token) as client:
            assert client.read_close_code() == 4401
    check_normal_user(server)


def test_a_token_must_come_in_time(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection.TOKEN_SECONDS == 5
    monkeypatch.setattr(connection, "TOKEN_SECONDS", 0.2)
    with WebSocketClient(server.port) as silent, WebSocketClient(server.port) as slow:
        slow.send(build_frame(b'{"token": ')[:-3])
        assert silent.read_close_code() == 4401
        assert slow.read_close_code() == 4401
    monkeypatch.undo()
    check_normal_user(server)


BAD_MESSAGES = {  # after the right token; the code with which the connection is closed, None for no close frame
    "an unmasked frame": (build_frame(b"{}", is_masked=False), 1002),
    "the first reserved bit, as of a compressed message": (build_frame(b"{}", bits=4), 1002),
    "the second reserved bit": (build_frame(b"{}", bits=2), 1002),
    "the third reserved bit": (build_frame(b"{}", bits=1), 1002),
    "a compressed bomb": (build_frame(BOMB, bits=4), 1002),
    "an unknown code": (build_frame(b"{}", 3), 1002),
    "an unknown control code": (build_frame(b"{}", 11), 1002),
    "a continuation without a beginning": (build_frame(b"{}", CONTINUATION), 1002),
    "a message inside another": (build_frame(b"{", is_last=False) + build_frame(b"}"), 1002),
    "a fragmented ping": (build_frame(b"", PING, is_last=False), 1002),
    "a long ping": (build_frame(b"a" * 126, PING), 1002),
    "a close frame of one byte": (build_frame(b"a", CLOSE), 1002),
    "a close frame with a forbidden code": (build_frame(b"\x03\xed", CLOSE), 1002),
    "a length of 2^63": (b"\x81\xff" + b"\xff" * 8 + b"\0" * 4, 1009),
    "more than 1 MB": (build_frame(b" " * (MAX_ASK_BYTES + 1)), 1009),
    "more than 1 MB is announced": (build_frame(b" " * (MAX_ASK_BYTES + 1))[:20], 1009),
    "more than 1 MB in fragments": (
        build_frame(b" " * MAX_ASK_BYTES, is_last=False) + build_frame(b" ", CONTINUATION, is_last=False),
        1009,
    ),
    "invalid UTF-8": (build_frame(b'{"text": "\xff"}'), 1007),
    "invalid UTF-8 across fragments": (
        build_frame(b'{"text": "\xc3', is_last=False) + build_frame(b'"}', CONTINUATION),
        1007,
    ),
    "a binary ask": (build_frame(b'{"id": 1, "ask": "hello"}', BINARY), 1003),
    "not JSON": (build_frame(b"hello"), 1008),
    "an empty message": (build_frame(b""), 1008),
    "a list instead of an object": (build_frame(b'[{"id": 1, "ask": "hello"}]'), 1008),
    "a number": (build_frame(b"17"), 1008),
    "NaN": (build_frame(b'{"id": NaN, "ask": "hello"}'), 1008),
    "deep JSON": (build_frame(b"[" * 100_000), 1008),
    "a number of many digits": (build_frame(b'{"id": ' + b"9" * 10_000 + b"}"), 1008),
    "two objects": (build_frame(b'{"id": 1} {"id": 2}'), 1008),
    "a ping flood": (build_frame(b"", PING) * 20_000, None),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_hostile_message_ends_the_connection(server: PageServer, name: str) -> None:
    frames, code = BAD_MESSAGES[name]
    with WebSocketClient(server.port, server.token) as client:
        assert client.ask(id=1, ask="hello")["answer"] == 1
        client.send(frames)
        assert client.read_close_code() == code
    check_normal_user(server)


def test_messages_up_to_1_mb_are_read(server: PageServer) -> None:
    with WebSocketClient(server.port, server.token) as client:
        filler = "a" * (MAX_ASK_BYTES - len(json.dumps({"id": 3, "ask": "", "text": ""})))
        assert client.ask(id=3, ask="", text=filler)["body"]["text"] == filler
        parts = [b'{"id": 4, ', b'"ask": ', b'"hello"}']
        client.send(build_frame(parts[0], TEXT, is_last=False))
        client.send(build_frame(b"", PING))  # allowed between fragments
        client.send(build_frame(parts[1], CONTINUATION, is_last=False) + build_frame(parts[2], CONTINUATION))
        assert client.read_frame() == (10, b"")
        assert client.read_head()["answer"] == 4


def test_compression_is_not_offered(server: PageServer) -> None:
    offer = "permessage-deflate; client_max_window_bits"
    with connect(server.port) as client:
        client.sendall(build_upgrade(server.port, Sec_WebSocket_Extensions=offer))
        response = client.recv(65536)
    assert response.startswith(b"HTTP/1.1 101 ")
    assert b"sec-websocket-extensions" not in response.lower()


def test_a_client_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(connection, "MAX_WAITING_FRAMES", 8)
    session = EchoSession()
    text = "a" * 500_000
    with serve(session) as server, WebSocketClient(server.port, server.token) as client:
        for number in range(60):  # 30 MB of answers: more than the system keeps in its buffers
            try:
                client.send_json({"id": number, "ask": "echo", "text": text})
            except (ConnectionResetError, BrokenPipeError):
                break
        assert client.read_close_code() is None
        check_normal_user(server)
    assert session.clients == set()
