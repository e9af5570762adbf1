"""The server with a real session and the model tiny: answers, asks that reach for files, and what closing leaves."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from raw_client import WebSocketClient, count_open_files
from served_page import check_normal_user, serve, wait_until

from jumok.web.server.connection import Outbox
from jumok.web.server.page_server import PageServer
from jumok.web.session import Session, Start

pytestmark = pytest.mark.xdist_group("web_server_session")
TEXT = "the cat sat; the cat"
CYCLES = 30


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serve(Session(Start("tiny", TEXT))) as server:
        yield server


def run_ask(**changes: Any) -> dict[str, Any]:
    return {"id": 2, "ask": "run", "model": "tiny", "text": TEXT, "edits": [], **changes}


def test_a_run_and_its_maps_are_answered(server: PageServer) -> None:
    with WebSocketClient(server.port, server.token) as client:
        assert client.ask(id=1, ask="hello")["body"]["text"] == TEXT
        body = client.ask(**run_ask())["body"]
        assert len(body["source"]) == len(TEXT)
        ask = {"run": body["run"], "show": "clean", "site": 0, "size": 16}
        assert client.ask(id=3, ask="thumbnails", **ask)["body"]["rows"] == 16


def test_two_clients_do_not_see_each_other(server: PageServer) -> None:
    with WebSocketClient(server.port, server.token) as first, WebSocketClient(server.port, server.token) as second:
        run = first.ask(**run_ask())["body"]["run"]
        failure = second.ask(id=5, ask="thumbnails", run=run, show="clean", site=0, size=16)
        assert failure["reason"] == "invalid"


@pytest.mark.parametrize(
    "ask",
    [
        {"ask": "unknown"},
        {"ask": "__init__"},
        {"ask": None},
        {"ask": ["run"]},
        {},
        {"token": "again"},
        run_ask(model="/etc"),
        run_ask(model="../tiny"),
        run_ask(model="http://evil.example/model"),
        run_ask(model={"name": "tiny"}),
        run_ask(text=5),
        run_ask(text="a" * 900_000),
        run_ask(edits="Ablate"),
        run_ask(edits=[{"edit": "__import__", "layer": 0}]),
        run_ask(edits=[{"edit": "Remask", "layer": 0, "mask": "__import__('os')"}]),
        run_ask(generate=10**9),
        {"ask": "thumbnails", "run": -1, "show": "clean", "site": 0, "size": 16},
        {"ask": "tiles", "run": 1, "show": "clean", "site": 10**9, "head": 0, "level": 0, "row": 0, "column": 0},
        {"ask": "save", "run": 10**6, "path": "/etc/passwd"},
    ],
    ids=str,
)
def test_a_bad_ask_fails_with_a_sentence(server: PageServer, ask: dict[str, Any]) -> None:
    with WebSocketClient(server.port, server.token) as client:
        failure = client.ask(**{"id": 2, **ask})
        assert failure["failed"] == 2
        assert failure["reason"] in ("invalid", "outdated")
        assert failure["message"]
    check_normal_user(server)


def test_a_text_that_names_a_file_is_a_text(server: PageServer, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("secret")
    with WebSocketClient(server.port, server.token) as client:
        body = client.ask(**run_ask(text=str(path)))["body"]
        assert body["text"] == str(path)
        assert len(body["source"]) == len(str(path))


def count_hooks() -> int:
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules)


def test_closed_sessions_leave_no_thread_hook_or_file() -> None:
    threads = set(threading.enumerate())
    with serve(Session(Start("tiny", TEXT))) as server:

        def open_and_close(is_waiting: bool) -> None:
            with WebSocketClient(server.port, server.token) as client:
                client.send_json({"id": 1, "ask": "hello"})
                if is_waiting:
                    assert "body" in client.ask(**run_ask())
                else:  # leave while it runs
                    client.send_json(run_ask())

        def count() -> dict[str, int]:
            with WebSocketClient(server.port, server.token) as client:  # after all earlier runs
                assert "body" in client.ask(**run_ask())
            state = server._server.server_state
            wait_until(lambda: not (state.tasks or state.connections))
            gc.collect()
            return {
                "threads": threading.active_count(),
                "files": count_open_files(),
                "hooks": count_hooks(),
                "outboxes": sum(type(thing) is Outbox for thing in gc.get_objects()),
            }

        open_and_close(True)
        before = count()
        for number in range(CYCLES):
            open_and_close(number % 3 == 0)
        assert count() == before
    assert set(threading.enumerate()) <= threads
