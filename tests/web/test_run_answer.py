"""What a run answers: labels, sites and predictions, compared with the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from page_client import PageClient

import jumok
from jumok.attention import mask as masks
from jumok.lens import Ablate, KnockOut, Patch, Remask, Scale
from jumok.web import opened_model
from jumok.web.session import Session, Start

TEXT = "the cat sat; the cat"


def test_predictions_are_the_softmax_of_the_logits(client) -> None:
    run = client.ask("run", model="tiny", text=TEXT, edits=[])
    loaded = jumok.load("tiny")
    tokens = loaded.tokenizer.encode(TEXT)
    with torch.no_grad():
        shares = loaded.model(torch.tensor([tokens])).logits[0].double().softmax(-1)
    assert [row["position"] for row in run["clean"]] == list(range(20))
    for row, expected in zip(run["clean"], shares, strict=True):
        best = expected.topk(5)
        assert [candidate["id"] for candidate in row["candidates"]] == best.indices.tolist()
        for candidate, share in zip(row["candidates"], best.values.tolist(), strict=True):
            assert candidate["probability"] == pytest.approx(share, abs=1e-6)
    for position, row in enumerate(run["clean"][:-1]):
        follower = tokens[position + 1]
        assert row["actual"]["id"] == follower
        assert row["actual"]["probability"] == pytest.approx(float(shares[position, follower]), abs=1e-6)
    assert run["clean"][-1]["actual"] is None
    assert run["clean"][-1]["candidates"][0]["label"] == "␣"
    assert run["edited"] is None and run["change"] is None


def test_a_slow_run_shows_each_layer_as_soon_as_it_is_computed(client, monkeypatch) -> None:
    text = "one two; one two"
    monkeypatch.setattr(opened_model, "PREVIEW_SECONDS", 0)
    client.previews.clear()
    client.ask("run", model="tiny", text=text, edits=[])
    assert [layer["name"] for layer, _ in client.previews] == ["blocks.0.attention", "blocks.1.attention"]
    with jumok.Lens("tiny") as lens:
        capture = lens.run(text)
    for number, (layer, thumbnails) in enumerate(client.previews):
        assert (layer["heads"], layer["rows"], layer["columns"]) == (2, len(text), len(text))
        weights = torch.stack([capture.weights(number, head) for head in range(2)])
        expected = (255 * weights.double().sqrt()).round().to(torch.uint8)
        assert thumbnails == expected.numpy().tobytes()
    client.previews.clear()
    client.ask("run", model="tiny", text=text, edits=[])  # the pass is kept
    monkeypatch.setattr(opened_model, "PREVIEW_SECONDS", 60)
    client.ask("run", model="tiny", text=f"{text} x", edits=[])
    assert client.previews == []


def test_run_describes_model_and_sites(client) -> None:
    run = client.ask("run", model="tiny", text=TEXT, edits=[])
    assert run["source"] == list(TEXT.replace(" ", "␣")) and run["target"] == []
    assert run["generated"] == 20 and run["text"] == TEXT
    assert run["model"]["parameters"] == jumok.load("tiny").model.parameter_count
    assert (run["model"]["layers"], run["model"]["heads"]) == (2, 4)
    assert run["model"]["is_editable"] and run["model"]["predicts"] == "next token"
    assert [site["layer"] for site in run["sites"]] == [0, 1]
    site = run["sites"][1]
    assert (site["heads"], site["queries"], site["keys"], site["stack_title"]) == (2, 20, 20, "")
    assert site["is_causal"] and site["has_mask"] and site["scale"] == pytest.approx(48**-0.5)


def test_edits_change_the_prediction_by_their_divergence(client) -> None:
    edits = [Ablate(layer=1, head=0), KnockOut(layer=0, head=0, query=(5, 6), key=4), Scale(temperature=0.5)]
    edits.append(Remask(layer=0, head=1))
    run = client.ask("run", model="tiny", text=TEXT, edits=[edit.to_json() for edit in edits])
    with jumok.Lens("tiny") as lens:
        clean = lens.run(TEXT, logits=True).logits[0, -1].double().log_softmax(-1)
        edited = lens.run(TEXT, edits=edits, logits=True).logits[0, -1].double().log_softmax(-1)
    divergence = torch.nn.functional.kl_div(edited, clean, log_target=True, reduction="sum")
    assert run["change"] == pytest.approx(float(divergence), rel=1e-4) and run["change"] > 0.1
    best = edited.exp().topk(5)
    assert [candidate["id"] for candidate in run["edited"][-1]["candidates"]][:5] == best.indices.tolist()
    assert run["edits"] == [edit.to_json() for edit in edits]
    assert not run["sites"][0]["is_causal"] or run["sites"][0]["has_mask"]


@pytest.fixture
def own_model() -> Iterator[tuple[PageClient, Any]]:
    loaded = jumok.load("tiny")
    session = Session(Start(loaded.model, "the cat", tokenizer=loaded.tokenizer))
    yield PageClient(session), loaded.model
    session.close()


def test_both_passes_list_the_candidates_of_each_other(client) -> None:
    run = client.ask("run", model="tiny", text=TEXT, edits=[Ablate(layer=1, head=0).to_json()])
    with jumok.Lens("tiny") as lens:
        clean = lens.run(TEXT, logits=True).logits[0, -1].softmax(-1)
        edited = lens.run(TEXT, edits=[Ablate(layer=1, head=0)], logits=True).logits[0, -1].softmax(-1)
    expected = {int(token) for passed in (clean, edited) for token in passed.topk(5).indices}
    for side, probabilities in (("clean", clean), ("edited", edited)):
        candidates = {entry["id"]: entry["probability"] for entry in run[side][-1]["candidates"]}
        assert set(candidates) == expected and len(expected) > 5
        for token, probability in candidates.items():
            assert probability == pytest.approx(float(probabilities[token]), rel=1e-4)


def test_clean_pass_is_computed_once(own_model) -> None:
    client, model = own_model
    calls: list[str] = []
    model.register_forward_hook(lambda *arguments: calls.append("model"))
    for name, block in model.blocks.named_children():
        block.attention.register_forward_hook(lambda *arguments, name=name: calls.append(name))
    name = client.ask("hello")["model"]
    client.ask("run", model=name, text="once", edits=[])
    assert calls == ["0", "1", "model"]
    calls.clear()
    client.ask("run", model=name, text="once", edits=[Ablate(layer=0, head=0).to_json()])
    assert calls == ["0", "1", "model"]
    calls.clear()
    client.ask("run", model=name, text="once", edits=[Ablate(layer=1, head=1).to_json()])
    assert calls == ["1", "model"]  # the block before the edit is that of the clean pass
    calls.clear()
    client.ask("run", model=name, text="once", edits=[])
    assert calls == []


def test_training_the_model_gives_a_new_clean_pass(own_model) -> None:
    client, model = own_model
    name = client.ask("hello")["model"]
    before = client.ask("run", model=name, text="once", edits=[])
    with torch.no_grad():
        model.embedding.weight.mul_(1.1)
    after = client.ask("run", model=name, text="once", edits=[Ablate(layer=1, head=1).to_json()])
    assert before["clean"] != after["clean"]
    with torch.no_grad():
        shares = model(torch.tensor([list(b"once")])).logits[0, -1].softmax(-1)
    assert after["clean"][-1]["candidates"][0]["probability"] == pytest.approx(float(shares.max()), abs=1e-6)


def test_a_long_text_has_the_predictions_of_its_last_256_positions(client) -> None:
    text = "the cat sat; the dog " * 13  # 273 bytes
    run = client.ask("run", model="tiny", text=text, edits=[])
    assert [row["position"] for row in run["clean"]] == list(range(17, 273))
    with jumok.Lens("tiny") as lens:
        expected = lens.run(text, logits=True).logits[0, 17:].softmax(-1).amax(-1)
    shown = torch.tensor([row["candidates"][0]["probability"] for row in run["clean"]])
    assert torch.allclose(shown, expected, atol=1e-6)


def test_generation_under_edits(client) -> None:
    edits = [Scale(layer=1, temperature=3.0)]
    run = client.ask("run", model="tiny", text=TEXT, edits=[edit.to_json() for edit in edits], generate=6)
    with jumok.Lens("tiny") as lens:
        generation = lens.generate(TEXT, edits=edits, limit=6)
        plain = lens.generate(TEXT, limit=6)
        tokens = [*lens.tokenizer.encode(TEXT), *generation.token_ids]
        edited = lens.run(tokens, edits=edits, logits=True).logits[0, -1].softmax(-1)
    assert generation.token_ids != plain.token_ids
    assert run["generated"] == 20 and len(run["source"]) == 26
    assert [row["actual"]["id"] for row in run["edited"][19:-1]] == generation.token_ids
    assert run["edited"][-1]["candidates"][0]["probability"] == pytest.approx(float(edited.max()), abs=1e-6)


def test_generation_stops_at_the_context(client) -> None:
    run = client.ask("run", model="tiny", text="ab" * 254, edits=[], generate=9)  # the model reads 512 tokens
    assert run["generated"] == 508 and len(run["source"]) == 512
    assert any("512" in note for note in run["notes"])


def test_translator_has_source_and_target(client) -> None:
    run = client.ask("run", model="translator", text="나는 매일 학교에 간다", edits=[])
    assert run["answer"] == "I go to school every day" == jumok.run("translator", "나는 매일 학교에 간다")
    assert run["target"][0] == "<start>" and run["generated"] == 1
    titles = {site["stack_title"]: site for site in run["sites"]}
    assert list(titles) == ["encoder", "decoder", "decoder, cross-attention"]
    cross = titles["decoder, cross-attention"]
    assert (cross["query_sequence"], cross["key_sequence"]) == ("target", "source")
    assert (cross["queries"], cross["keys"]) == (len(run["target"]), len(run["source"]))
    assert [row["actual"]["label"] for row in run["clean"][:-1]] == run["target"][1:]
    assert run["clean"][-1]["candidates"][0]["label"] == "</s>"


def test_text_is_never_opened_as_a_file(client, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "picture.png"):
        (tmp_path / name).write_bytes(b"a secret")
        for text in (name, str(tmp_path / name), "/etc/passwd"):
            run = client.ask("run", model="tiny", text=text, edits=[])
            assert run["source"] == list(text)


def test_switching_models_keeps_two(client) -> None:
    for model in ("tiny", "translator", "tiny"):
        client.ask("run", model=model, text="나는 매일 학교에 간다", edits=[])
    assert set(client.session._opened) == {"tiny", "translator"}
    opened = client.session._opened["tiny"]
    client.ask("run", model="tiny", text="again", edits=[])
    assert client.session._opened["tiny"] is opened


def test_start_edits_may_hold_captures_and_tables(client) -> None:
    loaded = jumok.load("tiny")
    with jumok.Lens(loaded) as lens:
        source = lens.run("the dog sat; the dog", keep="output")
    table = torch.ones(20, 20).tril().bool()
    edits = (Patch(layer=0, head=1, source=source), Remask(layer=1, mask=masks.given(table)))
    session = Session(Start(loaded, TEXT, edits=edits))
    other = PageClient(session)
    hello = other.ask("hello")
    run = other.ask("run", model=hello["model"], text=hello["text"], edits=hello["edits"])
    code = other.ask("code", run=run["run"], selection=None)["code"]
    session.close()
    with jumok.Lens(loaded) as lens:
        expected = lens.run(TEXT, edits=edits, logits=True).logits[0, -1].softmax(-1)
    best = run["edited"][-1]["candidates"][0]
    assert best["probability"] == pytest.approx(float(expected.max()), abs=1e-6)
    assert "Patch(layer=0, head=1, source=source)" in code and "source = ..." in code


def test_numbers_that_are_not_finite_are_null(own_model) -> None:
    client, model = own_model
    with torch.no_grad():
        model.embedding.weight[ord("x")] = torch.nan
    run = client.ask("run", model="GPT", text="the x", edits=[{"edit": "Ablate", "layer": 0, "head": 0}])
    assert run["clean"][-1]["candidates"][0]["probability"] is None and run["change"] is None
    tile = {"run": run["run"], "show": "difference", "site": 0, "head": 0, "level": 0, "row": 0, "column": 0}
    assert client.ask("tiles", **tile)["rows"] == 5
    client.ask("token", run=run["run"], show="clean", sequence="source", position=1)
    client.ask("steps", run=run["run"], show="clean", site=1, head=0, query=4)
