"""The page with other models: an encoder-decoder, a model of transformers, an image, and 16,384 tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from page_driver import ShownPage, serve_page
from page_models import LONG, save_image_model, save_long_model, save_transformers_model
from PIL import Image
from playwright.sync_api import Browser

import jumok
from jumok.lens import Ablate

pytestmark = pytest.mark.xdist_group("page")

OpenPage = Callable[..., ShownPage]
SENTENCE = "나는 책을 읽는다"


def run_copied_code(shown: ShownPage) -> dict[str, object]:
    """Copy the Python of the page, run it, and return its variables."""
    shown.page.click("[data-action=python]")
    shown.page.wait_for_function("() => document.querySelector('[data-action=python]').textContent === 'Copied'")
    names: dict[str, object] = {}
    exec(shown.page.evaluate("() => navigator.clipboard.readText()"), names)
    return names


def check_edited_prediction(shown: ShownPage, names: dict[str, object]) -> None:
    """Compare the largest probability of the copied code's edited run with the one on the page."""
    logits = names["edited"].logits  # type: ignore[attr-defined]
    percent = 100 * float(logits[0, -1].softmax(-1).max())
    texts = shown.read_predictions("edited").values()
    assert any(text in (f"{percent:.0f}%", f"{percent:.1f}%", ">99.9%") for text in texts), (percent, texts)


def test_a_translator_shows_source_target_and_cross_maps(open_page: OpenPage) -> None:
    with serve_page("translator", SENTENCE) as address:
        shown = open_page(address)
        assert "".join(shown.page.locator("[data-sequence=source] .jk-chip").all_inner_texts()).startswith("나는책")
        assert shown.page.locator("[data-sequence=target] .jk-chip").all_inner_texts()[1:] == ["I", "read", "a", "book"]
        assert shown.page.locator(".jk-grid h3").all_inner_texts() == ["encoder", "decoder", "decoder, cross-attention"]
        assert "cross" in shown.page.locator(".jk-map-view .jk-title").inner_text()
        shown.page.click("[data-action=ablate]")
        shown.wait_for_edits(1)
        check_edited_prediction(shown, run_copied_code(shown))


def test_a_model_of_transformers(open_page: OpenPage, tmp_path: Path) -> None:
    folder = save_transformers_model(tmp_path / "neox")
    with serve_page(str(folder), "the cat sat") as address:
        shown = open_page(address)
        shown.page.click('[data-head="1.2"]')
        shown.page.click("[data-action=ablate]")
        shown.wait_for_edits(1)
        check_edited_prediction(shown, run_copied_code(shown))
        with jumok.Lens(str(folder)) as lens:
            logits = lens.run("the cat sat", edits=[Ablate(layer=1, head=2)], logits=True).logits[0, -1]
        assert f"{100 * float(logits.softmax(-1).max()):.1f}%" in shown.read_predictions("edited").values()


def test_patches_over_an_image(browser: Browser, tmp_path: Path) -> None:
    folder = save_image_model(tmp_path / "vit")
    Image.linear_gradient("L").resize((40, 40)).convert("RGB").save(tmp_path / "picture.png")
    with serve_page(str(folder), str(tmp_path / "picture.png")) as address:
        shown = ShownPage(browser)
        shown.page.goto(address)
        canvas = shown.page.locator(".jk-picture canvas")
        canvas.wait_for()
        assert set(shown.read_predictions()) == {"cat", "dog", "새"}
        shown.page.wait_for_function("() => document.querySelector('.jk-picture canvas').width > 100")
        canvas.click(position={"x": 5, "y": 5})
        assert shown.page.locator(".jk-image-view .jk-title").inner_text().startswith("Where patch 1,1 looks")
        selection = shown.read_link()["selection"]
        assert selection["query"] == 1  # behind the class token
        with jumok.Lens(str(folder)) as lens:
            from jumok.tasks.labelled_input import prepare_input

            labelled = prepare_input(lens.loaded, str(tmp_path / "picture.png"))  # type: ignore[arg-type]
            row = lens.run(*labelled.positional).row(selection["site"], selection["head"], 1)
        canvas.hover(position={"x": 5, "y": 5})
        shown.page.wait_for_function("() => document.querySelector('.jk-value').textContent.startsWith('patch 1,1:')")
        assert shown.page.locator(".jk-value").inner_text().endswith(f"{float(row[1]):.4f}")
        shown.close()


def test_the_header_names_the_model_that_the_panels_show(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the page lists the models in ./runs
    save_image_model(tmp_path / "runs" / "vit")
    folder = save_image_model(tmp_path / "start")
    Image.linear_gradient("L").resize((40, 40)).convert("RGB").save(tmp_path / "picture.png")
    with serve_page(str(folder), str(tmp_path / "picture.png")) as address:
        shown = ShownPage(browser)
        shown.open(address, ".jk-picture canvas")
        chosen = shown.page.locator("header select")
        chosen.select_option("tiny")  # there is no text yet: nothing is shown until one is typed
        shown.page.wait_for_selector(".jk-picture canvas", state="detached")
        shown.page.fill("textarea", "the cat")
        shown.page.click("text=Run")
        shown.page.wait_for_selector("[data-sequence=source] .jk-chip")
        assert chosen.input_value() == "tiny"
        chosen.select_option("runs/vit")  # it has no image here
        shown.page.wait_for_selector("text=this model reads an image")
        assert chosen.input_value() == "tiny"
        assert shown.page.locator("[data-sequence=source] .jk-chip").count() == 7
        shown.close()


@pytest.mark.slow
def test_16384_tokens_can_be_panned_and_zoomed_to_exact_cells(open_page: OpenPage, tmp_path: Path) -> None:
    folder = save_long_model(tmp_path / "long")
    text = ("the quick brown fox " * LONG)[:LONG]
    (tmp_path / "long.txt").write_text(text)
    with serve_page(str(folder), str(tmp_path / "long.txt")) as address:
        shown = open_page(address)
        box = shown.page.locator("canvas[data-map]").bounding_box()
        assert box is not None
        shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
        for _ in range(30):
            shown.page.mouse.wheel(0, -400)
        shown.wait_for_map()
        sentence = shown.page.locator(".jk-value")
        shown.page.wait_for_function("() => /: [0-9]/.test(document.querySelector('.jk-value').textContent)")
        written = sentence.inner_text()
        query, key = (int(part.split("]")[0]) for part in written.split("[")[1:3])
        selection = shown.read_link()["selection"]
        with jumok.Lens(str(folder)) as lens:
            row = lens.run(text).row(selection["site"], selection["head"], query)
        number = float(written.rpartition(": ")[2].split(" ")[0].replace("−", "-"))
        assert number == pytest.approx(float(row[key]), rel=0.006)
