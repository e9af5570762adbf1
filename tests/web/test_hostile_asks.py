"""Asks that no page sends: each is refused with a sentence, and the session keeps answering."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from page_client import PageClient

from jumok.errors import ArgumentError
from jumok.web.asks import MAX_ASK_BYTES, MAX_TEXT, parse_ask
from jumok.web.messages import Message, build_answer

TEXT = "the cat sat; the cat"
DEEP: Any = []
for _ in range(500):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def run(client: PageClient) -> int:
    return client.ask("run", model="tiny", text=TEXT, edits=[])["run"]


BAD_INTEGERS = [None, True, -1, 20, 10**30, 0.0, 1.5, "0", [0], {}, float("nan"), float("inf"), DEEP]


@pytest.mark.parametrize("field", ["site", "head", "level", "row", "column"])
@pytest.mark.parametrize("number", BAD_INTEGERS, ids=lambda number: str(number)[:12])
def test_tile_numbers_are_checked(client, run, field, number) -> None:
    ask = {"run": run, "show": "clean", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0, "preview": False}
    assert client.ask("tiles", **ask)["rows"] == 20
    failure = client.fail("tiles", **{**ask, field: number})
    assert failure.reason == "invalid" and field in str(failure) and len(str(failure)) < 300


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("tiles", {"show": "both", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0}),
        ("tiles", {"show": "edited", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0}),
        ("tiles", {"show": "difference", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0}),
        ("tiles", {"show": "clean", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0, "preview": 1}),
        ("tiles", {"show": "clean", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0, "skip_first": "no"}),
        ("values", {"show": "clean", "site": 0, "head": 0, "rows": [0, 20]}),
        ("values", {"show": "clean", "site": 0, "head": 0, "rows": [0, 21], "columns": [0, 1]}),
        ("values", {"show": "clean", "site": 0, "head": 0, "rows": [3, 3], "columns": [0, 1]}),
        ("values", {"show": "clean", "site": 0, "head": 0, "rows": [-1, 3], "columns": [0, 1]}),
        ("values", {"show": "clean", "site": 0, "head": 0, "rows": [0, 1, 2], "columns": [0, 1]}),
        ("line", {"show": "clean", "site": 0, "head": 0}),
        ("line", {"show": "clean", "site": 0, "head": 0, "query": 0, "key": 0}),
        ("line", {"show": "clean", "site": 0, "head": 0, "query": 20}),
        ("line", {"show": "clean", "site": 0, "head": 0, "key": -1}),
        ("thumbnails", {"show": "difference", "site": 0, "size": 48}),
        ("thumbnails", {"show": "clean", "site": 0, "size": 0}),
        ("thumbnails", {"show": "clean", "site": 0, "size": 10**9}),
        ("thumbnails", {"show": "clean", "site": 2, "size": 48}),
        ("token", {"show": "clean", "sequence": "target", "position": 0}),
        ("token", {"show": "clean", "sequence": "source", "position": 20}),
        ("token", {"show": "clean", "sequence": ["source"], "position": 0}),
        ("layers", {"show": "clean", "sequence": "target", "position": 0}),
        ("layers", {"show": "clean", "sequence": "source", "position": 20}),
        ("steps", {"show": "clean", "site": 0, "head": 0, "query": 20, "language": "en"}),
        ("steps", {"show": "clean", "site": 0, "head": 0, "query": 0, "language": "../en"}),
        ("effect", {"over": "everything"}),
        ("effect", {}),
        ("effect", {"over": "heads", "by": "half"}),
        ("effect", {"over": "heads", "metric": "loss"}),
        ("effect", {"over": "heads", "metric": {"name": "value"}}),
        ("effect", {"over": "heads", "metric": {"name": "kl", "position": 20}}),
        ("effect", {"over": "heads", "metric": {"name": "kl", "position": 10**30}}),
        ("effect", {"over": "heads", "metric": {"name": "class"}}),
        ("effect", {"over": "heads", "metric": {"name": "log-probability", "token": 256}}),
        ("effect", {"over": "heads", "metric": {"name": "log-probability", "token": "two"}}),
        ("effect", {"over": "heads", "metric": {"name": "log-probability", "token": "a" * 101}}),
        ("effect", {"over": "cell"}),
        ("effect", {"over": "cell", "site": 2, "query": 0, "key": 0}),
        ("effect", {"over": "cell", "site": 0, "query": 0, "key": 20}),
        ("cell", {"show": "clean", "site": 0, "query": 20, "key": 0}),
        ("cell", {"show": "edited", "site": 0, "query": 0, "key": 0}),
        ("code", {"selection": {"site": 0, "head": 7, "query": None, "key": None}}),
        ("code", {"selection": {"site": 0}}),
        ("code", {"selection": [0, 0]}),
        ("code", {"selection": {"site": 0, "head": 0, "query": 20, "key": 0}}),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_fields_are_checked(client, run, kind, fields) -> None:
    failure = client.fail(kind, run=run, **fields)
    assert failure.reason == "invalid" and str(failure)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tiny", "text": 5},
        {"model": "tiny", "text": ""},
        {"model": "tiny", "text": ["a"]},
        {"model": "tiny", "text": "a" * (MAX_TEXT + 1)},
        {"model": "tiny", "text": "a" * 513},  # the model reads 512 tokens
        {"model": "tiny", "text": "half \ud83d"},
        {"model": None, "text": "a"},
        {"model": "", "text": "a"},
        {"model": ["tiny"], "text": "a"},
        {"model": "/etc", "text": "a"},
        {"model": "../../etc/passwd", "text": "a"},
        {"model": "./runs", "text": "a"},
        {"model": "https://example.org/model", "text": "a"},
        {"model": "owner/name", "text": "a"},
        {"model": "tiny ", "text": "a"},
        {"model": "tiny", "text": "a", "edits": {}},
        {"model": "tiny", "text": "a", "edits": ["Ablate"]},
        {"model": "tiny", "text": "a", "edits": [{}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Delete"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "__class__"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": 9}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": 0, "head": 9}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": 0, "head": True}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": "x" * 9999}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": 0, "by": "mean", "source": "run"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "KnockOut", "layer": 0, "query": 3, "key": 0}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "KnockOut", "layer": 0, "query": 10**40}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "KnockOut", "layer": 0, "query": DEEP}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Patch", "layer": 0, "source": "clean"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Patch", "layer": 0, "source": {"a": 1}}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Scale", "layer": 0, "temperature": 0}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Scale", "layer": 0, "temperature": float("nan")}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Remask", "mask": "__import__('os').system('true')"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Remask", "mask": "~" * 2000 + "causal"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Remask", "mask": "~" * 990 + "causal("}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Remask", "mask": "window(-1)"}]},
        {"model": "tiny", "text": "a", "edits": [{"edit": "Ablate", "layer": 0}] * 201},
        {"model": "tiny", "text": "a", "generate": 65},
        {"model": "tiny", "text": "a", "generate": -1},
        {"model": "tiny", "text": "a", "generate": "all"},
    ],
    ids=lambda fields: str(fields)[:50],
)
def test_runs_are_checked(client, fields) -> None:
    failure = client.fail("run", **fields)
    assert failure.reason == "invalid" and len(str(failure)) <= 1100, failure


def test_failed_runs_leave_the_last_one(client) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    client.fail("run", model="tiny", text=TEXT, edits=[{"edit": "Ablate", "layer": 99}])
    assert client.ask("line", run=number, show="clean", site=0, head=0, query=0)["length"] == 20


@pytest.mark.parametrize("number", [None, 0, -1, 10**9, True, "1", 1.0])
def test_run_numbers_are_checked(client, run, number) -> None:
    assert client.fail("line", run=number, show="clean", site=0, head=0, query=0).reason == "invalid"


def test_older_runs_are_outdated(client) -> None:
    first = client.ask("run", model="tiny", text="one", edits=[])["run"]
    client.ask("run", model="tiny", text="two", edits=[])
    assert client.fail("line", run=first, show="clean", site=0, head=0, query=0).reason == "outdated"


def test_another_client_cannot_read_a_run(client) -> None:
    number = client.ask("run", model="tiny", text="mine", edits=[])["run"]
    failure = PageClient(client.session).fail("line", run=number, show="clean", site=0, head=0, query=0)
    assert failure.reason == "invalid"


@pytest.mark.parametrize(
    "ask",
    [
        {},
        {"ask": "hello"},
        {"id": 1},
        {"ask": "shutdown", "id": 1},
        {"ask": None, "id": 1},
        {"ask": ["run"], "id": 1},
        {"ask": "hello", "id": {}},
        {"ask": "hello", "id": True},
        {"ask": "hello", "id": "x" * 65},
        {"ask": "hello", "id": -1},
        {"ask": "hello", "id": 2**60},
        {"ask": "cancel", "id": 1},
        {"ask": "cancel", "id": 1, "cancel": []},
        {"ask": "select", "id": 1},
        {"ask": "select", "id": 1, "selection": {"site": -1, "head": 0}},
        {"ask": "select", "id": 1, "selection": {"site": 0, "head": 0, "query": "0"}},
        [],
        "hello",
        None,
    ],
    ids=lambda ask: str(ask)[:50],
)
def test_malformed_asks_get_one_failure(client, ask) -> None:
    messages: list[Message] = []
    client.session.handle(ask, messages.append)
    assert [message.head["reason"] for message in messages] == ["invalid"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"hello"',
        '{"ask": "hello", "id": NaN}',
        '{"id": Infinity}',
        '{"id": ' + "9" * 5000 + "}",
        "[" * 100_000,
        b"\xff\xfe{}",
        b'{"ask": "\xc3"}',
        " " * (MAX_ASK_BYTES + 1),
        "가" * (MAX_ASK_BYTES // 3 + 1),
    ],
    ids=lambda text: str(text)[:20],
)
def test_malformed_messages_are_refused(text) -> None:
    with pytest.raises(ArgumentError):
        parse_ask(text)


def test_parse_accepts_asks() -> None:
    assert (
        parse_ask('{"ask": "hello", "id": 3}') == parse_ask(b'{"ask": "hello", "id": 3}') == {"ask": "hello", "id": 3}
    )


def test_unexpected_errors_are_logged_and_not_shown(client, monkeypatch, caplog) -> None:
    from jumok.web.maps import tiles

    def fail(*arguments: object) -> None:
        raise RuntimeError("a secret path")

    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    monkeypatch.setattr(tiles, "read_values", fail)
    with caplog.at_level(logging.ERROR):
        failure = client.fail("line", run=number, show="clean", site=0, head=0, query=1)
    assert failure.reason == "internal" and "secret" not in str(failure)
    assert "a secret path" in caplog.text
    monkeypatch.undo()
    assert client.ask("line", run=number, show="clean", site=0, head=0, query=1)["length"] == 20


def test_frame_is_length_head_and_buffers() -> None:
    frame = build_answer(7, {"text": "주목 \ud800"}, (b"abc", b"", b"\x00\xff")).to_frame()
    length = int.from_bytes(frame[:4], "little")
    head = json.loads(frame[4 : 4 + length])
    assert head == {"answer": 7, "body": {"text": "주목 ?"}, "buffers": [3, 0, 2]}
    assert frame[4 + length :] == b"abc\x00\xff"
    assert Message({"number": float("nan")}).to_frame()[4:] == b'{"number":null}'
