"""The page as a widget, in a real kernel: messages, a busy kernel, edits and selection from Python."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from kernel_client import Kernel
from saved_page import SavedPage

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Ablate, KnockOut, Lens, Patch
from jumok.web.widget import PageWidget, Selection

TEXT = "the cat sat; the cat"
pytestmark = pytest.mark.xdist_group("kernel")  # one kernel for all tests
EDIT = {"edit": "KnockOut", "layer": 1, "head": 0, "query": 19, "key": 4}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    running = Kernel()
    yield running
    running.close()


@pytest.fixture(scope="module")
def comm_id(kernel: Kernel) -> str:
    """The comm of a widget that the kernel has opened."""
    kernel.run(f"import jumok\npage = jumok.show('tiny', {TEXT!r}, height=500)")
    (opened,) = [name for name, state in kernel.comms.items() if state.get("_model_name") == "AnyModel"]
    kernel.ask(opened, 0, "hello")  # the first ask of every page
    return opened


def test_the_widget_brings_the_bundle(kernel: Kernel, comm_id: str) -> None:
    state = kernel.comms[comm_id]
    assert "export{" in state["_esm"].replace(" ", "") and ".jumok" in state["_css"]
    assert state["height"] == 500


def test_messages_travel_with_their_buffers(kernel: Kernel, comm_id: str) -> None:
    body, _ = kernel.ask(comm_id, 1, "hello")
    assert body["carrier"] == "widget" and body["text"] == TEXT
    run, _ = kernel.ask(comm_id, 2, "run", model=body["model"], text=TEXT, edits=[])
    assert run["source"][:3] == ["t", "h", "e"]
    fields = {"run": run["run"], "show": "clean", "site": 1, "head": 0}
    _, (content,) = kernel.ask(comm_id, 3, "values", rows=[10, 15], columns=[0, 20], **fields)
    with Lens("tiny") as lens:
        expected = lens.run(TEXT).tile(1, 0, slice(10, 15), slice(0, 20)).numpy()
    assert numpy.array_equal(numpy.frombuffer(content, "<f4").reshape(5, 20), expected)


def test_edits_and_selection_can_be_read_and_set(kernel: Kernel, comm_id: str) -> None:
    kernel.ask(comm_id, 10, "run", model="tiny", text=TEXT, edits=[EDIT])
    kernel.ask(comm_id, 11, "select", selection={"site": 1, "head": 0, "query": 19, "key": 4})
    printed = kernel.run("print(page.edits); print(page.selection); print(float(page.capture.weights(1, 0)[19, 4]))")
    assert "KnockOut(layer=1, head=0, query=19, key=4" in printed
    assert "Selection(site=1, head=0, query=19, key=4)" in printed
    assert printed.endswith("0.0"), "the edited capture"

    kernel.received.clear()
    kernel.run("page.edits = jumok.Ablate(0, 1)\npage.selection = (0, 1)")
    kernel.wait(lambda: len([head for head, _ in kernel.received if "state" in head]) == 2)
    states = [head["state"] for head, _ in kernel.received if "state" in head]
    assert states[0]["edits"][0]["edit"] == "Ablate" and states[0]["edits"][0]["head"] == 1
    assert states[1]["selection"] == {"site": 0, "head": 1, "query": None, "key": None}
    hello, _ = kernel.ask(comm_id, 12, "hello")
    assert hello["edits"] == states[0]["edits"], "a view that opens later begins with them"
    assert "Selection(site=0, head=1, query=None, key=None)" in kernel.run("print(page.selection)")


def test_a_busy_kernel_answers_in_another_thread(kernel: Kernel, comm_id: str, tmp_path: Path) -> None:
    kernel.ask(comm_id, 20, "run", model="tiny", text=TEXT, edits=[])
    subshell = kernel.create_subshell()
    release = tmp_path / "release"
    cell = kernel.begin(f"import os, time\nwhile not os.path.exists({str(release)!r}): time.sleep(0.01)")
    # a message to the main thread waits for the cell, whatever its reply is
    kernel.send(comm_id, {"ask": "select", "id": 21, "selection": {"site": 1, "head": 1}})
    body, _ = kernel.ask(comm_id, 22, "run", subshell, model="tiny", text="another text", edits=[EDIT | {"query": 11}])
    assert body["text"] == "another text"
    line, (content,) = kernel.ask(
        comm_id, 23, "line", subshell, run=body["run"], show="edited", site=1, head=0, query=11
    )
    assert len(numpy.frombuffer(content, "<f4")) == line["length"] == 12
    assert cell not in kernel.replies and kernel.find_answer(21) is None, "the cell is still running"
    release.touch()
    kernel.wait(lambda: cell in kernel.replies and kernel.find_answer(21) is not None)


def test_a_run_is_cancelled_while_a_cell_runs(kernel: Kernel, comm_id: str, tmp_path: Path) -> None:
    subshell = kernel.create_subshell()
    release = tmp_path / "release"
    cell = kernel.begin(f"while not os.path.exists({str(release)!r}): time.sleep(0.01)")
    kernel.send(comm_id, {"ask": "run", "id": 31, "model": "tiny", "text": "abcd " * 50, "edits": []}, subshell)
    kernel.send(comm_id, {"ask": "run", "id": 32, "model": "tiny", "text": "efgh " * 50, "edits": []}, subshell)
    kernel.send(comm_id, {"ask": "cancel", "id": 33, "cancel": 32}, subshell)
    kernel.wait(lambda: all(kernel.find_answer(ask_id) is not None for ask_id in (31, 32, 33)))
    assert cell not in kernel.replies
    reasons = {head["failed"]: head["reason"] for head, _ in kernel.received if "failed" in head}
    assert reasons.get(32) == "cancelled"
    release.touch()
    kernel.wait(lambda: cell in kernel.replies)


def test_a_saved_file_has_what_the_page_has_shown(kernel: Kernel, comm_id: str, tmp_path: Path) -> None:
    run, _ = kernel.ask(comm_id, 40, "run", model="tiny", text=TEXT, edits=[EDIT])
    kinds, _ = kernel.ask(comm_id, 41, "kinds", run=run["run"])
    effects, _ = kernel.ask(comm_id, 42, "effect", run=run["run"], over="heads")
    path = tmp_path / "page.html"
    assert kernel.run(f"print(page.save({str(path)!r}))") == str(path)
    page = SavedPage(path.read_bytes())
    assert page.compute_map("edited", 1, 0)[19, 4] == 0 < page.compute_map("clean", 1, 0)[19, 4]
    assert page.index["kinds"] == kinds and page.index["effects"] == [effects]
    assert {"kinds", "effect"} <= set(page.index["hello"]["can"])
    assert kernel.run(f"print(page.save({str(path)!r}, live=True))") == str(path)
    live = SavedPage(path.read_bytes()).index
    assert live["carrier"] == "live" and live["text"] == TEXT and live["edits"] == run["edits"]
    assert kernel.run(f"print(page.save({str(path)!r}, effects=True))") == str(path)
    measured = SavedPage(path.read_bytes()).index
    assert {row["over"] for row in measured["effects"]} == {"heads", "edges"} and measured["run"]["edited"]


def test_closing_ends_the_threads(kernel: Kernel, comm_id: str) -> None:
    listing = "import threading; print(sorted(t.name for t in threading.enumerate() if 'jumok' in t.name))"
    kernel.ask(comm_id, 50, "run", model="tiny", text=TEXT, edits=[])
    assert "jumok-page-runs" in kernel.run(listing)
    kernel.run("page.close()")
    assert kernel.run(listing) == "[]"


def test_own_models_and_edits_are_shown() -> None:
    tiny = jumok.load("tiny")
    page = jumok.show(tiny, TEXT, edits=[Ablate(1, 0)], selection=(1, 0, 5))
    assert isinstance(page, PageWidget) and page.edits == (Ablate(1, 0),)
    assert page.selection == Selection(1, 0, 5, None) and page.capture is None
    page.edits = []
    assert page.edits == ()
    page.close()


def test_mistakes_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="language must be one of en, ko"):
        jumok.show("tiny", TEXT, language="fr")
    with pytest.raises(ArgumentError, match=r"a selection is \(site, head\)"):
        jumok.show("tiny", TEXT, selection=(1,))
    with Lens("tiny") as lens:
        source = lens.run(TEXT, keep="output")
    with pytest.raises(ArgumentError, match="cannot show Patch with another capture"):
        jumok.show("tiny", TEXT, edits=[KnockOut(0, query=3, key=1), Patch(0, source=source)])
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ArgumentError, match=re.escape('pip install "jumok[notebook]"')):
        jumok.show("tiny", TEXT)
