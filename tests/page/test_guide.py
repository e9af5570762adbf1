"""The guide on the page in a real browser: help, examples, the tour, the strip of the whole model, summaries."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from page_driver import ShownPage

import jumok
from jumok.lens import KnockOut
from jumok.web.saved_file import save_html
from jumok.web.session import Start

pytestmark = pytest.mark.xdist_group("page")

ROOT = Path(__file__).parent.parent.parent
TEXT = "the cat sat; the cat"
MEDIA_TERMS = {"patch", "spectrogram", "timing"}
OpenPage = Callable[..., ShownPage]


def read_terms(language: str) -> dict[str, tuple[str, str, str]]:
    """Return the sentence, the page and the section of each term, from the words of the page."""
    source = (ROOT / f"page/src/words.{language}.ts").read_text(encoding="utf-8")
    block = source.split("  terms: {\n")[1].split("\n  },\n")[0]
    entries = re.findall(r'^    (\w+): \{\s*name: ".*?",\s*text: "(.*?)",\s*see: \["(.*?)", "(.*?)"\]', block, re.M)
    return {name: (text, page, section) for name, text, page, section in entries}


def list_examples(shown: ShownPage) -> list[str | None]:
    shown.page.click("[data-action=guide]")
    shown.page.wait_for_selector("[data-example]")
    return [row.get_attribute("data-example") for row in shown.page.locator("[data-example]").all()]


def read_headings(path: Path) -> list[str]:
    return re.findall(r"^#{2,4} (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_term_is_one_sentence_and_names_a_section_of_the_handbook(language: str) -> None:
    terms = read_terms(language)
    assert len(terms) > 30
    for name, (text, page, section) in terms.items():
        assert text.endswith(".") and ". " not in text, name
        assert section in read_headings(ROOT / "docs" / language / page), name


READ_TERMS = """async () => {
    const terms = [];
    for (const button of document.querySelectorAll(".jk-help")) {
        button.click();
        const panel = button.popoverTargetElement;
        while (!panel.querySelector("[data-term]")) await new Promise((resume) => setTimeout(resume, 5));
        terms.push(...[...panel.querySelectorAll("[data-term]")].map((term) => term.dataset.term));
        panel.hidePopover();
    }
    return terms;
}"""


def test_help_opens_by_keyboard_and_covers_every_term(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.wait_for_selector(".jk-blocks table")
    button = shown.page.locator(".jk-heads .jk-help")
    button.press("Enter")
    panel = shown.page.locator(".jk-popover:popover-open")
    panel.locator("[data-term=kind]").wait_for()
    shown.page.keyboard.press("Escape")
    panel.wait_for(state="detached")
    assert button.evaluate("button => button === document.activeElement")  # the focus returns
    listed: set[str] = set()
    for tab in shown.page.locator("[role=tab]").all():
        tab.click()
        listed.update(shown.page.evaluate(READ_TERMS))
    assert listed == set(read_terms("en")) - MEDIA_TERMS


def test_the_strip_shows_the_model_and_selects_a_layer(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.wait_for_selector(".jk-blocks table")
    assert "vectors of 96 → 2 × (2 heads × 48 + MLP 64) → 256 logits" in shown.page.locator(".jk-blocks").inner_text()
    shown.page.click(".jk-chip >> nth=3")
    shown.page.wait_for_selector(".jk-blocks[data-position='3']")
    with jumok.Lens("tiny") as lens, torch.no_grad():
        output: list[torch.Tensor] = []
        hooks = [
            block.register_forward_hook(lambda module, inputs, result: output.append(result))
            for block in lens.model.blocks
        ]
        lens.run(TEXT)
        for hook in hooks:
            hook.remove()
        states = [state[0] if isinstance(state, tuple) else state for state in output]
    norms = shown.page.locator(".jk-norms .jk-number").all_inner_texts()
    assert [float(norm) for norm in norms[1:]] == pytest.approx(
        [float(state[0, 3].norm()) for state in states], rel=6e-3
    )
    assert shown.page.locator(".jk-blocks [data-layer='1']").get_attribute("aria-pressed") == "true"
    shown.page.click(".jk-blocks [data-layer='0']")
    assert shown.read_link()["selection"]["site"] == 0
    shown.page.keyboard.press("ArrowRight")
    assert shown.read_link()["selection"]["site"] == 1
    shown.page.click("[data-action=blocks]")
    assert shown.page.locator(".jk-blocks table").count() == 0


def test_the_selected_head_is_described_and_announced_once(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.wait_for_selector(".jk-kinds b")
    announced = shown.page.locator("[data-announced]")
    shown.page.wait_for_timeout(1100)  # longer than a selection must rest
    assert announced.inner_text() == ""  # the first head is not announced
    shown.page.click('[data-head="0.1"]')
    shown.page.click('[data-head="1.0"]')  # before the selection has rested
    shown.page.wait_for_function("() => document.querySelector('[data-announced]').textContent")
    with jumok.Lens("tiny") as lens:
        weights = lens.run(TEXT).weights(1, 0)
    sentence = announced.inner_text()
    assert sentence.startswith("layer 1, head 0: induction") and f"“␣” 7 {weights[19, 7]:.2f}" in sentence
    summary = shown.page.locator("canvas[data-map]").get_attribute("aria-describedby")
    assert shown.page.locator(f"#{summary}").inner_text() == sentence


def test_an_example_sets_model_text_and_cell(address: str, open_page: OpenPage) -> None:
    shown = open_page(address, locale="ko-KR")
    offered = list_examples(shown)
    assert offered[:5] == ["induction", "mask", "cross", "ahead", "story"]
    shown.page.click("[data-example=cross]")
    shown.page.wait_for_selector("[data-shown-example=cross]")
    assert "0.78" in shown.page.locator(".jk-guide").inner_text()
    link = shown.read_link()
    assert link["model"] == "translator" and link["selection"] == {"site": 5, "head": 0, "query": 3, "key": 2}
    shown.page.fill("textarea", "나는 책을 읽는다")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => !document.querySelector('.jk-guide')")  # it says nothing about another text


def test_the_tour_answers_to_what_the_user_does(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    assert shown.page.locator(".jk-tour").count() == 0  # it does not open by itself
    shown.page.click("[data-action=guide]")
    shown.page.click("[data-action=tour]")

    def follow(step: str, expected: str) -> None:
        shown.page.wait_for_selector(f".jk-tour[data-step={step}][data-done=true]")
        assert expected in shown.page.locator(".jk-tour p").inner_text()
        shown.page.keyboard.press("Enter") if step == "look" else shown.page.click("[data-action=tour-next]")

    assert "“␣” next, with 97%" in shown.page.locator(".jk-tour p").inner_text()
    shown.page.click(".jk-chip >> nth=18")
    follow("predict", "After “a” it expected “t”")
    shown.page.click('[data-head="0.0"]')
    shown.page.wait_for_selector(".jk-tour[data-done=true]")
    shown.page.focus("[data-action=tour-next]")
    follow("look", "layer 0, head 0")
    shown.page.click('[data-head="1.0"]')
    canvas = shown.page.locator("canvas[data-map]")
    canvas.focus()
    for key in ("End", "PageDown", *["ArrowLeft"] * 12, "Enter"):
        shown.page.keyboard.press(key)
    follow("cell", "“t” looks at “␣” with weight 0.90")
    shown.page.reload()
    shown.wait_for_map()
    assert shown.page.locator(".jk-tour").count() == 0
    shown.page.click("[data-action=guide]")
    shown.page.click("[data-action=tour]")  # goes on where it was left
    shown.page.click("[data-view=computation]")
    follow("compute", "numbers of the model")
    shown.page.click("[data-action=knock-out]")
    with jumok.Lens("tiny") as lens:
        edited = lens.run(TEXT, edits=[KnockOut(layer=1, head=0, query=19, key=7)], logits=True).logits[0, -1]
    follow("cut", f"“␣” went from 97% to {100 * float(edited.softmax(-1)[32]):.0f}%: this mattered")
    shown.page.wait_for_selector(".jk-tour", state="detached")


def test_a_saved_file_has_the_strip_its_own_example_and_a_tour(
    address: str, open_page: OpenPage, tmp_path: Path
) -> None:
    path = save_html(tmp_path / "saved.html", Start("tiny", TEXT))
    shown = open_page(path.as_uri(), offline=True)
    strips = []
    for opened in (shown, open_page(address)):
        opened.page.click(".jk-chip >> nth=5")
        opened.page.wait_for_selector(".jk-blocks[data-position='5'] table")
        strips.append(opened.page.locator(".jk-blocks").inner_text())
    assert strips[0] == strips[1]
    shown.page.set_viewport_size({"width": 390, "height": 844})
    offered = list_examples(shown)
    assert offered == ["induction", "mask"]
    shown.page.click("[data-action=tour]")
    shown.page.click(".jk-tour li >> nth=4")
    assert "saved file" in shown.page.locator(".jk-tour p").inner_text()
    shown.page.locator(".jk-tour button").last.press("Escape")  # a key reaches the tour only if the focus is in it
    shown.page.wait_for_selector(".jk-tour", state="detached")
    width = shown.page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= 390
