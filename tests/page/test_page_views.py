"""The views of the page in a real browser, on the model tiny: what they show equals what the lens computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
import torch
from page_driver import ShownPage

import jumok
from jumok.lens import KnockOut, Remask, Scale

pytestmark = pytest.mark.xdist_group("page")

TEXT = "the cat sat; the cat"
OpenPage = Callable[..., ShownPage]


def compute_weights(layer: int, head: int, edits: tuple[object, ...] = ()) -> torch.Tensor:
    with jumok.Lens("tiny") as lens:
        return lens.run(TEXT, edits=edits).weights(layer, head)


def test_the_first_look_shows_text_predictions_heads_and_a_map(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    chips = shown.page.locator(".jk-chip").all_inner_texts()
    assert "".join(chips) == TEXT.replace(" ", "␣") or len(chips) == len(TEXT)
    with jumok.Lens("tiny") as lens:
        logits = lens.run(TEXT, logits=True).logits[0, -1]
    percent = round(100 * float(logits.softmax(-1).max()))
    assert f"{percent}%" in shown.read_predictions().values()
    assert shown.page.locator(".jk-head canvas[data-loaded=true]").count() == 4
    shown.page.wait_for_selector(".jk-kinds b")  # the kinds of the heads arrive after the map


def test_the_value_under_the_cursor_is_the_exact_weight(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    weights = compute_weights(1, 0)
    assert shown.point_at_cell(19, 7).endswith(f"{weights[19, 7]:.4f}")
    assert "not allowed by the mask" in shown.point_at_cell(3, 12)
    zoom = "document.querySelector('canvas[data-map]').dataset.zoom"
    before = shown.page.evaluate(f"() => Number({zoom})")
    shown.page.set_viewport_size({"width": 1280, "height": 600})  # the map stays whole
    shown.page.wait_for_function(f"before => {zoom} < before", arg=before)


def test_a_knocked_out_cell_changes_predictions_and_undo_restores_them(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    clean = shown.read_predictions()
    shown.point_at_cell(19, 7)
    shown.page.keyboard.press("Delete")
    shown.wait_for_edits(1)
    edit = KnockOut(layer=1, head=0, query=19, key=7)
    with jumok.Lens("tiny") as lens:
        logits = lens.run(TEXT, edits=[edit], logits=True).logits[0, -1]
    percent = 100 * float(logits.softmax(-1).max())
    assert f"{percent:.0f}%" in shown.read_predictions("edited").values()
    shown.page.click("[data-show=edited]")
    shown.wait_for_map("edited")
    assert shown.point_at_cell(19, 7).endswith(": 0")
    assert shown.point_at_cell(19, 8).endswith(f"{compute_weights(1, 0, (edit,))[19, 8]:.4f}")
    shown.page.click("[data-show=all]")
    for side in ("clean", "edited", "difference"):
        shown.wait_for_map(side)
    shown.page.click("[data-action=undo]")
    shown.wait_for_edits(0)
    assert shown.read_predictions() == clean
    shown.page.click("[data-action=redo]")
    shown.wait_for_edits(1)


def test_the_copied_python_reproduces_the_numbers(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    shown.page.click("[data-action=python]")
    shown.page.wait_for_function("() => document.querySelector('[data-action=python]').textContent === 'Copied'")
    code = shown.page.evaluate("() => navigator.clipboard.readText()")
    names: dict[str, object] = {}
    exec(code, names)
    logits = names["edited"].logits[0, -1]  # type: ignore[attr-defined]
    percent = 100 * float(logits.softmax(-1).max())
    assert any(text in (f"{percent:.0f}%", f"{percent:.1f}%") for text in shown.read_predictions("edited").values())


def test_the_temperature_slider_is_one_step_of_undo(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    slider = shown.page.locator("[data-action=temperature]")
    box = slider.bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.page.mouse.down()
    for share in (0.6, 0.7, 0.8):
        shown.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    shown.page.mouse.up()
    shown.wait_for_edits(1)
    shown.page.click("[data-action=undo]")
    shown.wait_for_edits(0)
    assert shown.page.locator("[data-action=undo]").is_disabled()


def test_mask_and_scale_can_be_removed(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-action=remask]")
    shown.wait_for_edits(1)
    shown.page.click("[data-action=unscale]")
    shown.wait_for_edits(2)
    shown.wait_for_map("edited")
    scale = 48**-0.5  # of a head of tiny
    weights = compute_weights(1, 0, (Remask(layer=1), Scale(layer=1, temperature=scale)))
    future = weights.triu(1)
    query, key = divmod(int((future - 0.5).abs().argmin()), len(future))  # a cell that the mask forbade
    text = shown.point_at_cell(query, key)
    assert float(text.rpartition(" ")[2].replace("−", "-")) == pytest.approx(float(weights[query, key]), rel=1e-3)


def test_lines_computation_effect_and_generation(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-view=lines]")
    shown.page.wait_for_function("() => Number(document.querySelector('.jk-lines').dataset.lines) > 0")
    drawn = sum(int((compute_weights(1, head) > 0.004).sum()) for head in (0, 1))
    shown.page.check("[data-action=all-heads]")
    shown.page.wait_for_function(
        "drawn => document.querySelector('.jk-lines').dataset.lines === String(drawn)", arg=drawn
    )

    shown.page.click("[data-view=computation]")
    shown.page.wait_for_selector(".jk-steps tbody tr")
    weights = [float(text) for text in shown.page.locator(".jk-weight-cell").all_inner_texts()]
    assert weights == pytest.approx(compute_weights(1, 0)[19].tolist(), abs=6e-4)
    shown.page.click("[data-action=next-step]")  # from the last step to the first
    assert "Step 1 of" in shown.page.locator(".jk-computation .jk-toolbar").inner_text()

    shown.page.click("[data-view=effect]")
    shown.page.click("[data-action=measure-heads]")
    shown.page.wait_for_selector(".jk-effect-bars li")
    strongest = max(jumok.effect("tiny", TEXT), key=lambda effect: abs(effect.effect))
    first = shown.page.locator(".jk-effect-bars li").first.inner_text()
    assert f"layer {strongest.layer}, head {strongest.head}" in first and f"{abs(strongest.effect):.2f}" in first
    shown.page.click("[data-action=measure-edges]")
    shown.page.wait_for_selector(".jk-edge-list li")
    assert shown.page.locator(".jk-badge").count() == 4  # the grid shows the effect of each head

    shown.page.click("text=Generate")
    shown.page.wait_for_selector(".jk-new")
    with jumok.Lens("tiny") as lens:
        text = lens.generate(TEXT, limit=12).text
    steps = []
    while True:
        steps.append(shown.page.locator(".jk-new").inner_text())
        later = shown.page.locator("[data-action=later]")
        if later.is_disabled():
            break
        later.click()
    assert len(steps) == len(text.encode()) and steps[1] == text[1]


def test_each_step_of_a_long_text_has_its_own_candidates(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    text = "the cat sat; the dog " * 13  # 273 tokens; the page has the predictions of the last 256
    shown.page.fill("textarea", text)
    shown.page.click("text=Run")
    shown.page.click("[data-view=generation]")
    with jumok.Lens("tiny") as lens:
        probabilities = lens.run(text, logits=True).logits[0].softmax(-1)
    for position in (30, 270):
        shown.page.fill(".jk-generation input[type=range]", str(position))
        first = shown.page.locator(".jk-candidates tr").first
        shown.page.wait_for_function(
            "step => document.querySelector('.jk-generation .jk-toolbar').innerText.includes(step)",
            arg=f"{position + 1} of",
        )
        largest, token = probabilities[position].max(-1)
        assert first.locator("th").inner_text().replace("␣", " ") == chr(int(token))
        assert first.locator(".jk-number").inner_text() in (f"{100 * largest:.0f}%", f"{100 * largest:.1f}%", ">99.9%")
        assert "the model writes" not in shown.page.locator(".jk-generation").inner_text()  # the user wrote this text
    shown.page.fill(".jk-generation input[type=range]", "5")
    shown.page.wait_for_selector("text=known for the last 256 positions")
    assert shown.page.locator(".jk-candidates tr").count() == 0
    assert shown.read_predictions() == {}  # nor those of another position beside the text


def test_korean_and_dark(address: str, open_page: OpenPage) -> None:
    shown = open_page(address, locale="ko-KR", color_scheme="dark")
    assert shown.page.locator(".jumok").get_attribute("data-theme") == "dark"
    assert shown.page.locator("[data-view=map]").inner_text() == "맵"
    shown.page.fill("textarea", "a" * 600)
    shown.page.keyboard.press("Enter")
    # the session runs in another language than this page
    assert "텍스트의 토큰은 600개인데" in shown.page.locator(".jk-error").inner_text()
    shown.page.click("[data-action=language]")
    assert shown.page.locator("[data-view=map]").inner_text() == "Map"
    shown.page.click("[data-action=theme]")
    assert shown.page.locator(".jumok").get_attribute("data-theme") == "light"


def test_everything_is_reached_by_keyboard_alone(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    press = shown.page.keyboard.press

    def tab_to(selector: str) -> None:
        for _ in range(60):
            press("Tab")
            if shown.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        pytest.fail(f"Tab does not reach {selector}")

    tab_to(".jk-chip")
    press("ArrowLeft")
    tab_to(".jk-head")
    press("ArrowUp")
    assert shown.read_link()["selection"]["site"] == 0
    tab_to("[data-view=map]")
    press("ArrowRight")
    assert shown.page.locator("[data-view=lines]").get_attribute("aria-selected") == "true"
    press("ArrowLeft")
    shown.wait_for_map()
    tab_to("canvas[data-map]")
    press("ArrowLeft")
    press("Enter")
    live = shown.page.locator(".jk-value")
    assert live.get_attribute("aria-live") == "polite"
    press("Delete")
    shown.wait_for_edits(1)
    press("Control+z")
    shown.wait_for_edits(0)


def test_a_link_restores_view_and_edits(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="0.1"]')
    shown.page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    shown.page.select_option("[data-action=scale]", "log")
    shown.page.check("[data-action=skip-first]")
    link = shown.page.evaluate("() => location.href")
    again = open_page(link)
    assert again.read_link() == shown.read_link()
    assert again.page.locator(".jk-edit-list li").count() == 1
    assert json.dumps(again.read_predictions()) == json.dumps(shown.read_predictions())
    korean = open_page(f"{address}&state={quote(json.dumps({'language': 'ko'}))}")
    assert korean.page.locator("[data-view=map]").inner_text() == "맵"


def test_another_text_and_another_model(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.fill("textarea", "주목은 어텐션이다")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => document.querySelectorAll('.jk-chip').length === 25")
    assert shown.read_link()["text"] == "주목은 어텐션이다"
    shown.page.select_option("header select", "translator")  # it knows none of these words, and waits for others
    shown.page.wait_for_selector(".jk-error")
    shown.page.fill("textarea", "나는 책을 읽는다")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => document.querySelectorAll('[data-sequence=source] .jk-chip').length === 6")
    answer = shown.page.locator("[data-sequence=target] .jk-chip").all_inner_texts()
    assert answer[1:] == ["I", "read", "a", "book"] and shown.read_link()["model"] == "translator"


def test_a_long_text_is_refused_in_a_sentence(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.fill("textarea", "a" * 3000)
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_selector(".jk-error")
    assert "at most" in shown.page.locator(".jk-error").inner_text()


def test_an_address_without_its_token_explains_itself(address: str, browser: object) -> None:
    shown = ShownPage(browser)  # type: ignore[arg-type]
    shown.page.goto(address.split("#")[0] + "#token=wrong")
    shown.page.wait_for_selector(".jk-error")
    assert "#token=" in shown.page.locator(".jk-error").inner_text()
    shown.close()


def test_pictures_are_exported(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    for action, start in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with shown.page.expect_download() as download:
            shown.page.click(f"[data-action={action}]")
        path = download.value.path()
        assert path.read_bytes().startswith(start)


def test_a_dragged_rectangle_is_knocked_out(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.1"]')
    shown.page.click("text=Select cells")
    box = shown.page.locator("canvas[data-map]").bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.5)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.7)
    shown.page.mouse.up()
    shown.page.click("text=/Knock out \\d+ cells/")
    shown.wait_for_edits(1)
    (edit,) = shown.read_link()["edits"]
    assert edit["edit"] == "KnockOut" and len(edit["query"]) > 1 and len(edit["key"]) > 1
    weights = compute_weights(1, 1, (KnockOut(layer=1, head=1, query=edit["query"], key=edit["key"]),))
    assert float(weights[edit["query"]][:, edit["key"]].sum()) == 0


def test_heads_are_sorted_by_similarity_to_the_selected_one(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="0.0"]')
    shown.page.wait_for_function("() => document.querySelectorAll('.jk-head canvas[data-loaded=true]').length === 4")
    shown.page.select_option(".jk-heads-title select", "similar")
    order = [head.get_attribute("data-head") for head in shown.page.locator(".jk-head").all()]
    maps = {f"{layer}.{head}": compute_weights(layer, head).flatten() for layer in (0, 1) for head in (0, 1)}
    similarity = {name: float(torch.cosine_similarity(maps["0.0"], maps[name], dim=0)) for name in maps}
    assert order == sorted(maps, key=lambda name: -similarity[name])


def test_numbers_stand_in_large_cells_and_hiding_the_first_key_changes_the_scale(
    address: str, open_page: OpenPage
) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="0.1"]')
    shown.wait_for_map()
    weights = compute_weights(0, 1)
    largest = "() => Number(document.querySelector('canvas[data-map]').dataset.most)"
    assert shown.page.evaluate(largest) == pytest.approx(float(weights.max()), abs=0.01)
    shown.page.check("[data-action=skip-first]")
    expected = float(weights[:, 1:].max())
    shown.page.wait_for_function(
        "most => Math.abs(document.querySelector('canvas[data-map]').dataset.most - most) < 0.01", arg=expected
    )
