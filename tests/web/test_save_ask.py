"""The ask `save`: the HTML file of a run, with the kinds and effects that the page has asked for."""

from __future__ import annotations

from page_client import PageClient

from jumok.web.session import Session, Start


def test_saved_file_holds_what_was_measured() -> None:
    session = Session(Start("tiny", "the cat sat; the cat"))
    client = PageClient(session)
    run = client.ask("run", model="tiny", text="the cat sat; the cat", edits=[{"edit": "Ablate", "layer": 0}])["run"]
    plain_body, plain = client.ask_bytes("save", run=run)
    client.ask("kinds", run=run)
    client.ask("effect", run=run, over="edges")
    selection = {"site": 1, "head": 0, "query": 19, "key": 4}
    body, content = client.ask_bytes("save", run=run, selection=selection, language="ko")
    assert plain_body == body == {"name": "jumok-tiny.html"}
    assert plain.lower().startswith(b"<!doctype html>") and content.lower().startswith(b"<!doctype html>")
    inspection = session.get_inspection(client.receive)
    assert inspection is not None and inspection.clean.kinds and list(inspection.clean.effects) == ["edges"]
    client.ask("run", model="tiny", text="the cat sat; the cat", edits=[{"edit": "Ablate", "layer": 1}])
    later = session.get_inspection(client.receive)
    assert later is not None and later.clean.kinds == inspection.clean.kinds and later.number != inspection.number
    client.ask("run", model="tiny", text="another text", edits=[])
    assert session.get_inspection(client.receive).clean.kinds is None
    run = client.ask("run", model="tiny", text="the cat sat; the cat", edits=[])["run"]
    assert len(content) > len(plain) + 1000  # kinds and 64 effects
    assert client.fail("save", run=run, selection={"site": 9, "head": 0}).reason == "invalid"
    assert client.fail("save", run=run, language="fr").reason == "invalid"
    session.close()
