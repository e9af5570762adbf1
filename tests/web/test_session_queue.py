"""The queues of a session: cancelling, replacing, refusing, answering maps during a long run, and ending cleanly."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from page_client import FailedAskError, PageClient

from jumok import tap
from jumok.lens.lens import Lens
from jumok.web import session as session_module
from jumok.web.inspection import Inspection
from jumok.web.messages import Run, Selection
from jumok.web.session import Session, Start

TEXT = "the cat sat; the cat"


@pytest.fixture
def client() -> Iterator[PageClient]:
    session = Session(Start("tiny", TEXT))
    yield PageClient(session)
    session.close()


class HeldModel:
    """Holds a forward pass at its first attention until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_inside, self.may_go_on = threading.Event(), threading.Event()
        self.sites: list[str] = []
        forward = Lens._forward

        def hold(site: str, tapped: object) -> object:
            self.sites.append(site)
            self.is_inside.set()
            assert self.may_go_on.wait(60)
            return tapped

        def run_held(*arguments: object, **settings: object) -> object:
            with tap.listen(hold):
                return forward(*arguments, **settings)

        monkeypatch.setattr(Lens, "_forward", run_held)


def list_page_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("jumok-page")]


def test_maps_are_answered_during_a_run(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    held = HeldModel(monkeypatch)
    other = PageClient(client.session)
    running = other.begin("run", model="tiny", text="another text", edits=[])
    assert held.is_inside.wait(60)
    tile = {"run": number, "show": "clean", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0}
    assert client.ask("tiles", **tile)["rows"] == 20
    assert client.ask("line", run=number, show="clean", site=0, head=0, query=3)["length"] == 20
    held.may_go_on.set()
    assert other.wait(running)[0]["text"] == "another text"


def test_cancel_stops_a_run_inside_the_model(client, monkeypatch) -> None:
    held = HeldModel(monkeypatch)
    running = client.begin("run", model="tiny", text=TEXT, edits=[])
    assert held.is_inside.wait(60)
    assert client.ask("cancel", cancel=running) == {}
    held.may_go_on.set()
    with pytest.raises(FailedAskError) as failure:
        client.wait(running)
    assert failure.value.reason == "cancelled"
    assert held.sites and not any(site.startswith("blocks.1") for site in held.sites)  # it ended in the first block
    assert not tap.has_listeners() and tap._open_count == 0
    assert client.ask("run", model="tiny", text=TEXT, edits=[])["text"] == TEXT


def test_cancel_stops_an_effect(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    held = HeldModel(monkeypatch)
    running = client.begin("effect", run=number, over="edges")
    assert held.is_inside.wait(60)
    client.ask("cancel", cancel=running)
    held.may_go_on.set()
    with pytest.raises(FailedAskError) as failure:
        client.wait(running)
    assert failure.value.reason == "cancelled" and tap._open_count == 0


def test_cancel_removes_a_waiting_ask(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    held = HeldModel(monkeypatch)
    running = client.begin("kinds", run=number)
    assert held.is_inside.wait(60)
    waiting = client.begin("effect", run=number, over="heads")
    client.ask("cancel", cancel=waiting)
    with pytest.raises(FailedAskError) as failure:
        client.wait(waiting)  # while the other one still runs
    assert failure.value.reason == "cancelled"
    held.may_go_on.set()
    assert len(client.wait(running)[0]["heads"]) == 4


def test_clients_cannot_cancel_each_other(client, monkeypatch) -> None:
    held = HeldModel(monkeypatch)
    running = client.begin("run", model="tiny", text=TEXT, edits=[])
    assert held.is_inside.wait(60)
    PageClient(client.session).ask("cancel", cancel=running)
    held.may_go_on.set()
    assert client.wait(running)[0]["text"] == TEXT


def test_newer_run_replaces_the_running_and_waiting_ones(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    held = HeldModel(monkeypatch)
    running = client.begin("run", model="tiny", text="first", edits=[])
    assert held.is_inside.wait(60)
    replaced = [client.begin("run", model="tiny", text=f"text {index}", edits=[]) for index in range(9)]
    newest = client.begin("run", model="tiny", text="newest", edits=[])
    held.may_go_on.set()
    for ask_id in (running, *replaced):
        with pytest.raises(FailedAskError) as failure:
            client.wait(ask_id)
        assert failure.value.reason == "outdated"
    assert client.wait(newest)[0]["text"] == "newest"
    assert client.fail("kinds", run=number).reason == "outdated"


def test_replaced_run_leaves_the_one_that_the_client_knows(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    is_finished, may_go_on = threading.Event(), threading.Event()
    describe = Inspection.describe

    def write_slowly(inspection: Inspection) -> Run:
        is_finished.set()
        assert may_go_on.wait(60)
        return describe(inspection)

    monkeypatch.setattr(Inspection, "describe", write_slowly)
    replaced = client.begin("run", model="tiny", text="replaced", edits=[])
    assert is_finished.wait(60)
    invalid = client.begin("run", model="tiny", text="", edits=[])
    may_go_on.set()
    for ask_id, reason in ((replaced, "outdated"), (invalid, "invalid")):
        with pytest.raises(FailedAskError) as failure:
            client.wait(ask_id)
        assert failure.value.reason == reason
    assert client.ask("line", run=number, show="clean", site=0, head=0, query=0)["length"] == 20


def test_newer_run_stops_the_effect_of_an_older_one(client, monkeypatch) -> None:
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    held = HeldModel(monkeypatch)
    effect = client.begin("effect", run=number, over="heads")
    assert held.is_inside.wait(60)
    newest = client.begin("run", model="tiny", text="newest", edits=[])
    held.may_go_on.set()
    with pytest.raises(FailedAskError) as failure:
        client.wait(effect)
    assert failure.value.reason == "outdated"
    assert client.wait(newest)[0]["text"] == "newest"


def test_too_many_asks_are_refused_as_busy(client, monkeypatch) -> None:
    held = HeldModel(monkeypatch)
    running = client.begin("run", model="tiny", text=TEXT, edits=[])
    assert held.is_inside.wait(60)
    clients = [PageClient(client.session) for _ in range(session_module.MAX_RUN_ASKS + 1)]
    asks = [other.begin("run", model="tiny", text=TEXT, edits=[]) for other in clients]
    with pytest.raises(FailedAskError) as failure:
        clients[-1].wait(asks[-1])
    assert failure.value.reason == "busy" and "busy" in str(failure.value)
    held.may_go_on.set()
    for waiting, ask_id in [(client, running), *zip(clients[:-1], asks[:-1], strict=True)]:
        assert waiting.wait(ask_id)[0]["text"] == TEXT


def test_forgotten_client_receives_nothing(client, monkeypatch) -> None:
    held = HeldModel(monkeypatch)
    client.begin("run", model="tiny", text=TEXT, edits=[])
    assert held.is_inside.wait(60)
    client.begin("run", model="tiny", text=TEXT, edits=[])
    client.session.forget(client.receive)
    held.may_go_on.set()
    other = PageClient(client.session)
    assert other.ask("run", model="tiny", text="other", edits=[])["text"] == "other"
    assert len(client.session._inspections) == 1


def test_failing_connection_is_forgotten(client) -> None:
    def fail(message: object) -> None:
        raise ConnectionError("gone")

    client.session.handle({"ask": "hello", "id": 1}, fail)
    client.session.handle({"ask": "run", "id": 2, "model": "tiny", "text": TEXT, "edits": []}, fail)
    assert client.ask("run", model="tiny", text=TEXT, edits=[])["text"] == TEXT
    assert fail not in client.session._clients


def test_hello_needs_no_torch_and_no_thread() -> None:
    program = (
        "import sys, threading\n"
        "from jumok.web.session import Session, Start\n"
        "answers = []\n"
        "session = Session(Start('tiny', 'the cat'))\n"
        "session.handle({'ask': 'hello', 'id': 1, 'language': 'ko'}, answers.append)\n"
        "session.handle({'ask': 'select', 'id': 2, 'selection': {'site': 0, 'head': 0}}, answers.append)\n"
        "assert [message.head['answer'] for message in answers] == [1, 2]\n"
        "assert threading.active_count() == 1\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)\n"
        "session.close()\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_state_travels_both_ways(client) -> None:
    from jumok.lens import Ablate

    changes: list[dict] = []
    client.session.watch(changes.append)
    hello = client.ask("hello")
    assert hello["edits"] == [] and hello["text"] == TEXT
    client.session.push(edits=(Ablate(layer=0, head=1),), selection=Selection(1, 0))
    client.ask("select", selection={"site": 0, "head": 1, "query": 3, "key": 2})
    client.ask("run", model="tiny", text="typed", edits=[Ablate(layer=1).to_json()])
    edit = Ablate(layer=0, head=1).to_json()
    assert client.states == [{"edits": [edit], "selection": {"site": 1, "head": 0, "query": None, "key": None}}]
    assert client.ask("hello")["edits"] == [edit]
    assert changes == [
        {"selection": Selection(0, 1, 3, 2)},
        {"edits": [Ablate(layer=1).to_json()], "text": "typed"},
    ]


def test_close_waits_until_the_model_has_stopped(monkeypatch) -> None:
    held = HeldModel(monkeypatch)
    session = Session(Start("tiny", TEXT))
    PageClient(session).begin("run", model="tiny", text=TEXT, edits=[])
    assert held.is_inside.wait(60)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive() and list_page_threads() == ["jumok-page-runs"]
    held.may_go_on.set()
    closing.join(60)
    assert list_page_threads() == [] and tap._open_count == 0
    assert not any(site.startswith("blocks.1") for site in held.sites)


def test_sessions_leave_nothing_behind() -> None:
    import jumok

    loaded = jumok.load("tiny")
    before = list_page_threads()
    for number in range(30):
        session = Session(Start(loaded, TEXT))
        client = PageClient(session)
        run = client.ask("run", model="GPT", text=TEXT, edits=[{"edit": "Ablate", "layer": 0, "head": 0}])["run"]
        client.ask("line", run=run, show="edited", site=0, head=0, query=number % 20)
        client.begin("kinds", run=run)
        session.close()
    assert list_page_threads() == before
    assert tap._open_count == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loaded.model.modules())


def test_a_thousand_sessions_that_only_say_hello() -> None:
    for _ in range(1000):
        session = Session(Start("tiny", TEXT))
        PageClient(session).ask("hello")
        session.close()
    assert list_page_threads() == []
