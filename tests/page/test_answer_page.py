"""Questions in a real browser: the passages beside the answer, cut with mouse and keyboard, and their attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_driver import MAP, ShownPage, serve_page

import jumok
from jumok.tasks.ask import PromptReader

OpenPage = Callable[..., ShownPage]
VERDICT = ".jk-verdict"
LIMIT = 8
FILES = {
    "boats.txt": "The boat leaves the harbour at seven in the morning.",
    "cats.txt": "A cat sleeps on the boat of the captain.",
    "owner.txt": "Captain Okafor owns the boat and two nets.",
    "birds.txt": "Gulls nest on a cliff near Whitby.",
}
QUESTION = "Which boat leaves the harbour at seven?"
READ_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def answer_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that answers from four files with the model tiny."""
    folder = tmp_path_factory.mktemp("notes")
    for name, text in FILES.items():
        (folder / name).write_text(text + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        options = ("--reader", "tiny", "--method", "bm25", "--limit", str(LIMIT))
        with serve_page(str(folder), QUESTION, *options, command="ask") as printed:
            yield printed


def wait_for_cut(shown: ShownPage, cut: str) -> None:
    """Wait until the answer without some passages is shown; "" waits until no passage is cut."""
    if cut:
        shown.page.wait_for_selector(f"[data-cut='{cut}'][data-done=true]")
    else:
        shown.page.wait_for_selector("[data-cut]", state="detached")


def read_texts(shown: ShownPage) -> list[str]:
    """Return the texts of the answers: one, or with cuts the first one and the new one."""
    return [" ".join(text.split()) for text in shown.page.locator("[data-answer], [data-transcript]").all_inner_texts()]


def read_without(shown: ShownPage, cut: list[int]) -> str:
    """The answer that tiny writes without some of the passages on the page."""
    passages = shown.page.locator("ol > [data-passage] .jk-passage-text").all_inner_texts()[:3]
    reading = PromptReader(jumok.load("tiny")).read(QUESTION, passages, LIMIT, cut)
    return " ".join(f"{reading.text}{' …' if reading.reached_limit else ''}".split())


def test_a_click_cuts_a_passage_and_the_model_answers_without_it(open_page: OpenPage, answer_address: str) -> None:
    shown = open_page(answer_address, VERDICT)
    page = shown.page
    assert page.locator(".jk-question").inner_text() == QUESTION
    assert page.locator("[data-quotation='boats.txt:1']").inner_text() == FILES["boats.txt"]
    assert page.locator(VERDICT).last.inner_text() in ("Supported", "Not supported")  # of what the model writes
    locations = page.locator("ol:not(.jk-controls ol) > [data-passage] strong").all_inner_texts()
    assert sorted(locations) == ["boats.txt:1", "cats.txt:1", "owner.txt:1"] and locations[0] == "boats.txt:1"
    assert read_texts(shown)[0] == read_without(shown, [])
    page.wait_for_selector(".jk-controls")
    assert "birds.txt:1" not in page.locator(".jk-passages").inner_text()  # folded
    page.click(".jk-controls summary")
    assert "birds.txt:1" in page.locator(".jk-passages").inner_text()
    measures = page.locator("[data-passage='0'] .jk-measures").inner_text()
    assert re.search(r"[−+]\d+\.\d+ nats", measures) and re.search(r"\d%", measures) and "BM25" in measures

    page.click("[data-passage='0'] .jk-passage-text")
    wait_for_cut(shown, "0")
    change = re.search(r"[−+][\d.]+ nats", page.locator("[data-passage='0'] .jk-measures").inner_text())
    assert change is not None and f"({change.group()})" in page.locator("[data-cut]").inner_text()
    assert read_texts(shown)[1] == read_without(shown, [0])
    page.click("[data-passage='2']")
    wait_for_cut(shown, "0,2")
    assert read_texts(shown) == [read_without(shown, []), read_without(shown, [0, 2])]
    assert page.locator("button[aria-pressed=true]").count() == 2

    link = page.evaluate("() => location.href")
    page.click("[data-passage='0']")  # put back
    wait_for_cut(shown, "2")
    page.keyboard.press("Control+z")
    wait_for_cut(shown, "0,2")
    page.click("[data-action=put-back]")
    wait_for_cut(shown, "")

    again = open_page(link, "[data-cut='0,2'][data-done=true]")  # a link keeps question and cuts
    assert again.page.locator(".jk-question").inner_text() == QUESTION


def test_cuts_are_edits_of_the_attention(open_page: OpenPage, answer_address: str, tmp_path: Path) -> None:
    shown = open_page(answer_address, VERDICT)
    page = shown.page
    page.click("[data-passage='1'] button")
    wait_for_cut(shown, "1")
    page.click("[data-action=attention]")
    shown.wait_for_map("edited")
    assert page.locator(".jk-edit-list li span").all_inner_texts() == ["Passage cut · cats.txt:1"]
    assert page.locator("[data-strip-passage='1']").get_attribute("aria-pressed") == "true"
    assert page.locator(".jk-chip[data-number='2']").inner_text() == "A"
    assert page.locator(".jk-chip.jk-cut").count() == len(FILES["cats.txt"]) + 2  # bytes, and the empty line behind it
    page.click("[data-strip-passage='0']")
    shown.wait_for_edits(2)
    page.click(".jk-edit-list li:first-child button")
    shown.wait_for_edits(1)
    with page.expect_download() as download:
        page.click("text=Save as HTML")
    file = tmp_path / "answer.html"
    download.value.save_as(file)
    page.click("[data-action=answer]")
    wait_for_cut(shown, "0")

    saved = open_page(file.as_uri(), offline=True)
    assert saved.page.locator(".jk-edit-list li span").all_inner_texts() == ["Passage cut · boats.txt:1"]
    assert saved.page.locator(".jk-chip[data-number]").count() == 3


def test_keyboard_korean_dark_and_narrow(open_page: OpenPage, answer_address: str) -> None:
    shown = open_page(answer_address, VERDICT, locale="ko-KR", color_scheme="dark")
    page = shown.page
    assert page.locator(VERDICT).last.inner_text() in ("근거 있음", "근거 없음")
    page.set_viewport_size({"width": 390, "height": 800})
    buttons = page.locator("[data-passage] button")
    for index in range(3):  # the newest click stops the older ones
        buttons.nth(index).focus()
        page.keyboard.press("Enter")
    wait_for_cut(shown, "0,1,2")
    assert read_texts(shown)[1] == read_without(shown, [0, 1, 2])
    assert page.evaluate(READ_OVERFLOW) == 0
    page.click("[data-action=attention]")
    page.wait_for_selector(MAP)
    assert page.evaluate(READ_OVERFLOW) == 0


def test_another_question_begins_without_cuts(open_page: OpenPage, answer_address: str) -> None:
    shown = open_page(answer_address, VERDICT)
    page = shown.page
    page.click("[data-passage='0']")
    page.fill("textarea", " ")
    page.keyboard.press("Enter")
    assert "The question is empty" in page.locator("[role=alert]").inner_text()
    page.fill("textarea", "Who owns two nets?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".jk-question:text-is('Who owns two nets?')")
    wait_for_cut(shown, "")
    assert page.locator("[data-passage='0'] strong").inner_text() == "owner.txt:1"
    assert shown.read_link()["edits"] == []
    page.click(".jk-question")  # out of the text field, which has an undo of its own
    page.keyboard.press("Control+z")
    assert shown.read_link()["edits"] == [] and page.locator("button[aria-pressed=true]").count() == 0
    page.fill("textarea", "zzz")
    page.click("text=Ask")
    page.wait_for_selector("[data-verdict='nothing fits']")
    assert "fits this question" in page.locator(".jk-why").inner_text()
    assert page.locator("[data-passage] button").count() == 0
