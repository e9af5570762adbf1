"""Two texts side by side in a real browser: the head that restores the first answer is found and patched."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest
from page_driver import ShownPage

import jumok
from jumok.lens.effects.metrics import LogitDifference

pytestmark = pytest.mark.xdist_group("page")

TEXT, OTHER = "the cat sat; the cat ", "the cat did; the cat "
READY = "canvas[data-contrast=difference][data-complete=true]"


def compare_texts(shown: ShownPage, text: str, other: str) -> None:
    """Run a text, open the view of two texts, and compare it with another one."""
    shown.page.locator(".jk-text textarea").fill(text)
    shown.page.locator(".jk-text textarea").press("Enter")
    shown.page.wait_for_function("text => document.querySelectorAll('.jk-chip').length === text.length", arg=text)
    shown.page.click("[data-action=contrast]")
    assert shown.page.input_value("[data-contrast-input]") == text
    shown.page.fill("[data-contrast-input]", other)
    shown.page.press("[data-contrast-input]", "Enter")
    shown.page.wait_for_selector("[data-value=corrupted]")


def test_the_head_that_restores_the_answer_is_found_and_patched(
    address: str, open_page: Callable[..., ShownPage]
) -> None:
    shown = open_page(address)
    page = shown.page
    compare_texts(shown, TEXT, OTHER)
    with jumok.Lens("tiny") as lens:
        metric = LogitDifference("s", "d").resolve_tokens(lens.tokenizer)
        first, second = (lens.run(text, logits=True) for text in (TEXT, OTHER))
        clean, corrupted = (float(metric(capture.logits, capture.logits)[0]) for capture in (first, second))
    assert page.inner_text("[data-value=clean]") == f"+{clean:.2f}"
    assert page.inner_text("[data-value=corrupted]") == f"{corrupted:.2f}".replace("-", "−")
    assert page.locator(".jk-pair.jk-differs").all_inner_texts() == ["s\nd", "a\ni", "t\nd"]

    page.click("[data-action=sweep]")
    page.wait_for_selector("[data-restores] li")
    bars = page.locator("[data-restores] button")
    assert bars.first.get_attribute("data-patch-head") == "1.0" and bars.first.inner_text().endswith("100%")
    bars.first.click()
    page.wait_for_selector("[data-value=patched]")
    assert "restores 100%" in page.inner_text("[data-value=patched]")
    page.click("[data-action=contrast-python]")
    page.wait_for_selector("[data-action=contrast-python]:has-text('Copied')")
    code, printed = page.evaluate("() => navigator.clipboard.readText()"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert "Patch(layer=1, head=0, source=source)" in code and f"clean: {clean:.4f}" in printed.getvalue()

    # the maps of the selected head, aligned; the cursor reads the exact weights of both texts
    page.wait_for_selector(READY)
    canvas = page.locator("canvas[data-contrast=difference]")
    canvas.focus()
    for key in ["ArrowDown"] * 11 + ["ArrowRight"] * 7:
        page.keyboard.press(key)
    weights = [float(capture.weights(1, 0)[11, 7]) for capture in (first, second)]
    sentence = (
        f"first {weights[0]:.4f}, second {weights[1]:.4f}" if min(weights) >= 0.001 else f"first {weights[0]:.4f}"
    )
    page.wait_for_function(
        "text => document.querySelector('.jk-contrast .jk-explanation .jk-value').innerText.includes(text)",
        arg=sentence,
    )

    # the position that decides: the letter behind the first "cat "
    page.click("[data-part=residual]")
    page.click("[data-action=sweep]")
    heat_map = page.locator("canvas[data-restored-map=residual]")
    heat_map.focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector(".jk-restores .jk-value:has-text('before block 0 at d [8]: restores 99')")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('[data-patches] li').length === 2")

    # texts of different lengths, in Korean words of the page
    page.click("[data-action=language]")
    page.fill("[data-contrast-input]", "the horse sat; the horse ")
    page.click("[data-action=compare]")
    page.wait_for_function("() => document.querySelectorAll('.jk-pair').length === 25")
    page.wait_for_selector(READY)
    assert page.locator("text=무엇이 첫 번째 답을 되살릴까요?").count() == 1
    page.fill("[data-contrast-input]", TEXT)
    page.click("[data-action=compare]")
    assert "텍스트도 모델도 같습니다" in page.locator("[role=alert]").inner_text()
