"""One HTML file stores what the page shows: exact maps of short inputs, queries and keys of long ones."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from saved_page import SavedPage, list_addresses

import jumok
from jumok.attention import mask as masks
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.lens import Capture, Edit, KnockOut, Lens, Remask, Scale
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.web import saved_maps, saved_vectors
from jumok.web.messages import Selection
from jumok.web.model_pack import explain_missing_engine
from jumok.web.saved_file import save_html
from jumok.web.saved_format import ForbiddenCells, Piece, SavedMask
from jumok.web.saved_maps import Blob, describe_mask
from jumok.web.session import Start

TEXT = "the cat sat"
HOSTILE_TEXT = "</script><!--<script>a"
SELECTION = {"site": 1, "head": 1, "query": 4, "key": 2}
EDITS = (KnockOut(1, head=0, query=10, key=2),)


def build_gpt(length: int, heads: int = 2, positions: str = "learned") -> Loaded:
    torch.manual_seed(3)
    config = GPTConfig(
        vocabulary=256, length=length, width=8 * heads, layers=2, heads=heads, hidden=17, positions=positions
    )
    model = GPT(config).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.projection.joined.weight.mul_(12)  # so that heads attend to some keys more than to others
    return Loaded(model, Tokenizer.for_bytes())


def save(path: Path, *arguments: Any, edits: tuple[Edit, ...] = (), **settings: Any) -> SavedPage:
    start_fields = {name: settings.pop(name) for name in ("selection", "language", "tokenizer") if name in settings}
    written = save_html(path / "page.html", Start(*arguments, edits=edits, **start_fields), **settings)
    assert written == path / "page.html"
    return SavedPage(written.read_bytes())


def capture(model: Any, text: str, edits: tuple[Edit, ...] = ()) -> Capture:
    with Lens(model) as lens:
        return lens.run(text, edits=edits)


@pytest.fixture(scope="module")
def edited_page(tmp_path_factory: pytest.TempPathFactory) -> SavedPage:
    return save(tmp_path_factory.mktemp("edited"), "tiny", TEXT, edits=EDITS)


@pytest.fixture(scope="module")
def clean_page(tmp_path_factory: pytest.TempPathFactory) -> SavedPage:
    return save(tmp_path_factory.mktemp("clean"), "tiny", HOSTILE_TEXT, selection=Selection(**SELECTION), language="ko")


def test_a_short_capture_is_stored_exactly_with_both_sides(edited_page: SavedPage) -> None:
    page = edited_page
    tiny = jumok.load("tiny")
    for show, edits in (("clean", ()), ("edited", EDITS)):
        expected = capture(tiny, TEXT, edits)
        assert len(page.index["maps"][show]) == len(expected.sites.names) == 2
        for site, name in enumerate(expected.sites.names):
            for head in range(expected.heads(name)):
                assert page.index["maps"][show][site][head]["form"] == "float32"
                assert numpy.array_equal(
                    page.compute_map(show, site, head), expected.weights(name, head).float().numpy()
                )
    assert page.compute_map("edited", 1, 0)[10, 2] == 0 < page.compute_map("clean", 1, 0)[10, 2]
    assert page.index["maps"]["edited"][0] == page.index["maps"]["clean"][0], "equal maps are stored once"
    assert page.index["run"]["edits"] == [edit.to_json() for edit in EDITS]
    assert page.index["run"]["clean"] and page.index["run"]["edited"] and page.index["run"]["change"] > 0


def test_the_index_has_what_the_page_asks_for(clean_page: SavedPage) -> None:
    page, index = clean_page, clean_page.index
    assert set(index) == {
        "format", "hello", "run", "image", "audio", "kinds", "effects", "layers", "code", "thumbnails", "maps",
        "vectors",
    }  # fmt: skip
    assert index["format"] == 2 and index["image"] is None and index["effects"] == []
    assert index["hello"]["carrier"] == "file" and index["hello"]["selection"] == SELECTION
    assert index["hello"]["language"] == "ko" and index["hello"]["text"] == HOSTILE_TEXT
    assert {"token", "steps", "kinds"} <= set(index["hello"]["can"])
    assert not {"run", "effect", "save"} & set(index["hello"]["can"])
    assert index["maps"]["edited"] is index["thumbnails"]["edited"] is index["vectors"]["edited"] is None
    assert len(index["kinds"]["heads"]) == 4
    for thumbnail in index["thumbnails"]["clean"]:
        assert len(page.read(thumbnail)) == thumbnail["heads"] * thumbnail["rows"] * thumbnail["columns"]
    exec(compile(index["code"], "code", "exec"), {})


def test_the_vectors_of_the_computation_are_stored(edited_page: SavedPage) -> None:
    page = edited_page
    attention = page.index["vectors"]["edited"][1]
    assert attention["form"] == "float32"
    assert set(attention["sentences"]) == {"en", "ko"} and set(attention["sentences"]["ko"]) >= {"query", "softmax"}
    head = attention["heads"][0]
    width = head["width"]
    query, key, value = (page.read_floats(head[name]).reshape(11, -1) for name in ("query", "key", "value"))
    assert head["score"]["text"] == f"/ sqrt({width})" and head["bias"] is head["allowed"] is None
    allowed = numpy.tri(11, dtype=bool)
    allowed[10, 2] = False  # the edge that EDITS cut
    assert head["mask"] == {"behind": None, "ahead": 0, "forbidden": [{"queries": [10], "keys": [2]}]}
    scores = numpy.where(allowed, query @ key.T * head["score"]["scale"], -numpy.inf)
    weights = numpy.exp(scores) / numpy.exp(scores).sum(-1, keepdims=True)
    assert numpy.allclose(weights, page.compute_map("edited", 1, 0), atol=1e-6)
    with Lens("tiny") as lens:
        recorded = lens.run(TEXT, edits=EDITS, keep="output").activations["blocks.1.attention.output"][0, 0]
    difference = page.read_floats(head["difference"])
    assert numpy.abs(weights @ value - recorded.numpy()).max(-1) == pytest.approx(difference, abs=1e-6)


def test_vectors_of_a_longer_text_are_rounded_and_the_file_says_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_vectors, "MAX_EXACT_BYTES", 1000)
    page = save(tmp_path, build_gpt(64), TEXT)
    head = page.index["vectors"]["clean"][1]["heads"][0]
    assert page.index["vectors"]["clean"][1]["form"] == "float16"
    query, key = (numpy.frombuffer(page.read(head[name]), "<f2").reshape(11, 8) for name in ("query", "key"))
    expected = capture(build_gpt(64), TEXT).attentions["blocks.1.attention"].calls[0]
    assert numpy.array_equal(query, expected.query[0, 0].half().numpy())
    scores = numpy.where(numpy.tri(11, dtype=bool), query.astype(float) @ key.T.astype(float) / 8**0.5, -numpy.inf)
    weights = numpy.exp(scores) / numpy.exp(scores).sum(-1, keepdims=True)
    difference = numpy.abs(weights - page.compute_map("clean", 1, 0)).max()
    (note,) = page.index["run"]["notes"]
    stated = float(note.rpartition(" ")[2])
    assert "as 16-bit numbers" in note and 0 < difference <= 1.1 * stated < 0.01


def test_vectors_that_do_not_fit_are_those_of_the_chosen_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_vectors, "MAX_BYTES", 3 * 2 * 8 * 11 * 4 + 100)
    page = save(tmp_path, build_gpt(64), TEXT, layer=1)
    assert page.index["vectors"]["clean"][0] is None and page.index["vectors"]["clean"][1] is not None
    assert any("vectors of 1 of 2 attentions" in note for note in page.index["run"]["notes"])


def test_more_weights_are_rounded_and_the_file_says_so(tmp_path: Path) -> None:
    model, text = build_gpt(1024), "abc " * 200
    page = save(tmp_path, model, text)
    assert page.index["maps"]["clean"][0][0]["form"] == "u8"
    expected = capture(model, text).weights(1, 1).numpy()
    assert numpy.abs(numpy.sqrt(page.compute_map("clean", 1, 1)) - numpy.sqrt(expected)).max() <= 0.5 / 255 + 1e-6
    assert any("rounded to 256 steps" in note for note in page.index["run"]["notes"])
    assert "steps" in page.index["hello"]["can"], "the computation does not read the map"


LONG_EDITS: dict[str, tuple[Edit, ...]] = {
    "edges": (KnockOut(1, head=0, query=(40, 41), key=(3, 7)), KnockOut(1, key=5)),
    "temperature": (Scale(1, head=0, temperature=2.0),),
    "window": (Remask(1, mask=masks.causal & masks.window(9)),),
    "no mask": (Remask(1),),
    "an empty row": (KnockOut(1, head=0, query=11),),
}


@pytest.mark.parametrize("name", LONG_EDITS)
def test_long_captures_store_queries_and_keys(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_maps, "MAX_EXACT_BYTES", 1000)
    monkeypatch.setattr(saved_maps, "MAX_ROUNDED_BYTES", 1000)
    model, text, edits = build_gpt(512), "abcdefg. " * 10, LONG_EDITS[name]
    page = save(tmp_path, model, text, edits=edits)
    for show, applied in (("clean", ()), ("edited", edits)):
        expected = capture(model, text, applied)
        for site, layer in enumerate(expected.sites.names):
            for head in range(2):
                assert page.index["maps"][show][site][head]["form"] == "qk"
                weights = expected.weights(layer, head).numpy()
                assert numpy.abs(page.compute_map(show, site, head) - weights).max() < 2e-6
    assert "token" in page.index["hello"]["can"], "all maps can be computed"


def test_masks_that_the_page_cannot_evaluate_are_pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_maps, "MAX_EXACT_BYTES", 1000)
    monkeypatch.setattr(saved_maps, "MAX_ROUNDED_BYTES", 1000)
    monkeypatch.setattr(saved_maps, "MAX_POOLED_CELLS", 32)
    text = "abcdefg. " * 10
    page = save(tmp_path, build_gpt(512, positions="alibi"), text)
    stored = page.index["maps"]["clean"][0][0]
    assert stored["form"] == "u8 pooled" and stored["level"] == 2
    expected = capture(build_gpt(512, positions="alibi"), text).weights(0, 0).numpy()
    cells = page.compute_map("clean", 0, 0)
    assert cells[3, 2] == pytest.approx(expected[12:16, 8:12].max(), abs=0.01)
    assert any("the largest weights of cells" in note for note in page.index["run"]["notes"])
    assert "token" not in page.index["hello"]["can"]


@pytest.mark.slow
def test_a_text_whose_maps_do_not_fit_stores_the_chosen_head_first(tmp_path: Path) -> None:
    model, text = build_gpt(4400, heads=4), "abc " * 1075
    page = save(tmp_path, model, text, layer=1, head=2, max_bytes=1_000_000)
    stored = [
        (site, head)
        for site, heads in enumerate(page.index["maps"]["clean"])
        for head, saved in enumerate(heads)
        if saved is not None
    ]
    assert (1, 2) in stored and 1 <= len(stored) < 8
    expected = capture(model, text)
    rows = slice(4000, 4050)
    weights = expected.tile(1, 2, rows, slice(None)).numpy()
    assert numpy.abs(page.compute_map("clean", 1, 2)[rows] - weights).max() < 1e-5
    assert len(page.index["thumbnails"]["clean"]) == 2, "thumbnails of all heads"
    assert any(f"stores {len(stored)} of 8 maps" in note for note in page.index["run"]["notes"])
    assert page.index["kinds"] is None and page.index["hello"]["selection"]["site"] == 1


def test_the_stacks_of_an_encoder_decoder_are_stored(tmp_path: Path) -> None:
    page = save(tmp_path, "translator", "나는 학생입니다")
    sites = page.index["run"]["sites"]
    assert {site["stack_title"] for site in sites} == {"encoder", "decoder", "decoder, cross-attention"}
    for site, described in enumerate(sites):
        assert page.compute_map("clean", site, 0).shape == (described["queries"], described["keys"])
        assert numpy.allclose(page.compute_map("clean", site, 0).sum(-1), 1, atol=1e-5)


def test_the_policy_allows_exactly_the_bundle(clean_page: SavedPage) -> None:
    page = clean_page
    (policy,) = [
        str(attributes["content"])
        for tag, attributes, _ in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert directives["default-src"] == "'none'" and directives["img-src"] == "blob: data:"
    (script,), (style,) = page.list_texts("script", type="module"), page.list_texts("style")
    assert directives["script-src"] == f"'{hash_source(script)}'"
    assert directives["style-src"] == f"'{hash_source(style)}'"
    assert page.index["hello"]["text"] == HOSTILE_TEXT
    assert len(page.list_texts("script")) == 3, "nothing in the text ends a script"


def hash_source(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()


def test_the_file_loads_nothing(clean_page: SavedPage) -> None:
    page = clean_page
    markup = re.sub(r"(?s)(<script[^>]*>).*?(</script>)", r"\1\2", page.text)
    assert [
        address for address in list_addresses(markup) if not re.search(r"(url\(|=\s*[\"'])\s*(data:|#)", address)
    ] == []
    (script,) = page.list_texts("script", type="module")
    assert not re.search(r"\bimport\s*[\"'{*]|\bfrom\s*[\"']https?:", script)
    assert [tag for tag, _, _ in page.elements if tag in ("link", "img", "iframe", "object", "embed", "base")] == []


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is not a folder"):
        save_html(tmp_path / "missing" / "page.html", Start("tiny", TEXT))
    with pytest.raises(ArgumentError, match="has 2 heads, counted from 0; 7 is not one of them"):
        save_html(tmp_path / "page.html", Start("tiny", TEXT), layer=1, head=7)
    with pytest.raises(ArgumentError, match="layer 9 does not exist"):
        save_html(tmp_path / "page.html", Start("tiny", TEXT), layer=9)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_reported_and_can_stop_the_work(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    save(tmp_path, "tiny", "ab", progress=lambda done, total: calls.append((done, total)))
    assert (0, 4) in calls

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, "tiny", TEXT, progress=stop)


def test_files_are_reproducible(tmp_path: Path) -> None:
    def read(name: str) -> dict[str, Any]:
        page = SavedPage(save_html(tmp_path / name, Start("tiny", "ab")).read_bytes())
        page.index["run"]["seconds"] = 0
        return {**page.index, "blob": page.blob}

    assert read("first.html") == read("second.html")


def test_blobs_align_and_share_pieces() -> None:
    blob = Blob()
    first, second, again = blob.add(b"abcde"), blob.add_floats(numpy.arange(3.0)), blob.add(b"abcde")
    assert first == again == Piece(0, 5) and second == Piece(8, 12)
    assert blob.join()[:5] == b"abcde" and len(blob.join()) == blob.size == 20


def test_masks_are_described_for_each_head() -> None:
    mask = masks.causal & ~masks.edge(query=5, key=2, head=1)
    assert describe_mask(mask, 0) == SavedMask(ahead=0)
    assert describe_mask(mask, 1) == SavedMask(ahead=0, forbidden=[ForbiddenCells([5], [2])])
    assert describe_mask(masks.causal | masks.prefix(3), 0) is None
    assert describe_mask(~masks.causal, 0) is describe_mask(masks.causal & masks.prefix(3), 0) is None


def test_measured_effects_are_stored_beside_an_edited_run(tmp_path: Path) -> None:
    page = save(tmp_path, "tiny", TEXT, edits=EDITS, effects=True)
    stored = {effects["over"]: effects for effects in page.index["effects"]}
    assert set(stored) == {"heads", "edges"} and "effect" in page.index["hello"]["can"]
    measured = {(int(row.layer), row.head): row.effect for row in jumok.effect("tiny", TEXT)}
    assert {(row["site"], row["head"]): row["effect"] for row in stored["heads"]["rows"]} == pytest.approx(measured)
    assert page.index["run"]["edited"]


def test_a_model_that_no_page_can_compute_is_refused_by_a_sentence(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = Tokenizer.for_bytes()
    large = GPT(GPTConfig(vocabulary=256, length=16, width=512, layers=5, heads=8, hidden=2048))
    bert = BERT(BERTConfig(vocabulary=256, length=16, width=16, layers=1, heads=2, hidden=16))
    sentences = {
        "at most 20 MB of parameters, but this model has 32 MB": Loaded(large, tokenizer),
        "families gpt and transformer, but this one is bert": Loaded(bert, tokenizer),
    }
    for sentence, loaded in sentences.items():
        with pytest.raises(ArgumentError, match=f"{sentence}.*leave out --live"):
            save_html(tmp_path / "page.html", Start(loaded, TEXT), live=True)
    assert not list(tmp_path.iterdir())
    assert explain_missing_engine(jumok.load("tiny")) is None
