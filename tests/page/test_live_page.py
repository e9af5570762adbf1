"""A file with a model computes by itself: opened from disk, without a network, it answers what Python answers."""

from __future__ import annotations

import contextlib
import io
import json
import queue
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from page_driver import ShownPage
from playwright.sync_api import Browser

import jumok
from jumok.attention.mask import causal, window
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.lens import Ablate, Edit, KnockOut, Remask, Scale
from jumok.models.gpt import GPT, GPTConfig
from jumok.web.messages import encode_json
from jumok.web.saved_file import save_html
from jumok.web.session import Session, Start

pytestmark = pytest.mark.xdist_group("page")

TEXT = "the cat sat; the cat"
KOREAN = "나는 매일 학교에 간다"
MODEL, EARLIER = "runs/mine", "runs/earlier"
TOLERANCE = 2e-4  # of what is computed in float32 in another order; probabilities and weights differ less

# asks the session of the file, and returns the heads of its answers with their buffers as lists of numbers
ASK = """async ([asks, hello]) => {
  const { models } = JSON.parse(document.getElementById("jumok-index").textContent);
  const client = jumok.openLiveClient(document.getElementById("jumok-blob").textContent.trim(), { ...hello, models });
  const answers = [];
  for (const { ask, ...fields } of asks) {
    if (fields.contrast === "last") fields.contrast = answers.findLast(({ body }) => body?.contrast).body.contrast;
    answers.push(await client.ask(ask, fields).then(
      ({ body, buffers }) => ({ body, buffers: buffers.map((buffer) => Array.from(buffer)) }),
      ({ message, reason }) => ({ failed: message, reason })));
  }
  return answers;
}"""


def save_gpt(folder: Path, positions: str = "rotary") -> Path:
    """Write an untrained GPT, as a user's own run, whose parameters are 16-bit numbers."""
    torch.manual_seed(5)
    config = GPTConfig(
        vocabulary=256, length=96, width=24, layers=2, heads=4, groups=2, hidden=32, positions=positions, norm="rms"
    )
    model = GPT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((4 * parameter).half())  # heads that attend to some keys more than to others
    return jumok.save(model, folder, tokenizer=jumok.load("tiny").require_tokenizer())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of the user's own."""
    created = tmp_path_factory.mktemp("live")
    save_gpt(created / MODEL)
    save_gpt(created / EARLIER, "alibi")
    return created


@pytest.fixture(scope="module")
def live_pages(browser: Browser, folder: Path) -> Iterator[dict[str, ShownPage]]:
    """Two files with models, opened from disk: the runs, and the translator in Korean."""
    with contextlib.chdir(folder):
        paths = {
            "gpt": save_html(folder / "gpt.html", Start(MODEL, TEXT), live=True, second=EARLIER),
            "translator": save_html(folder / "translator.html", Start("translator", KOREAN, language="ko"), live=True),
        }
    pages = {}
    for name, path in paths.items():
        pages[name] = ShownPage(browser, offline=True)
        pages[name].open(path.as_uri())
    yield pages
    for shown in pages.values():
        shown.close()


@pytest.fixture(autouse=True)
def work_beside_the_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the session of Python lists ./runs


def ask_python(model: str, asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers of the Python session."""
    received: queue.Queue[Any] = queue.Queue()
    session = Session(Start(model, "", language="ko" if model == "translator" else "en"))
    answers = []

    def send(message: Any) -> None:
        received.put(message)

    for number, fields in enumerate(asks):
        if fields.get("contrast") == "last":
            contrasts = [answer["body"] for answer in answers if "contrast" in answer.get("body", {})]
            fields = {**fields, "contrast": contrasts[-1]["contrast"]}
        session.handle({**fields, "id": number}, send)
        while "progress" in (message := received.get(timeout=60)).head:
            pass
        head = json.loads(encode_json(message.head))
        answers.append(
            {"failed": head["message"], "reason": head["reason"]}
            if "failed" in head
            else {"body": head["body"], "buffers": [list(buffer) for buffer in message.buffers]}
        )
    session.close()
    return answers


def list_differences(live: Any, python: Any, path: str = "") -> list[str]:
    """Return where two answers differ; times and names of models are no part of an answer."""
    if path.endswith((".seconds", ".model.name", ".model.family", ".contrast", "contrast.model")):
        return []
    if isinstance(python, dict) and isinstance(live, dict):
        missing = [f"{path}: {python.keys() ^ live.keys()}"] if python.keys() != live.keys() else []
        return missing + [
            difference for name in python.keys() & live.keys()
            for difference in list_differences(live[name], python[name], f"{path}.{name}")
        ]  # fmt: skip
    if isinstance(python, list) and isinstance(live, list):
        if len(python) != len(live):
            return [f"{path}: {len(live)} entries, not {len(python)}"]
        return [
            difference for index, pair in enumerate(zip(live, python, strict=True))
            for difference in list_differences(*pair, f"{path}[{index}]")
        ]  # fmt: skip
    if isinstance(python, int | float) and isinstance(live, int | float) and not isinstance(python, bool):
        is_close = abs(live - python) <= TOLERANCE * max(1.0, abs(python))
        return [] if is_close else [f"{path}: {live}, not {python}"]
    return [] if live == python else [f"{path}: {live!r}, not {python!r}"]


def sort_effects(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Sort the rows of effects by head, and return them; [] of another answer."""
    rows: list[dict[str, Any]] = body.get("rows", []) if "metric" in body else []
    rows.sort(key=lambda row: (row["site"], row["head"]))
    return rows


def compare_buffers(ask: dict[str, Any], live: list[list[int]], python: list[list[int]]) -> list[str]:
    """Compare exact weights as numbers, and colours within one step."""
    form = "<f4" if ask["ask"] in ("values", "line", "contrast", "sweep") else "u1"
    differences = []
    for pair in zip(live, python, strict=True):
        left, right = (numpy.frombuffer(bytes(part), form).astype(float) for part in pair)
        limit = TOLERANCE if ask["ask"] == "sweep" else 1e-5 if form == "<f4" else 1.0
        if left.shape != right.shape or not numpy.allclose(left, right, rtol=0, atol=limit, equal_nan=True):
            differences.append(f"{ask}: the buffers differ")
    return differences


def list_asks(model: str, text: str, edits: list[dict[str, Any]], site: int, query: int) -> list[dict[str, Any]]:
    head = {"run": 1, "site": site, "head": 1}
    difference = {"name": "logit-difference", "token": 65, "position": 3}
    sequence = "target" if model == "translator" else "source"
    return [
        {"ask": "run", "model": model, "text": text, "edits": edits},
        {"ask": "thumbnails", "run": 1, "show": "edited", "site": site, "size": 6},
        {"ask": "tiles", **head, "show": "difference", "level": 0, "row": 0, "column": 0},
        {"ask": "values", **head, "show": "edited", "rows": [0, query + 1], "columns": [0, 5]},
        {"ask": "line", **head, "show": "clean", "key": 2},
        {"ask": "token", "run": 1, "show": "edited", "sequence": sequence, "position": query},
        {"ask": "steps", **head, "show": "edited", "query": query, "language": "ko"},
        {"ask": "layers", "run": 1, "show": "edited", "sequence": sequence, "position": query},
        {"ask": "code", "run": 1, "selection": {"site": site, "head": 1, "query": query, "key": 2}},
        {"ask": "kinds", "run": 1},
        {"ask": "effect", "run": 1, "over": "heads"},
        {"ask": "effect", "run": 1, "over": "heads", "by": "resample", "metric": {"name": "loss"}},
        {"ask": "effect", "run": 1, "over": "heads", "by": "mean", "metric": {"name": "kl", "position": 2}},
        {"ask": "effect", "run": 1, "over": "cell", "site": site, "query": query, "key": 1, "metric": difference},
    ]


def change_randomly(text: str, seed: int) -> str:
    """Return a text with parts that are removed, repeated or moved."""
    draw = random.Random(seed)
    for _ in range(1 + seed % 4):
        begin, end = sorted(draw.sample(range(len(text) + 1), 2))
        at = draw.randrange(len(text) + 1)
        text = draw.choice(
            [text[:begin] + text[end:], text[:at] + text[begin:end] + text[at:], text[end:] + text[:end]]
        )
    return (text or "a")[:60]


def list_contrast_asks(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return asks about second inputs; the last contrast is the one whose maps are asked for."""
    asks: list[dict[str, Any]] = []
    for second in inputs:
        two = {"run": 1, **second}
        asks.append({"ask": "contrast", **two})
        asks += [{"ask": "sweep", **two, "part": part} for part in ("attention", "mlp", "residual")]
        patches = [
            {"part": "attention", "site": 1, "head": 1, "position": None},
            {"part": "mlp", "site": 0, "head": None, "position": 1},
            {"part": "residual", "site": 1, "head": None, "position": 2},
        ]
        asks += [{"ask": "patch", **two, "patches": patches[:count]} for count in range(4)]
        head = {"run": 1, "site": 1, "head": 1, "contrast": "last"}
        for show in ("clean", "edited", "difference"):
            asks.append({"ask": "values", **head, "show": show, "rows": [0, 6], "columns": [1, 6]})
            asks.append({"ask": "tiles", **head, "show": show, "level": 0, "row": 0, "column": 0})
    return [*asks, {"ask": "contrast", "run": 1}, {"ask": "contrast", **two, "right": 5, "wrong": 5}]


@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_the_file_answers_like_the_python_session(live_pages: dict[str, ShownPage], name: str) -> None:
    if name == "gpt":
        edits: list[Edit] = [
            Ablate(layer=0, head=1, by="mean"),
            KnockOut(layer=1, head=1, query=9, key=(2, 4)),
            Scale(layer=1, head=1, temperature=0.5),
            Remask(layer=1, head=0, mask=causal & window(4)),
        ]
        model, text, site, query = MODEL, "a cat, 고양이; a cat", 1, 9
        second = [{"model": EARLIER}, {"text": "a horse, a cat", "model": EARLIER}]
        second += [{"text": "a horse, 강아지; a horse"}]
        aligned = [change_randomly(text, seed) for seed in range(20)]
    else:
        edits = [Ablate(layer="decoder.1.cross"), KnockOut(layer="encoder.1.attention", key=2)]
        model, text, site, query = "translator", "우리는 도서관에서 책을 읽는다", 5, 4
        second, aligned = [{"text": "우리는 학교에서 책을 읽는다"}, {"text": "나는 매일 병원에 간다"}], []
    asks = list_asks(model, text, [edit.to_json() for edit in edits], site, query)
    asks += list_contrast_asks(second) + [{"ask": "contrast", "run": 1, "text": other} for other in aligned]
    if name == "gpt":
        asks.append({"ask": "run", "model": EARLIER, "text": text})
        asks.append({"ask": "steps", "run": 2, "site": 1, "head": 1, "show": "clean", "query": query})
    refused = [{"edit": "Ablate", "layer": 99}, {"edit": "Scale", "layer": edits[0].layer, "temperature": 1e-300}]
    asks += [{"ask": "run", "model": model, "text": text, "edits": [edit]} for edit in refused]
    hello = {"model": model, "text": text, "language": "ko" if name == "translator" else "en"}
    live, python = live_pages[name].page.evaluate(ASK, [asks, hello]), ask_python(model, asks)
    for ask, computed, expected in zip(asks, live, python, strict=True):
        assert ("failed" in computed) == ("failed" in expected), (ask, computed, expected)
        if "failed" in computed:
            assert computed == expected and computed["reason"] == "invalid", ask
            continue
        for answer in (computed, expected):  # effects of almost equal size may change places
            for row in sort_effects(answer["body"]):
                row.pop("rank")
        assert list_differences(computed["body"], expected["body"], ask["ask"]) == []
        assert compare_buffers(ask, computed["buffers"], expected["buffers"]) == []


def check_predictions(shown: ShownPage, probabilities: torch.Tensor, side: str = "clean") -> None:
    """Compare the predictions that the page shows with probabilities by token."""
    tokenizer = jumok.load("tiny").require_tokenizer()
    expected = {label_tokens(tokenizer, [token])[0]: float(share) for token, share in enumerate(probabilities)}
    predictions = shown.read_predictions(side)
    assert len(predictions) >= 5
    for label, written in predictions.items():
        rounding = 0.05 if "." in written else 0.5
        assert float(written.strip("<>%")) == pytest.approx(100 * expected[label], abs=1.01 * rounding), label


def type_text(shown: ShownPage, text: str) -> None:
    shown.page.fill("textarea", text)
    shown.page.keyboard.press("Enter")


def test_a_reader_types_edits_measures_and_saves(live_pages: dict[str, ShownPage], browser: Browser) -> None:
    shown, page = live_pages["gpt"], live_pages["gpt"].page
    assert len(page.workers) > 0, "long work would freeze the page"
    text = "a dog; a d"
    edit = Ablate(layer=1, head=2)
    with jumok.Lens(MODEL) as lens:
        clean = lens.run(text, logits=True).logits[0, -1].softmax(-1)
        edited = lens.run(text, logits=True, edits=[edit]).logits[0, -1].softmax(-1)
        written = lens.generate(text, limit=12).token_ids
        labels = label_tokens(lens.tokenizer, [*text.encode(), *written])[len(text) :]
    effects = jumok.effect(MODEL, text)

    type_text(shown, text)
    page.wait_for_function("count => document.querySelectorAll('.jk-chips button').length === count", arg=len(text))
    check_predictions(shown, clean)
    page.click('[data-head="1.2"]')
    page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    check_predictions(shown, edited, "edited")
    page.keyboard.press("Control+z")
    shown.wait_for_edits(0)

    page.click("[data-view=effect]")
    page.click("[data-action=measure-heads]")
    page.wait_for_selector(".jk-effect-bars li")
    assert page.locator("[data-action=measure-edges]").count() == 0
    strongest = page.locator(".jk-effect-bars li").first.inner_text()
    assert f"layer {effects[0].layer}, head {effects[0].head}" in strongest
    assert f"{abs(effects[0].effect):.2f}" in strongest

    page.click("[data-view=contrast]")
    page.fill("[data-contrast-input]", "a cat; a d")
    page.click("[data-action=compare]")
    page.click("[data-action=sweep]")
    page.locator("[data-restores] button").first.click()
    page.wait_for_selector("[data-value=patched]")
    page.wait_for_selector("canvas[data-contrast=difference][data-complete=true]")
    page.click("[data-action=contrast-python]")
    page.wait_for_selector("[data-action=contrast-python]:has-text('Copied')")
    code, printed = page.evaluate("() => navigator.clipboard.readText()"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    patched = float(printed.getvalue().rpartition("patched: ")[2])
    assert f"{patched:+.2f}".replace("-", "−") in page.inner_text("[data-value=patched]")

    page.click("text=Generate")
    page.wait_for_selector(".jk-new")
    for step, label in enumerate(labels):
        page.wait_for_function("label => document.querySelector('.jk-new').textContent === label", arg=label)
        if step + 1 < len(labels):
            page.click("[data-action=later]")

    with page.expect_download() as download:
        page.click("text=Save as HTML")
    path = Path(download.value.path()).rename(Path(download.value.path()).with_suffix(".html"))
    saved = ShownPage(browser, offline=True)
    saved.open(path.as_uri())
    assert saved.page.input_value("textarea") == text
    saved.page.click("[data-action=every-head]")
    saved.page.wait_for_selector(".jk-every-head tr")
    saved.close()


def test_the_translator_answers_in_korean(live_pages: dict[str, ShownPage]) -> None:
    shown, page = live_pages["translator"], live_pages["translator"].page
    assert "브라우저에서 직접 계산" in page.locator(".jk-note").first.inner_text()
    type_text(shown, "나는 매일 학굔에 간다")
    page.wait_for_selector(".jk-error")
    assert "어휘에 없는 단어" in page.locator(".jk-error").inner_text()
    assert "학교" in page.locator(".jk-error").inner_text()
    type_text(shown, "우리는 도서관에서 책을 읽는다")
    page.wait_for_function("() => document.querySelector('.jk-strip').textContent.includes('library')")
    assert page.locator(".jk-error").count() == 0
